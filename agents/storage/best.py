"""The weights whose greedy evaluation had the highest mean return, kept in the run folder beside the checkpoints.

The highest mean of a few episodes is biased upward: among many evaluations of equal weights one is the highest.
"""

from __future__ import annotations

import io
import itertools
import os
import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from agents.errors import RunFolderError, writing
from agents.storage.run_folder import BEST, OF_ANOTHER, replacing
from agents.storage.weights import assign, pack


class Found(NamedTuple):
    """The evaluation that the weights are from."""

    update: int
    mean_return: float  # reward units of the environment
    episodes: int


class Best:
    """Keeps the weights of the best evaluation of a run, its earlier starts included.

    Args:
      root_dir: the run folder; only one process at a time may keep the best there.

    Attributes:
      found: the best evaluation; None before the first.

    Raises:
      RunFolderError: what an earlier start has kept is damaged.
    """

    def __init__(self, root_dir: str | os.PathLike):
        self._path = pathlib.Path(root_dir) / BEST
        contents = _read(self._path)
        self.found: Found | None = None if contents is None else contents[0]

    def offer(self, update: int, returns: np.ndarray, variables: Sequence[tf.Variable]) -> bool:
        """Replaces the file, as a whole, if the mean of `returns` is higher than any before; says whether it was.

        Args:
          update: the weights' own.
          returns: float64 [episodes] of one greedy evaluation, reward units of the environment.
          variables: what acting needs, `RecurrentMultiHeadAgent.acting_variables`.

        Raises:
          RunFolderError: it could not be written (disk full, for one); what was there before is untouched.
        """
        found = Found(update, float(np.mean(returns)), len(returns))
        if np.isnan(found.mean_return) or self.found and not found.mean_return > self.found.mean_return:
            return False
        content = io.BytesIO()
        weights = pack([tf.identity(v) for v in variables])
        np.savez(content, weights=weights, layout=_layout(variables), **found._asdict())
        with writing(self._path), replacing(self._path) as file:
            file.write(content.getbuffer())
        self.found = found
        return True


def load(root_dir: str | os.PathLike, variables: Sequence[tf.Variable]) -> Found | None:
    """Gives the variables the best weights; None, and nothing changed, if the run has kept none.

    Raises:
      RunFolderError: the file is damaged, or the weights are those of another network.
    """
    path = pathlib.Path(root_dir) / BEST
    if (contents := _read(path)) is None:
        return None
    found, weights, layout = contents
    fits = _layout(variables)
    for then, now in itertools.zip_longest(layout or fits, fits, fillvalue="nothing"):
        if then != now:
            raise RunFolderError(f"{path} {OF_ANOTHER}: it holds {then} where the network has {now}")
    try:
        assign(variables, weights)
    except ValueError as error:
        raise RunFolderError(f"{path} {OF_ANOTHER}: {error}") from error
    return found


def _layout(variables: Sequence[tf.Variable]) -> list[str]:
    """Name, dtype and shape of each, in words."""
    # Without the numbers that Keras counts on with every layer of a process: "dense_1".
    names = [re.sub(r"_\d+(?=[/:]|$)", "", variable.name) for variable in variables]
    kinds = [f"{variable.dtype.name} {variable.shape.as_list()}" for variable in variables]
    return [f"{name} ({kind})" for name, kind in zip(names, kinds, strict=True)]


def _read(path: pathlib.Path) -> tuple[Found, np.ndarray, list[str] | None] | None:
    """The evaluation, the weights and their `_layout`, which older files lack; None if there is no such file.

    Raises:
      RunFolderError: it is damaged.
    """
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = Found(int(arrays["update"]), float(arrays["mean_return"]), int(arrays["episodes"]))
            return found, arrays["weights"], arrays["layout"].tolist() if "layout" in arrays else None
    except FileNotFoundError:
        return None
    except Exception as error:  # zipfile and zlib have a dozen kinds for damage
        raise RunFolderError(
            f"{path} is damaged ({type(error).__name__}: {error}). Remove it: the best of what comes takes its place."
        ) from error
