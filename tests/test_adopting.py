"""Every Python block of docs/adopting.md runs as it stands, after those before it in its section."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def sections(path: Path) -> dict[str, str]:
    """Heading -> the code of its blocks, one after the other."""
    found = {}
    for part in re.split(r"^## ", path.read_text(), flags=re.MULTILINE)[1:]:
        blocks = re.findall(r"^```python\n(.*?)^```", part, flags=re.MULTILINE | re.DOTALL)
        if blocks:
            found[part.splitlines()[0]] = "\n".join(blocks)
    return found


ADOPTING = sections(ROOT / "docs/adopting.md")


def test_all_kinds_of_agents_are_there():
    assert len(ADOPTING) == 6


@pytest.mark.parametrize("section", ADOPTING)
def test_the_blocks_of_a_section_run(section):
    exec(compile(ADOPTING[section], f"docs/adopting.md, {section}", "exec"), {"__name__": "adopting"})
