"""gin as the commands use it: parsing, look-ups, messages that say what to type. gin's private names stay in here."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import os
import re
import threading
import tokenize
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gin

from agents.commands.flags import nearest
from agents.errors import UsageError, local_path
from agents.storage.run_folder import REPOSITORY
from rbs_tf.errors import described, shown
from rbs_tf.settings import default_of, in_force, reference

_NESTED = 50  # files at most, each included by the one before
_UNCLOSED = "A bracket or a quote is never closed."
_WRITE = "Write NAME.PARAMETER = VALUE, where VALUE is a number, True, None, 'text', @NAME, %MACRO, or a list of these."


def parse(files: Sequence[Path], bindings: Sequence[str], search_in: Path) -> None:
    """Replaces gin's configuration by that of these files and bindings, where later ones win.

    Args:
      search_in: included files are relative to this folder, or else to the current one.

    Raises:
      UsageError: it is not gin, or names what there is not.
    """
    gin.clear_config()
    search_included_files_in(search_in)
    try:
        gin.parse_config_files_and_bindings([str(file) for file in files], list(bindings))
        for name, _ in ours():
            gin.config._REGISTRY.get_match(name)
    except (Exception, SystemExit) as error:  # whatever a module that is imported raises, too
        raise UsageError(of_gin(error, shown(" ".join(bindings)))) from error
    _check_scopes()


def _check_scopes() -> None:
    """Raises UsageError for a parameter of this program in a scope that no reference, @SCOPE/NAME, opens.

    gin would ignore it. Modules of others may open scopes for themselves.
    """
    config = gin.config._CONFIG  # gin has no public list of bindings
    names = "gin.macro", "gin.constant"  # whose scopes are their names
    opening = [each.scopes for each in gin.config.iterate_references(config) if each.selector not in names]
    known = {"/".join(scopes[:depth]) for scopes in opening for depth in range(1, 1 + len(scopes))}
    for (scope, selector), values in config.items():
        if scope and scope not in known and _is_ours(gin.config._REGISTRY[selector]):
            name = f"{as_written(selector)}.{next(iter(values))}"
            scopes = ", ".join(sorted(known)) or "none"
            raise UsageError(
                f"{scope}/{name}: no reference opens this scope. Write {name}. Scopes that are open: {scopes}."
            )


def of_gin(error: BaseException, where: str) -> str:
    """Says what is wrong with a file or with bindings, whatever came of reading it or of calling what it names."""
    if isinstance(error, UsageError):  # of a file, without those that include it
        return re.sub(r"\n  In (file|bindings string)[^\n]*\n    include [^\n]*", "", str(error))
    if isinstance(error, tokenize.TokenError):  # which knows no file
        return f"This is not gin{where and ': '}{where}\n{_UNCLOSED} {_WRITE}"
    if isinstance(error, SyntaxError):
        return _not_gin(error, where)
    if isinstance(error, RecursionError | MemoryError) and "\n" not in str(error):  # not of a module
        return f"This is not gin{where and ': '}{where}\nIts brackets or signs are nested too deep. {_WRITE}"
    if isinstance(error, ValueError | TypeError | ImportError | OSError | LookupError | NameError):
        message = with_names_that_fit(str(error))
        speaks = " " in message.partition("\n")[0] and message.count("\n") < 5
        named = message if speaks else f"{where}: {described(error)}".removeprefix(": ")
        return named if where.partition(",")[0] in named else f"{where}: {named}"
    return f"{where}: {described(error)}".removeprefix(": ")


def _not_gin(error: SyntaxError, where: str) -> str:
    """Says where the mistake is, and how values are written: gin speaks of Python's parser."""
    if error.filename and not error.filename.startswith("<"):
        where = f"{error.filename}, line {error.lineno}"
    message = shown(" ".join(str(error.msg).split()), 200)
    if str(error.filename).endswith(".py"):
        return f"The configuration imports a module that is not Python: {where}: {message}."
    if token := re.search(r"Failed to parse token '(.*)'", message):
        message = f"{token[1]!r} is no value."
    if message == "Expected newline.":
        message = "Something follows the value."
    return f"This is not gin{where and ': '}{where}\n{message} {_WRITE}"


