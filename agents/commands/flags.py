"""Flags of all commands: how they are parsed, and the messages about wrong ones."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from agents.errors import UsageError, local_path, suggest
from rbs_tf.errors import shorten

LARGEST = 2**63 - 1  # of whole numbers: what TensorFlow and NumPy count with


class Parser(argparse.ArgumentParser):
    """Accepts only whole flag names, and raises UsageError with a hint."""

    def __init__(self, stray: str = "Flags are written --NAME=VALUE.", **settings: Any):
        self._stray = stray  # the hint for an argument that is no flag, which replaces {}
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **settings)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\nTry: {self.prog} --help")

    def parse_args(  # type: ignore[override]  # no namespace of one's own
        self, args: Sequence[str] | None = None
    ) -> argparse.Namespace:
        # Intermixed: flags may stand between names of which the first may be left out.
        options, unknown = self.parse_known_intermixed_args(args)
        if unknown:
            name = unknown[0].split("=")[0]
            if not name.startswith("-"):
                raise UsageError(f"{name!r} is no flag. {self._stray.format(name)}")
            raise UsageError(f"There is no flag {name}. {suggest(name, self._option_string_actions)}")
        for name, value in vars(options).items():
            if value == "":
                raise UsageError(f"{name} is empty: give a value, or leave it out.")
        return options


def count(least: int, most: int = LARGEST) -> Callable[[str], int]:
    """Argparse type: whole numbers from `least` to `most`."""

    def parse(text: str) -> int:
        number = int(text) if text.isascii() and text.isdecimal() else -1
        if not least <= number <= most:
            limits = f"up to {most:,}" if number > most else f"of at least {least}"
            raise argparse.ArgumentTypeError(f"must be a whole number {limits}, not {shorten(text)!r}.")
        return number

    return parse


def a_path(text: str) -> str:
    """Argparse type: a local path, see `local_path`."""
    try:
        return local_path(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def check_output(flag: str, path: str | os.PathLike) -> None:
    """Checks that a file can be written; its folder need not exist. Changes nothing.

    Raises:
      UsageError: it cannot, or the path is no file.
    """
    path = Path(path)
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not path.name or os.path.lexists(path) and not path.is_file():
        raise UsageError(f"{flag} {shorten(str(path))!r} is no file: give the name of one, or a new one.")
    if not os.access(path if path.exists() else folder, os.W_OK) or not folder.is_dir():
        raise UsageError(f"{flag} {shorten(str(path))!r} cannot be written. Give another one.")
