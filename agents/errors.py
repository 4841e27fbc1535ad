"""What commands turn into one sentence and an exit code."""

from __future__ import annotations

import os
import re

from rbs_tf.errors import EnvironmentFault as EnvironmentFault


class UsageError(Exception):
    """A request that cannot be met; the message says what can."""


class RunFolderError(RuntimeError):
    """A run folder that cannot be used; the message names it and says what to do."""


def local_path(path: str | os.PathLike) -> str:
    """Returns a path as it was given; a type of flags, too.

    Raises:
      UsageError: it has a scheme, as gs://bucket/run: Python would make a folder called "gs:".
    """
    text = os.fspath(path)
    if re.match(r"[A-Za-z0-9][A-Za-z0-9+.-]*:/", text):  # of a `Path` one slash is left
        without = re.sub(r"^file:/+", "/", text)
        instead = without if without != text else "the path where it is mounted, or copy it to a disk first"
        raise UsageError(
            f"{text} is an address, and this program reads and writes files by path: give {instead}."
        )
    return text
