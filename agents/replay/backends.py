"""Which replay a run takes: the local one, the same table through Ray, or Reverb."""

from __future__ import annotations

import functools
import pathlib

from agents.errors import UsageError
from agents.storage.checkpoint import ReplayFolders

REVERB, LOCAL, RAY = "reverb", "local", "ray"
CALLS = "calls"  # Ray's concurrency group for calls of its replay, apart from the driver's calls
TABLE = "table.json"  # a file of the local replay's checkpoints, which Reverb's do not have


def written_by(checkpoint: pathlib.Path) -> str:
    """The backend that has written a replay's folder in a checkpoint; "local" of Ray's, too: it is the same table."""
    return LOCAL if (checkpoint / TABLE).exists() else REVERB


def begins_with(folders: ReplayFolders | None, backend: str) -> pathlib.Path | None:
    """The checkpoint that a replay begins with, if any.

    Raises:
      ValueError: another backend has written it.
    """
    checkpoint = folders.begins_with if folders else None
    if checkpoint is not None and (then := written_by(checkpoint)) != (LOCAL if backend == RAY else backend):
        raise ValueError(
            f"The replay's checkpoint was written by the {then} replay, and this run has the {backend} one. To go on, "
            "leave out --replay (Replay.backend), --collectors and --cluster; or start in another folder with "
            "--root_dir=DIR"
        )
    return checkpoint


@functools.cache
def why_no_reverb() -> str:
    """Why Reverb cannot be imported; empty if it can."""
    try:
        import reverb  # noqa: F401
    except Exception as error:  # TensorFlow's own, for one, if it was compiled for another TensorFlow
        return (str(error).splitlines() or [type(error).__name__])[0]
    return ""


def require_reverb(asked: str, instead: str) -> None:
    """Refuses what needs Reverb where it cannot be imported.

    Args:
      asked: what needs it, as the user has typed it.
      instead: what else to do.
    """
    if why := why_no_reverb():
        raise UsageError(
            f"{asked} needs Reverb, which cannot be imported ({why}). It goes with Python 3.10 or 3.11 and TensorFlow "
            f"2.15. Install it with: pip install 'dm-reverb~=0.14.0' 'tensorflow~=2.15.0'; or {instead}"
        )


def chosen_backend(chosen: str | None, checkpoint: pathlib.Path | None, distributed: bool = False) -> str:
    """The backend of a run: the one that is set, else that of its checkpoint, else what `ReplaySettings` says.

    Args:
      chosen: as it is set.
      checkpoint: a replay's folder in it.
      distributed: whether several processes reach it.

    Raises:
      UsageError: it is Reverb, which is not there, or of several processes in a run of one.
    """
    if chosen == REVERB:
        instead = "leave out --replay" if distributed else "train in one process with --replay=local"
        require_reverb("Replay.backend = 'reverb'", instead)
    if chosen == RAY and not distributed:
        raise UsageError(
            "Replay.backend = 'ray' is of several processes. Add --collectors=N, or leave out --replay (Replay.backend)"
        )
    if chosen is None and checkpoint is not None:
        chosen = written_by(checkpoint)
        if chosen == REVERB:
            require_reverb(
                "The replay in this folder's checkpoint", "start in another folder with --root_dir=DIR"
            )
        elif distributed:
            chosen = RAY
    if chosen is None and distributed:
        chosen = RAY if why_no_reverb() else REVERB
    return chosen or LOCAL
