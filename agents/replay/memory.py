"""Memory that a replay will occupy, and that the machine has; both in bytes."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from agents.sequences import SequenceShape

# Measured: the least compressible of all 57 Atari games (Yars' Revenge) takes 2.1 kB a frame at zlib's level 3 (Pong
# 0.08, the mean 0.49), with Reverb's own compression 5 to 6 kB, and what is around it comes on top. Other observations
# count in full, but for smaller pictures: of 84 x 84 in grey, two stacked, the same game (the mean is a sixth) keeps
# these shares.
ATARI_FRAME = (210, 160, 3)
_ATARI_ROW = {True: 2_400, False: 5_700}
_PICTURE_SHARE = {True: 0.21, False: 0.25}
_PICTURE_SIDE = 42  # pixels
# Measured with tiny observations: scalars and bookkeeping, in bytes of each row, block and sequence.
_OVERHEADS = {"reverb": (166, 0, 1_000), "local": (16, 450, 420)}


def estimate_memory(
    observation_spec: tf.TensorSpec,
    state_spec: Any,
    shape: SequenceShape,
    capacity: int,
    compression: int = 0,
    backend: str = "reverb",
) -> int:
    """Bytes of a full replay of `capacity` observations, one core state per sequence.

    Atari frames (uint8 210 x 160 x 3) and smaller pictures (uint8, 42 pixels and more in both directions) count as
    compressed, as measured; other observations as if they did not compress at all. Episodes shorter than a sequence
    share fewer rows between sequences than this assumes. `backend`: "reverb", which compresses by itself, or "local".
    """
    size = observation_spec.shape.num_elements()
    of_row, of_block, of_sequence = _OVERHEADS[backend]
    overhead = of_row + of_block // shape.block
    row = size * observation_spec.dtype.size + overhead
    if observation_spec.dtype == tf.uint8 and (compression or backend != "local"):
        pixels = tuple(observation_spec.shape)
        if pixels == ATARI_FRAME:
            row = _ATARI_ROW[compression > 0]
        elif len(pixels) == 3 and min(pixels[:2]) >= _PICTURE_SIDE:
            row = round(_PICTURE_SHARE[compression > 0] * size) + overhead
    state = sum(spec.shape.num_elements() * spec.dtype.size for spec in tf.nest.flatten(state_spec))
    return capacity * row + capacity // shape.period * (state + of_sequence)


def check_memory(needed: int, capacity: int, period: int) -> str:
    """Says in one sentence what a full replay takes, in bytes, and what there is.

    Raises:
      ValueError: the machine does not have so much memory free.
    """
    available = available_memory()
    note = (
        f"Replay of {capacity:,} observations ({capacity // period:,} sequences): about "
        f"{needed / 1e9:.3g} GB when full; {available / 1e9:.3g} GB are free."
    )
    if needed > available:
        fits = max(rounded_down(0.9 * capacity * available / needed), period)
        raise ValueError(f"{note} Lower Replay.capacity: {fits} would fit")
    return note


def rounded_down(number: float) -> int:
    """To its first digit: 1,900 becomes 1,000."""
    whole = int(number)
    return whole - whole % 10 ** (len(str(whole)) - 1)


def available_memory(root: pathlib.Path = pathlib.Path("/")) -> int:
    """Bytes that this process may still use: what the machine, or its control group, has left."""
    lines = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines())
    return min([int(lines["MemAvailable"].split()[0]) * 1024, *_control_groups(root)])


def _control_groups(root: pathlib.Path) -> Iterator[int]:
    """Yields what is left in each memory control group around this process, of either version."""
    groups = root / "proc/self/cgroup"
    for line in groups.read_text().splitlines() if groups.exists() else ():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, limit, usage, cache = "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            mount, limit, usage = "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cache = "total_inactive_file"
        else:
            continue
        group = root / mount / path.strip("/")
        for folder in (group, *group.parents):
            if (folder / limit).exists() and (most := (folder / limit).read_text().strip()) != "max":
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                # The usage includes file cache that can be dropped.
                yield int(most) - int((folder / usage).read_text()) + int(stat.get(cache, 0))
