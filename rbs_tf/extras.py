"""Packages that are options: what is missing is named with what to type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_PACKAGES = "tensorflow", "torch", "gymnasium", "tf_agents", "ale_py", "minatar", "jax", "stable_baselines3"
_EXTRAS = {
    "ale_py": "atari",
    "stable_baselines3": "sb3",
    "tf_agents": "tf-agents",
}  # all others are called as their package


@contextlib.contextmanager
def explain_missing(what: str) -> Iterator[None]:
    """Turns a missing package's error into one that names the extra.

    Raises:
      ImportError: `what` needs a package that is an option and not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        extra = f'".[{_EXTRAS.get(package, package)}]"'
        words = f"{what} needs {package}, which is not installed. In the clone of rbs_tf: pip install {extra}"
        raise ImportError(words) from error