_turn = threading.RLock()  # gin has one configuration for all threads
_training = False  # what has the turn takes long


@contextlib.contextmanager
def of_its_own(training: bool = False) -> Iterator[None]:
    """Clears gin's configuration, and gives back in the end what it was. Other threads wait, but not for a training.

    Raises:
      UsageError: another thread trains.
    """
    global _training
    if not _turn.acquire(blocking=False):
        if _training:
            raise UsageError(
                "Another thread of this process is training, and gin has one configuration per process. Train and load "
                "agents before it or after it (Optuna: n_jobs=1), or in processes of their own."
            )
        _turn.acquire()
    outer, _training = _training, _training or training
    try:
        with _empty():
            yield
    finally:
        _training = outer
        _turn.release()


@contextlib.contextmanager
def _empty() -> Iterator[None]:
    state = "CONFIG", "IMPORTS", "SINGLETONS", "OPERATIVE_CONFIG", "LOCATION_PREFIXES", "FILE_READERS"
    parts: list[Any] = [getattr(gin.config, f"_{name}") for name in state]
    before, locked = [part.copy() for part in parts], gin.config_is_locked()
    gin.clear_config()
    try:
        yield
    finally:
        gin.clear_config()
        for part, contents in zip(parts, before, strict=True):
            part.clear()
            (part.extend if isinstance(part, list) else part.update)(contents)
        gin.config._set_config_is_locked(locked)


def search_included_files_in(folder: Path) -> None:
    """Makes gin look for included files in `folder`, then in the current directory, and nowhere else.

    What `gin.add_config_file_search_path` adds comes after Python packages, where gin may fail.
    """
    gin.config._LOCATION_PREFIXES[:] = [str(folder), ""]
    gin.config._FILE_READERS[:] = [(_opened, lambda path: os.path.isfile(local_path(path)))]


_being_read: list[str] = []


