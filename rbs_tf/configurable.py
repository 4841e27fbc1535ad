"""`gin.configurable` where gin is installed; elsewhere a decorator that leaves everything as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from gin import configurable
except ImportError:

    def configurable(*_: Any, **__: Any) -> Callable:
        """Takes the arguments of `gin.configurable` that this package gives."""
        return lambda decorated: decorated


__all__ = ["configurable"]
