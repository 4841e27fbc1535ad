"""Packages that are options: what is missing is named with what to type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_OF_PACKAGE = {
    "tensorflow": "tensorflow",
    "torch": "torch",
    "gymnasium": "gymnasium",
    "tf_agents": "tf-agents",
    "ale_py": "atari",
    "minatar": "minatar",
    "bsuite": "bsuite",
    "jax": "jax",
}


@contextlib.contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Turns a missing package's error into one that names the extra.

    Raises:
      ImportError: `what` needs a package that is an option and not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _OF_PACKAGE:
            raise
        raise ImportError(
            f'{what} needs {package}, which is not installed: pip install "rbs-tf[{_OF_PACKAGE[package]}]"'
        ) from error