@contextlib.contextmanager
def _opened(path: str) -> Iterator[types.SimpleNamespace]:
    if (real := os.path.realpath(path)) in _being_read:
        raise UsageError(f"{path} includes itself.")
    if len(_being_read) == _NESTED:
        raise UsageError(f"{path}: files are included more than {_NESTED} deep. Include them side by side.")
    try:
        lines = io.StringIO(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    _being_read.append(real)
    try:
        yield types.SimpleNamespace(readline=lines.readline, name=path)  # all that gin asks of a file
    except (Exception, SystemExit) as error:
        line = lines.getvalue()[: lines.tell()].removesuffix("\n").count("\n") + 1
        raise UsageError(of_gin(error, f"{path}, line {line}")) from error
    finally:
        _being_read.pop()


def as_gin(value: Any) -> str:
    """A value as gin reads it; a string that begins with @ or % is a reference or a macro."""
    return value if isinstance(value, str) and value[:1] in ("@", "%") else repr(value)


def scalings(configs: Path) -> dict[str, str]:
    """What `--scaling` may name -> the gin statement that chooses it.

    Each scaling goes by its name in gin, `return` for `return_based`; variants with settings are files in the folder
    `scaling` of `configs`. Names are read from the sources: importing these takes TensorFlow.
    """
    sources = "".join(path.read_text() for path in (REPOSITORY / "rbs_tf" / "scalings").glob("*.py"))
    registered = re.findall(r'^@configurable\("(\w+)", module="scalings"\)', sources, re.M)
    own = {_short(name): f"train.scaling = @scalings.{name}" for name in registered}
    variants = {path.stem: f"include {str(path)!r}" for path in (configs / "scaling").glob("*.gin")}
    return dict(sorted((own | variants).items()))


def scaling(name: str, known: Mapping[str, str]) -> tuple[str, str]:
    """A scaling's name and the gin statement that chooses it; `known` is what `scalings` returns.

    Raises:
      UsageError: there is no such scaling, nor a gin file of this name.
    """
    path = Path(name)
    if path.suffix == ".gin" and path.is_file():
        return path.stem, f"include {str(path.absolute())!r}"
    if _short(name) not in known:
        raise UsageError(f"There is no scaling {name!r}. {nearest(name, known)}")
    return _short(name), known[_short(name)]


def bound_scaling() -> str | None:
    """The name of the scaling that is bound, or of the default, as `--scaling` has it; None without one."""
    if (bound := reference("train.scaling")) is None:
        bound = next((name for name, each in ours() if each is default_of("train.scaling")), "")
    words = re.findall(r"\w+", bound)
    return _short(words[-1]) if words else None


def _short(name: str) -> str:
    return name.removesuffix("_based")


def with_names_that_fit(message: str) -> str:
    """Adds to gin's message the names that it could have meant."""
    if match := re.match(r"No module named '([\w.]+)'.*\n +(?:import|from) (\w+)", message, re.S):
        missing, imported = match.groups()
        if missing.partition(".")[0] != imported:
            return f"{message}\n{imported} is there, and what it imports is not: pip install {missing}"
        file = missing.replace(".", "/") + ".py"
        return f"{message}\nPut {file} into {REPOSITORY}, beside train.py, or its folder into PYTHONPATH."
    if match := re.search(r"for 'gin\.(macro)'|In call to configurable '(constant|singleton)'", message):
        return f"@gin.{match[1] or match[2]} is gin's own, and no value of a setting. {_WRITE}"
    if match := re.search(r"No bindings specified for '(\S+)/gin.macro'", message):
        return f"The macro %{match[1]} has no value. Add --gin_bindings='{match[1]} = ...'"
    if match := re.search(r"Configurable '(\S+)' doesn't have a parameter named '(\w+)'", message):
        known = inspect.signature(gin.get_configurable(match[1])).parameters
        return f"{message}\n{nearest(match[2], known)}"
    if match := re.search(r"Ambiguous selector '(\S+)', matches \[(.*)\]", message):
        return f"{match[1]!r} is {match[2]}. Give yours another name: @gin.configurable('NAME')."
    if match := re.search(r"No configurable matching (?:reference )?'@?([\w.]+)", message):
        registry = gin.config._REGISTRY  # gin has no public list of its configurables
        # TF-Agents registers a hundred of its own, none of which is ever in use.
        names = {
            registry.minimal_selector(name)
            for name, entry in registry.items()
            if not entry.wrapped.__module__.startswith("tf_agents.")
        }
        return f"{message}\n{nearest(match[1], names)}"
    return message


def training_parameter(name: str) -> Any:
    """Returns the value of `train.<name>`, or its default."""
    value = in_force(f"train.{name}")
    if value is gin.REQUIRED:
        raise UsageError(f"The configuration does not say train.{name}. Add --{name}=... to the command.")
    return value


def bound() -> Iterator[tuple[str, Any]]:
    """Yields every parameter of this program that is bound, as people write it, with its value, macros evaluated.

    A reference whose call fails comes as it is.

    Raises:
      UsageError: a macro without a value.
    """
    for (_, selector), values in sorted(gin.config._CONFIG.items()):  # gin has no public list of bindings
        if not _is_ours(gin.config._REGISTRY[selector]):
            continue
        for parameter, value in values.items():
            name = f"{as_written(selector)}.{parameter}"
            try:
                value = copy.deepcopy(value)
            except (Exception, SystemExit) as error:  # of a constructor that a reference with () calls
                if (words := with_names_that_fit(str(error))) != str(error):
                    raise UsageError(words) from error
            yield name, value


def ours() -> list[tuple[str, Callable]]:
    """The configurables of this program that are imported, by the names that people write."""
    entries = gin.config._REGISTRY.items()  # gin has no public list of its configurables
    return sorted((as_written(selector), entry.wrapped) for selector, entry in entries if _is_ours(entry))


def as_written(selector: str) -> str:
    """A configurable's name as people write it, without a module where none is needed."""
    return re.sub(r"^(agents|networks|scalings)\.", "", selector)


def _is_ours(configurable: Any) -> bool:
    return configurable.wrapped.__module__.partition(".")[0] in ("agents", "networks", "rbs_tf")
