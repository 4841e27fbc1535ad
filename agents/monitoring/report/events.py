"""Scalars and histograms of a TensorBoard folder, as one run that may have been interrupted wrote them."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

_RECORD_FRAME = 16  # bytes around a record: its length and two checksums


class Events(NamedTuple):
    """What a folder holds, each tag in the order of steps.

    Attributes:
      scalars: tag -> float64 [N, 2], step and value.
      histograms: tag -> (step, buckets) pairs; buckets float64 [K, 3]: left edge, right edge, count.
      damaged: names of the files that end in the middle of a record, or cannot be read.
    """

    scalars: Mapping[str, np.ndarray]
    histograms: Mapping[str, list[tuple[int, np.ndarray]]]
    damaged: tuple[str, ...] = ()


def read(folder: str | os.PathLike) -> Events:
    """Reads all event files of a folder itself, not of its sub-folders; a missing folder is an empty one.

    Of a run that was resumed, a later file wins: an earlier one's events after the later one's first step are of
    updates that were made again, and so are those at that step of tags that both have there.
    """
    files = sorted(Path(folder).glob("*.tfevents.*"), key=_order)
    loaded = [_load(path) for path in files]
    series: dict[str, list[tuple[int, np.ndarray]]] = defaultdict(list)
    kinds = {}
    for tags, _ in loaded:
        first = min((events[0][0] for _, events in tags.values()), default=None)
        if first is not None:
            for tag, events in series.items():
                again = tag in tags and tags[tag][1][0][0] == first
                series[tag] = [event for event in events if event[0] < first + (not again)]
        for tag, (kind, events) in tags.items():
            series[tag] += events
            kinds[tag] = kind
    scalars = {tag: np.array(series[tag], np.float64) for tag in series if kinds[tag] == "scalars"}
    histograms = {tag: series[tag] for tag in series if kinds[tag] == "histograms"}
    damaged = tuple(path.name for path, (_, whole) in zip(files, loaded, strict=True) if not whole)
    return Events({tag: values for tag, values in scalars.items() if len(values)}, histograms, damaged)


def scalars(folder: str | os.PathLike) -> Mapping[str, np.ndarray]:
    """Every scalar of a TensorBoard folder: tag -> float64 [N, 2], step and value."""
    return read(folder).scalars


def head_counts(buckets: np.ndarray) -> dict[int, float]:
    """How often each whole number is in a histogram whose buckets, float64 [K, 3], are narrower than 1 (or one)."""
    counts: dict[int, float] = defaultdict(float)
    for left, right, count in buckets:
        if count:
            counts[round((left + right) / 2)] += count
    return dict(counts)


def _order(path: Path) -> tuple[float, str]:
    """Files are named `events.out.tfevents.SECONDS.HOST...`; seconds as a number, for they grow a digit one day."""
    seconds = path.name.partition(".tfevents.")[2].partition(".")[0]
    return (float(seconds) if seconds.isdigit() else 0.0), path.name


def _load(path: Path) -> tuple[dict[str, tuple[str, list]], bool]:
    """A file's events by step, tag -> (kind, [(step, value)]), and whether it ends with a whole record."""
    import tensorflow as tf
    from tensorboard import data_compat
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.util import tensor_util

    tags: dict[str, tuple[str, list]] = {}
    read_bytes = 0
    try:
        size = path.stat().st_size
        for record in RawEventFileLoader(str(path)).Load():
            read_bytes += len(record) + _RECORD_FRAME
            event = data_compat.migrate_event(Event.FromString(record))
            for value in event.summary.value:
                plugin = value.metadata.plugin_data.plugin_name
                if value.HasField("tensor") and (not plugin or plugin in ("scalars", "histograms")):
                    array = tensor_util.make_ndarray(value.tensor)
                    # A writer may leave out what it has said once, on its first event of a tag.
                    kind = plugin or tags.get(value.tag, ("scalars",))[0]
                    tags.setdefault(value.tag, (kind, []))[1].append((event.step, array))
    except (OSError, tf.errors.OpError):
        return tags, False
    for _, events in tags.values():
        events.sort(key=lambda event: event[0])
    # A file that is still being written may have grown since.
    return tags, read_bytes >= size
