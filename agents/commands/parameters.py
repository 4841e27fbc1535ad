"""Every setting that a person can bind with gin: found where it is declared, checked before any work starts.

What several settings must be together (a capacity that holds the first sequences, say) their owners check.
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
    """All settings by the names that people write, those of modules that are imported."""
    return {
        f"{name}.{parameter}": setting
        for name, configurable in configuration.ours()
        for parameter, setting in settings_of(configurable).items()
        if setting.setting.gin
    }


def check(recorded: bool = False) -> None:
    """Checks everything that is bound now; configurables of other people's modules are theirs to check.

    Args:
      recorded: by a run, whose version of this program may have had settings that are none today: they are left out.

    Raises:
      UsageError: the first setting that does not fit, or that is not for a person to set.
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
    """Every setting with its default, what may be given and what it means, as `--list_settings` prints it."""
    lines, meant = [], meanings()
    for name, setting in declared().items():
        required = setting.default in (inspect.Parameter.empty, gin.REQUIRED)
        lines.append(name if required else f"{name} = {setting.shown_default}")
        lines += textwrap.wrap(f"    {setting.expected}. {meant[name]}", 100, subsequent_indent="    ")
    return "\n".join(lines)


def meanings() -> dict[str, str]:
    """What the docstrings say of each argument, by the names that people write."""
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
