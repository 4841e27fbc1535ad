"""gin as the commands use it: parsing, what is bound, and messages that say what to type."""

from __future__ import annotations

import contextlib
import re
import threading
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gin

from agents.errors import UsageError, suggest
from rbs_tf.errors import describe, shorten

# Those in gin's module `scalings`: importing the classes takes TensorFlow; a test holds the two together.
_CLASSES = (
    "clip",
    "cross_head",
    "error_based",
    "gymnasium",
    "hl_gauss",
    "horizon",
    "none",
    "pop_art",
    "return_based",
    "return_out",
    "return_std",
    "reward_std",
    "signed_hyperbolic",
    "two_hot",
)
# What --scaling may name -> its name in gin.
SCALINGS = {name.removesuffix("_based"): name for name in _CLASSES}
_WRITE = "Write NAME.PARAMETER = VALUE, where VALUE is a number, True, None, 'text', @NAME, %MACRO, or a list of these."
_INCLUDE = re.compile(r"^include\s+(['\"])(.*)\1[ \t]*(?:#.*)?$", re.M)


def parse(files: Sequence[Path], bindings: Sequence[str], search_in: Path) -> None:
    """Replaces gin's configuration by that of these files and bindings, where later ones win.

    An included file is looked for beside the file that includes it, then in `search_in`, then in the current folder.
    gin's own search path begins with the current folder, which may be another clone, and only grows.

    Args:
      search_in: a folder.

    Raises:
      UsageError: it is not gin, names what there is not, or sets a macro that nothing refers to.
    """
    gin.clear_config()
    read: list[str] = []
    for file in files:
        _parse_file(file, search_in, (), read)
    _parse("\n".join(bindings), "; ".join(bindings), search_in, (), read)
    # gin takes a name without a dot for a macro, and says nothing where none refers to it.
    for name in re.findall(r"^(\w+) =", gin.config_str(), re.M):
        if not any(f"%{name}" in text for text in read):
            from agents.settings import list_settings  # with it comes TensorFlow

            full = [setting for setting, *_ in list_settings() if setting.rpartition(".")[2] == name]
            meant = f" Did you mean {' or '.join(full)}?" if full else ""
            raise UsageError(f"{name} = ... sets nothing: no binding refers to %{name}. {_WRITE}{meant}")


def _parse_file(path: Path, search_in: Path, within: tuple[Path, ...], read: list[str]) -> None:
    """Parses a file; `within`: the files that include it; `read` gets all that is parsed."""
    if path in within:
        raise UsageError(f"{path} includes itself.")
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    _parse(text, str(path), search_in, (*within, path), read)


def _parse(text: str, where: str, search_in: Path, within: tuple[Path, ...], read: list[str]) -> None:
    """Parses gin, and included files where they stand; `where`: the file or the bindings, for messages."""
    start = 0
    read.append(text)
    try:
        for include in [*_INCLUDE.finditer(text), None]:
            end = include.start() if include else len(text)
            gin.parse_config("\n" * text.count("\n", 0, start) + text[start:end])
            if include:
                beside = [path.parent for path in within[-1:]]
                places = [folder / include[2] for folder in (*beside, search_in)]
                found = next((place for place in places if place.is_file()), Path(include[2]).absolute())
                _parse_file(found, search_in, within, read)
                start = include.end()
    except (Exception, SystemExit) as error:  # those of imported modules, too
        raise UsageError(explain(error, where)) from error


def explain(error: BaseException, where: str = "") -> str:
    """Says what is wrong with a configuration, in gin's words; `where`: the file or the bindings."""
    if isinstance(error, UsageError):
        return str(error)
    where = f"{shorten(where, 300)}: " if where else ""
    if isinstance(error, SyntaxError | tokenize.TokenError):
        return f"This is not gin: {where}{shorten(' '.join(str(error).split()), 200)}\n{_WRITE}"
    if macro := re.search(r"call to configurable 'macro' .* in scope '(\S+)'", str(error)):
        return f"The macro %{macro[1]} has no value. Add --gin_bindings='{macro[1]} = ...'"
    speaks = isinstance(error, ValueError | TypeError | ImportError | OSError | LookupError | NameError)
    message = str(error) if speaks and " " in str(error) else describe(error)
    unknown = (
        r"Configurable '([\w.]+)' doesn't have a parameter named '(\w+)'|No configurable matching '([\w.]+)'"
    )
    if found := re.search(unknown, message):
        from agents.settings import list_settings  # with it comes TensorFlow

        known = [name for name, *_ in list_settings()]
        classes = {name.rpartition(".")[0] for name in known}
        message += f"\n{suggest(found[3], classes) if found[3] else suggest(f'{found[1]}.{found[2]}', known)}"
    return where + message


_turn = threading.RLock()  # gin has one configuration for all threads
PATIENCE = 30.0  # seconds; loading an agent takes fewer, training one takes more


@contextlib.contextmanager
def borrowed() -> Iterator[None]:
    """Clears gin's configuration, and restores it at the end. Another thread waits for `PATIENCE` seconds.

    The caller's bindings come back as `gin.config_str` writes them; gin's operative configuration does not.

    Raises:
      UsageError: another thread trains.
    """
    if not _turn.acquire(timeout=PATIENCE):
        raise UsageError(
            "Another thread of this process is training, and gin has one configuration per process. Train and load "
            "agents before it or after it (Optuna: n_jobs=1), or in other processes."
        )
    before, locked = gin.config_str(), gin.config_is_locked()
    gin.clear_config()
    try:
        yield
    finally:
        try:
            gin.clear_config()
            gin.parse_config(before)
            if locked:
                gin.finalize()
        finally:
            _turn.release()


def format_gin(value: Any) -> str:
    """A value as gin reads it; a string that begins with @ or % is a reference or a macro."""
    return value if isinstance(value, str) and value[:1] in ("@", "%") else repr(value)


def list_scalings(configs: Path) -> dict[str, str]:
    """Name for `--scaling` -> gin statement: classes, and files in `configs/scaling`."""
    variants = {path.stem: f"include {str(path)!r}" for path in (configs / "scaling").glob("*.gin")}
    classes = {name: f"train.scaling = @scalings.{it}" for name, it in SCALINGS.items()}
    return dict(sorted((classes | variants).items()))


def choose_scaling(name: str, known: Mapping[str, str]) -> tuple[str, str]:
    """A scaling's name and the gin statement that chooses it; `known` is what `list_scalings` returns.

    Raises:
      UsageError: there is no such scaling, nor a gin file of this name.
    """
    path = Path(name)
    short = name.removesuffix("_based")
    if path.suffix == ".gin" and path.is_file():
        return path.stem, f"include {str(path.absolute())!r}"
    if short not in known:
        raise UsageError(f"There is no scaling {name!r}. {suggest(name, known)}")
    return short, known[short]
