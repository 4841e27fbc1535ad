"""Python of the documentation runs as it stands, and prints what the page says.

In docs/adopting.md every block runs after those before it in its section.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = r"^```python\n(.*?)^```"


def sections(path: Path) -> dict[str, str]:
    """Heading -> the code of its blocks, one after the other."""
    found = {}
    for part in re.split(r"^## ", path.read_text(), flags=re.MULTILINE)[1:]:
        blocks = re.findall(BLOCK, part, flags=re.MULTILINE | re.DOTALL)
        if blocks:
            found[part.splitlines()[0]] = "\n".join(blocks)
    return found


ADOPTING = sections(ROOT / "docs/adopting.md")
ELSEWHERE = "PyTorch and JAX"  # in an environment of their own: tests/test_adopting_elsewhere.py


@pytest.fixture(params=[name for name in ADOPTING if name != ELSEWHERE])
def section(request):
    return request.param


def test_all_kinds_of_agents_are_there():
    assert len(ADOPTING) == 7 and ELSEWHERE in ADOPTING


def test_the_blocks_of_a_section_run(section):
    exec(compile(ADOPTING[section], f"docs/adopting.md, {section}", "exec"), {"__name__": "adopting"})


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md", "docs/faq.md"])
def test_blocks_that_stand_alone_run_and_print_what_the_page_says(page, capsys):
    text = (ROOT / page).read_text()
    blocks = re.findall(BLOCK + r"(?:\n*prints\n+```text\n(.*?)^```)?", text, flags=re.MULTILINE | re.DOTALL)
    assert blocks
    for code, said in blocks:
        exec(compile(code, page, "exec"), {"__name__": "page"})
        assert capsys.readouterr().out == said
