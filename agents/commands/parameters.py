"""Every setting that gin can bind: found where it is declared, checked before any work starts.

Conditions on several settings at once are checked by the class that has them.
"""

from __future__ import annotations

import inspect
import re
import textwrap

import gin

from agents.commands import configuration
from agents.commands.flags import nearest
from agents.errors import UsageError
from rbs_tf.settings import Declared, refusal, settings_of


def declared() -> dict[str, Declared]:
    """All settings of imported modules, by name."""
    return {
        f"{name}.{parameter}": setting
        for name, configurable in configuration.ours()
        for parameter, setting in settings_of(configurable).items()
        if setting.setting.gin
    }


def check(recorded: bool = False) -> None:
    """Checks every bound setting of this program.

    Args:
      recorded: the configuration is a run's: settings that this version does not have are skipped.

    Raises:
      UsageError: a value does not fit, or the parameter is not a setting.
    """
    known = declared()
    for name, value in configuration.bound():
        if name not in known:
            if recorded:
                continue
            raise UsageError(f"{name} is not for a configuration to set. {nearest(name, known)}")
        if not known[name].fits(value):
            raise UsageError(refusal(name, value, known[name]))


def listed() -> str:
    """Every setting with default, range and meaning, as `--list_settings` prints it."""
    lines, meant = [], meanings()
    for name, setting in declared().items():
        required = setting.default in (inspect.Parameter.empty, gin.REQUIRED)
        lines.append(name if required else f"{name} = {setting.shown_default}")
        lines += textwrap.wrap(f"    {setting.expected}. {meant[name]}", 100, subsequent_indent="    ")
    return "\n".join(lines)


def meanings() -> dict[str, str]:
    """Each setting's line in its docstring, by name."""
    found: dict[str, str] = {}
    for name, configurable in configuration.ours():
        documentation = inspect.getdoc(configurable) or ""
        arguments = re.search(r"^Args:\n((?:  .*\n|\n)*)", documentation + "\n", re.M)
        entries = re.findall(
            r"^  ([\w, ]+): ((?:.*\n)(?:    .*\n)*)", arguments[1] if arguments else "", re.M
        )
        for parameters, text in entries:
            found |= {f"{name}.{parameter}": " ".join(text.split()) for parameter in parameters.split(", ")}
    return found
