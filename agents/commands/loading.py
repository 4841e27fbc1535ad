"""The flags that name a run, and its folder, checked. Needs no TensorFlow."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from agents.commands.flags import a_path
from agents.errors import UsageError, local_path, suggest
from agents.storage.run_folder import BEST, CONFIG, REPOSITORY, checkpoints

PRETRAINED = REPOSITORY / "pretrained"  # a slim run folder for each name
CHECKPOINTS = ("best", "latest")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that name a policy."""
    add = parser.add_argument
    add("run_dir", type=a_path, metavar="RUN_DIR", nargs="?", help="folder of a run of train.py")
    add("--pretrained", metavar="NAME", help="in place of RUN_DIR: weights that come with the repository")
    weights = "the weights of the best evaluation (%(default)s), or the newest checkpoint"
    add("--checkpoint", choices=CHECKPOINTS, default="best", help=weights)
    add("--head", metavar="NAME|INDEX", help="the head that acts (the one that played the evaluation)")


def find_folder(options: argparse.Namespace) -> Path:
    """The folder that the arguments of `add_arguments` name, checked.

    Raises:
      UsageError: they name none or two, or the folder holds no weights.
    """
    if (options.run_dir is None) == (options.pretrained is None):
        raise UsageError(
            "Which run is it? Give either RUN_DIR or --pretrained=NAME; to export, then the folder to make."
        )
    run = options.run_dir if options.pretrained is None else pretrained_folder(options.pretrained)
    return find_run(run, options.checkpoint)


def pretrained_folder(name: str) -> Path:
    """The folder of weights that come with the repository.

    Raises:
      UsageError: there are none of this name.
    """
    names = sorted(folder.name for folder in PRETRAINED.glob("*") if folder.is_dir())
    if name not in names:
        raise UsageError(f"There is no pretrained agent {name!r}. {suggest(name, names)}")
    return PRETRAINED / name


def find_run(run: str | os.PathLike, checkpoint: str) -> Path:
    """The folder of a run, given as a path or by the name of a pretrained agent, checked.

    Raises:
      UsageError: there is none, or it holds no weights.
    """
    if checkpoint not in CHECKPOINTS:
        raise UsageError(f"There is no checkpoint {checkpoint!r}. Write one of {', '.join(CHECKPOINTS)}.")
    folder = Path(local_path(run))
    if not folder.exists() and len(folder.parts) == 1:
        try:
            folder = pretrained_folder(str(run))
        except UsageError as error:
            raise UsageError(f"There is no folder {folder}. {error}") from error
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}. Write what train.py has called the run folder.")
    if not (folder / CONFIG).is_file():
        raise UsageError(f"{folder} is not the folder of a run: it holds no config.gin.")
    if checkpoints(folder):
        return folder
    if not (folder / BEST).is_file():
        raise UsageError(
            f"{folder} holds no weights yet: the run's first evaluation or checkpoint writes them."
        )
    if checkpoint == "latest":
        raise UsageError(f"{folder} holds no checkpoint yet, only the weights of the best evaluation.")
    return folder
