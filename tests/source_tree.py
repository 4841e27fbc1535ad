"""The files of this repository and what they import, for the tests that hold the whole tree to a rule."""

import ast
import functools
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent


def repository_files() -> set[str]:
    """What git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.splitlines() if (ROOT / name).exists()}


ELSEWHERE = {"jax", "optax", "stable_baselines3", "torch"}  # in an environment of their own


def imported_modules(files: Iterable[str]) -> set[str]:
    """Top-level names of all that the files import, wherever in them."""
    names = set()
    for file in files:
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add(node.module)
    return {name.split(".")[0] for name in names}


@functools.cache
def providers() -> dict[str, set[str]]:
    """Top-level module -> what pip calls the installed packages that have it."""
    found = defaultdict(set)
    for distribution in distributions():
        for module in {file.parts[0].removesuffix(".py") for file in distribution.files or ()}:
            found[module].add(canonicalize_name(distribution.name))
    return found


def imported_distributions(files: Iterable[str]) -> set[str]:
    """What pip calls the packages from elsewhere that the files import; all but `ELSEWHERE` must be installed."""
    own = {path.name for path in ROOT.iterdir() if path.is_dir()} | {path.stem for path in ROOT.glob("*.py")}
    modules = imported_modules(files) - sys.stdlib_module_names - own - ELSEWHERE
    assert modules <= providers().keys(), f"not installed: {sorted(modules - providers().keys())}"
    return set().union(*(providers()[module] for module in modules))
