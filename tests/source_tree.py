"""The files of this repository and what they import, for the tests that hold the whole tree to a rule."""

import ast
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from importlib.metadata import distributions
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent


def repository_files() -> set[str]:
    """What git tracks or would track; without git, every file that is neither hidden nor built."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        return {name for name in listed if (ROOT / name).exists()}
    except (OSError, subprocess.CalledProcessError):
        names = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
        skipped = ("build", "dist", "runs", "__pycache__")
        return {str(name) for name in names if not any(p.startswith(".") or p in skipped for p in name.parts)}


ELSEWHERE = {"jax", "stable_baselines3", "torch"}  # in an environment of their own


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


def imported_distributions(files: Iterable[str]) -> set[str]:
    """What pip calls the packages from elsewhere that the files import; all but `ELSEWHERE` must be installed."""
    own = {path.name for path in ROOT.iterdir() if path.is_dir()} | {path.stem for path in ROOT.glob("*.py")}
    modules = imported_modules(files) - sys.stdlib_module_names - own - ELSEWHERE
    providers = defaultdict(set)
    for distribution in distributions():
        for module in {file.parts[0].removesuffix(".py") for file in distribution.files or ()} & modules:
            providers[module].add(canonicalize_name(distribution.name))
    assert providers.keys() == modules, f"not installed: {sorted(modules - providers.keys())}"
    return set().union(*providers.values())
