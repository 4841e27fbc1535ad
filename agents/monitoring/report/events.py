"""Scalars and histograms of a TensorBoard folder, as one run that may have been interrupted wrote them."""

from __future__ import annotations

import functools
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

SCALARS, HISTOGRAMS = "scalars", "histograms"  # TensorBoard's plug-ins


class Events(NamedTuple):
    """Contents of a folder, each tag in the order of steps."""

    scalars: Mapping[str, np.ndarray]  # tag -> float64 [N, 2], step and value
    # tag -> step and buckets, float64 [K, 3]: left edge, right edge, count
    histograms: Mapping[str, Sequence[tuple[float, np.ndarray]]]
    damaged: tuple[str, ...] = ()  # names of files that end in the middle of a record, or cannot be read

    def moved(self, steps: np.ndarray, places: np.ndarray) -> Events:
        """The same events with their steps, [N], replaced by places, [N]; linear in between."""
        at = functools.partial(np.interp, xp=steps, fp=places)
        scalars = {tag: np.stack([at(of[:, 0]), of[:, 1]], axis=1) for tag, of in self.scalars.items()}
        histograms = {
            tag: [(float(at(step)), of) for step, of in steps_of] for tag, steps_of in self.histograms.items()
        }
        return Events(scalars, histograms, self.damaged)


def read(folder: str | os.PathLike) -> Events:
    """Reads all event files of a folder itself, not of its sub-folders; a missing folder is an empty one.

    Of a run that was resumed, a later file wins: an earlier one's events after the later one's first step are of
    updates that were made again, and so are those at that step of tags that both have there.
    """
    series: dict[tuple[str, str], list[tuple[int, np.ndarray]]] = defaultdict(list)
    damaged = []
    for path in sorted(Path(folder).glob("*.tfevents.*")):  # whose names go on with the time
        found, whole = _load(path)
        first = min((events[0][0] for events in found.values()), default=np.inf)
        for key, earlier in series.items():
            again = key in found and found[key][0][0] == first
            series[key] = [event for event in earlier if event[0] < first + (not again)]
        for key, events in found.items():
            series[key] += events
        damaged += [path.name] * (not whole)
    scalars = {tag: np.array(of, np.float64) for (kind, tag), of in series.items() if of and kind == SCALARS}
    histograms = {tag: of for (kind, tag), of in series.items() if kind == HISTOGRAMS}
    return Events(scalars, histograms, tuple(damaged))


def scalars(folder: str | os.PathLike) -> Mapping[str, np.ndarray]:
    """Every scalar of a TensorBoard folder: tag -> float64 [N, 2], step and value."""
    return read(folder).scalars


def head_counts(buckets: np.ndarray, heads: int) -> np.ndarray:
    """Counts each head, a whole number, in a histogram whose buckets are narrower than 1 (or one): [heads]."""
    left, right, counts = buckets[buckets[:, 2] > 0].T
    return np.bincount(np.rint((left + right) / 2).astype(int), counts, minlength=heads)[:heads]


def _load(path: Path) -> tuple[dict[tuple[str, str], list], bool]:
    """A file's events by step, (kind, tag) -> [(step, value)], and whether it ends with a whole record."""
    import tensorflow as tf
    from tensorboard import data_compat
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.util import tensor_util

    found: dict[tuple[str, str], list] = defaultdict(list)
    kinds: dict[str, str] = {}
    whole = True
    try:
        for record in tf.compat.v1.io.tf_record_iterator(str(path)):  # tf.data would take a run's GPU
            event = data_compat.migrate_event(Event.FromString(record))
            for value in event.summary.value:
                # A writer may leave out what it has said once, on its first event of a tag.
                kind = kinds.setdefault(value.tag, value.metadata.plugin_data.plugin_name or SCALARS)
                if value.HasField("tensor") and kind in (SCALARS, HISTOGRAMS):
                    found[kind, value.tag].append((event.step, tensor_util.make_ndarray(value.tensor)))
    except Exception:  # noqa: BLE001  of TensorFlow, protobuf or NumPy: a record is damaged
        whole = False
    for events in found.values():
        events.sort(key=lambda event: event[0])
    return found, whole
