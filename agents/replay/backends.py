"""Which replay a run takes: the local one, the same table through Ray, or Reverb."""

from __future__ import annotations

import functools
import pathlib

from agents.errors import UsageError

REVERB, LOCAL, RAY = "reverb", "local", "ray"
CALLS = "calls"  # Ray's concurrency group for calls of its replay, apart from the driver's calls
TABLE = "table.json"  # a file of the local replay's checkpoints and of Ray's, which Reverb's do not have


@functools.cache
def why_no_reverb() -> str:
    """Why Reverb cannot be imported; empty if it can."""
    try:
        import reverb  # noqa: F401
    except Exception as error:  # TensorFlow's own, for one, if it was compiled for another TensorFlow
        return (str(error).splitlines() or [type(error).__name__])[0]
    return ""


def _require_reverb(asked: str, instead: str) -> None:
    """Refuses what needs Reverb where it cannot be imported; `asked` as the user has typed it."""
    if why := why_no_reverb():
        raise UsageError(
            f"{asked} needs Reverb, which cannot be imported ({why}). It goes with Python 3.10 or 3.11 and TensorFlow "
            f"2.15. Install it with: pip install 'dm-reverb~=0.14.0' 'tensorflow~=2.15.0'; or {instead}"
        )


def resolve_backend(chosen: str | None, checkpoint: pathlib.Path | None, distributed: bool = False) -> str:
    """The backend of a run: the one that is set, else that of its checkpoint, else what `ReplaySettings` says.

    Args:
      chosen: as it is set.
      checkpoint: a replay's folder in it.
      distributed: whether several processes reach it.

    Raises:
      UsageError: it is Reverb, which is not there, of several processes in a run of one, or not the checkpoint's.
    """
    if chosen == RAY and not distributed:
        raise UsageError(
            "Replay.backend = 'ray' is of several processes. Add --collectors=N, or leave out --replay (Replay.backend)"
        )
    written = None
    if checkpoint is not None:
        written = RAY if distributed else LOCAL
        if not (checkpoint / TABLE).exists():
            written = REVERB
    if chosen == REVERB:
        instead = "leave out --replay" if distributed else "train in one process with --replay=local"
        _require_reverb("Replay.backend = 'reverb'", instead)
    elif chosen is None and written == REVERB:
        _require_reverb(
            "The replay in this folder's checkpoint", "start in another folder with --root_dir=DIR"
        )
    if written not in (None, chosen or written):
        raise UsageError(
            f"The replay's checkpoint was written by the {written} replay, and this run has the {chosen} one. To go "
            "on, leave out --replay (Replay.backend); or start in another folder with --root_dir=DIR"
        )
    if distributed:
        return chosen or written or (RAY if why_no_reverb() else REVERB)
    return chosen or written or LOCAL
