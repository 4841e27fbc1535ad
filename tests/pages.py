"""The programs of a page of the documentation, for the tests that run them."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[1]
BLOCK = r"^```python\n(.*?)^```"


def programs(page: str) -> dict[str, str]:
    """Heading of the second level -> the code of its blocks, one after the other; "" is what precedes the first."""
    parts = re.split(r"^## (.*)$", (ROOT / page).read_text(), flags=re.MULTILINE)
    found = zip(["", *parts[1::2]], parts[::2], strict=True)
    blocks = {title: re.findall(BLOCK, text, flags=re.MULTILINE | re.DOTALL) for title, text in found}
    return {title: "\n".join(code) for title, code in blocks.items() if code}


def blocks(page: str) -> list[str]:
    """Its programs, one by one."""
    return re.findall(BLOCK, (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)


def run(page: str, *titles: str, shorter: tuple[str, str] = ("", "")) -> SimpleNamespace:
    """Runs the programs under these headings in one namespace, one after the other; returns its names.

    `shorter`: words of the code, and what stands in their place.
    """
    names = {"__name__": "page"}
    for title in titles:
        exec(compile(programs(page)[title].replace(*shorter), f"{page}, {title}", "exec"), names)
    return SimpleNamespace(**names)


def passes_with_keras_2(request):
    """Runs a test in a process of its own."""
    again = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", request.node.nodeid]
    environ = os.environ | {"TF_USE_LEGACY_KERAS": "1"}
    done = subprocess.run(again, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
