"""What commands turn into one sentence and an exit code."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Iterable, Iterator

from rbs_tf.errors import EnvironmentFault as EnvironmentFault
from rbs_tf.errors import shorten

_LINES = 6  # of a message at most
_WIDTH = 500  # of a line of it at most


class UsageError(Exception):
    """A request that cannot be met; the message says what can."""


class RunFolderError(RuntimeError):
    """A run folder that cannot be used; the message names it and says what to do."""


# What is known to happen, and no bug of this program.
KNOWN = (UsageError, RunFolderError, EnvironmentFault, FloatingPointError, TimeoutError, OSError, MemoryError)


def shorten_error(error: BaseException | str) -> str:
    """The words of an error in at most six lines, the last of which stays: it says what to do."""
    words = str(error)
    if isinstance(error, OSError) and error.strerror:
        name = error.filename2 or error.filename
        where = f"{shorten(os.fsdecode(name))}: " if isinstance(name, str | bytes) else ""
        words = f"{where}{error.strerror}. Give another path, or make room or rights there."
    elif isinstance(error, MemoryError):
        words = f"There is not enough memory: {words or 'Python could not get more'}."
    words = re.sub(r"\{\{(function_)?node .*?\}\} ?", "", words)  # of TensorFlow's graphs
    lines = [shorten(line, _WIDTH) for line in words.splitlines()]
    if len(lines) > _LINES:
        lines[_LINES - 2 : -1] = [f"  ... {len(lines) - _LINES + 1} lines more"]
    return "\n".join(lines)


@contextlib.contextmanager
def writing(place: str | os.PathLike, *errors: type[Exception]) -> Iterator[None]:
    """Turns an OSError, or another of these errors, into a RunFolderError that names the place."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, (OSError, *errors)):
            raise
        why = getattr(error, "strerror", None) or getattr(error, "message", None) or str(error)
        raise RunFolderError(
            f"Cannot write to {os.fspath(place)}: {why.splitlines()[0]}. Make room or rights there, then repeat the "
            "command; or give another folder with --root_dir=DIR."
        ) from error


def local_path(path: str | os.PathLike) -> str:
    """Checks a path and returns it as it was given. Nothing needs to be there.

    Raises:
      UsageError: it has a scheme, as gs://bucket/run: Python would make a folder called "gs:"; or the operating system
        refuses it, as one that is too long or a link to itself.
    """
    text = os.fspath(path)
    if re.match(r"[A-Za-z0-9][A-Za-z0-9+.-]*:/", text):  # of a `Path` one slash is left
        without = re.sub(r"^file:/+", "/", text)
        instead = without if without != text else "the path where it is mounted, or copy it to a disk first"
        raise UsageError(
            f"{shorten(text)} is an address, and this program reads and writes files by path: give {instead}."
        )
    try:
        os.stat(text)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UsageError(f"{shorten(text)!r} cannot be used: {error.strerror}. Give another path.") from error
    return text


def is_pattern(path: str | os.PathLike) -> bool:
    """Says whether TensorFlow would take a checkpoint's path for a pattern that stands for other paths."""
    return re.search(r"\\|\[.*\]", os.fspath(path), re.S) is not None


def strip_gin_trail(error: BaseException) -> str:
    """Drops what gin and Keras put around the message: which configurables and layers an exception passed through."""
    message = re.split(r"\n\s+In call to configurable", str(error))[0]
    by_keras = re.match(
        r"Exception encountered when calling layer .*?\n\n(.*?)\n\nCall arguments", message, re.S
    )
    message = by_keras[1] if by_keras else message
    return message.strip().splitlines()[-1].strip() if message.startswith("in user code:") else message


def suggest(name: str, names: Iterable[str]) -> str:
    """The `names` that look like `name`, or all of them, as a sentence."""
    by_folded = {known.lower(): known for known in names}
    close = difflib.get_close_matches(name.lower(), by_folded, n=3)
    if close:
        return f"Did you mean {' or '.join(by_folded[folded] for folded in close)}?"
    return f"There is: {', '.join(sorted(by_folded.values())) or 'none'}."
