"""Scalars of a TensorBoard folder, as one run that may have been interrupted wrote them."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from agents.monitoring.tags import OVER_STEPS

Scalars = Mapping[str, np.ndarray]  # tag -> float64 [N, 2], step and value, in the order of steps


def read(folder: str | os.PathLike, starts: Sequence[float] = ()) -> tuple[Scalars, list[str]]:
    """Reads the event files of a folder, not of its sub-folders; a missing folder is an empty one.

    Of a run that was resumed, a later file wins: an earlier one's events after the later one's first step are of
    updates that were made again, and so are those at that step of tags that both have there.

    Args:
      folder: the run's `train` or `eval`.
      starts: `run_folder.starts` of the run. Without them files are in the order of the times in their names.

    Returns:
      the scalars, and the names of files that end in the middle of a record or cannot be read.
    """
    series: dict[str, list[tuple[int, float]]] = defaultdict(list)
    damaged = []
    paths = Path(folder).glob("*.tfevents.*")
    for path in sorted(paths, key=lambda path: (_start(path, starts), path.name)):  # names contain the time
        found, whole = _load(path)
        first = min((events[0][0] for events in found.values()), default=np.inf)
        for tag, earlier in series.items():
            again = tag in found and found[tag][0][0] == first
            series[tag] = [event for event in earlier if event[0] < first + (not again)]
        for tag, events in found.items():
            series[tag] += events
        damaged += [path.name] * (not whole)
    return {tag: np.array(of, np.float64) for tag, of in series.items() if of}, damaged


def _start(path: Path, starts: Sequence[float]) -> int:
    """Which start of the run wrote a file: the one at the latest time that is not after the file's."""
    time = re.search(r"\.tfevents\.(\d+)", path.name)
    earlier = [(start, number) for number, start in enumerate(starts) if time and start <= int(time[1])]
    return max(earlier, default=(0, -1))[1]


def _load(path: Path) -> tuple[dict[str, list[tuple[int, float]]], bool]:
    """A file's scalars by tag, and whether it ends with a whole record."""
    import tensorflow as tf
    from tensorboard import data_compat
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.util import tensor_util

    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    kinds: dict[str, str] = {}
    whole = path.is_file()  # a pipe would make it wait for ever
    try:
        # tf.data would take a run's GPU.
        for record in tf.compat.v1.io.tf_record_iterator(str(path)) if whole else ():
            event = data_compat.migrate_event(Event.FromString(record))
            for value in event.summary.value:
                # A writer names the plug-in only in its first event of a tag.
                if value.tag.endswith(OVER_STEPS):  # known over updates, too
                    continue
                kind = kinds.setdefault(value.tag, value.metadata.plugin_data.plugin_name or "scalars")
                if kind == "scalars" and value.HasField("tensor"):
                    found[value.tag].append((event.step, tensor_util.make_ndarray(value.tensor)))
    except Exception:  # noqa: BLE001  of TensorFlow, protobuf or NumPy: a record is damaged
        whole = False
    for events in found.values():
        events.sort(key=lambda event: event[0])
    return found, whole
