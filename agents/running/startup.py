"""A quiet start: none of the noise of TensorFlow, gym, TF-Agents and Reverb reaches the terminal.

Call `quiet()` before the first import of TensorFlow; this module imports next to nothing itself.
"""

import contextlib
import importlib.util
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Mapping

VERBOSE = "RBS_TF_VERBOSE"  # in the environment


def quiet() -> None:
    """Silences what TensorFlow, gym and TF-Agents write about themselves. Calling it again changes nothing.

    Where TensorFlow brings Keras 3, it also chooses Keras 2, which TF-Agents is written for (the package tf_keras).
    Exceptions and fatal messages still arrive. `TF_CPP_MIN_LOG_LEVEL` stays as it is when it is set; with
    `RBS_TF_VERBOSE=1` in the environment nothing is silenced.
    """
    if importlib.util.find_spec("tf_keras") is not None:
        os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    if is_verbose():
        return
    # 3 leaves fatal messages: TensorFlow reports twice-registered CUDA plug-ins as errors, on every machine.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    # gym, which TF-Agents imports, announces what this holds for its version.
    with contextlib.suppress(ImportError):
        from gym_notices.notices import notices

        notices.clear()
    # TF-Agents compares a state with `is not ()`, and AutoGraph compiles that into a file of its own.
    warnings.filterwarnings("ignore", category=SyntaxWarning, module=r".*__autograph_generated_file")


@contextlib.contextmanager
def redirect_native_messages(path: str | os.PathLike) -> Iterator[None]:
    """Sends what C++ libraries write to stderr into a file, Reverb's log above all.

    What Python writes there stays on the terminal. With `RBS_TF_VERBOSE=1`, or where Python's stderr has been replaced,
    everything stays where it is.
    """
    if is_verbose() or sys.stderr is not sys.__stderr__:
        yield
        return
    sys.stderr.flush()
    terminal = os.dup(2)
    with open(path, "ab") as file:
        os.dup2(file.fileno(), 2)
    python_writes_to = sys.stderr
    sys.stderr = os.fdopen(terminal, "w", buffering=1, errors="backslashreplace")
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(terminal, 2)
        for handler in logging.root.handlers:  # absl makes one for the stream of the moment
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
                handler.setStream(python_writes_to)
        sys.stderr.close()
        sys.stderr = python_writes_to


@contextlib.contextmanager
def set_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables, and sets back what they were."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def is_verbose() -> bool:
    """Says whether the environment asks for everything that libraries write, and for tracebacks."""
    return os.environ.get(VERBOSE) == "1"
