"""Memory that a replay will occupy, and that the machine has; both in bytes."""

from __future__ import annotations

import pathlib
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
    compression: int,
    backend: str,
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
        fits = int(0.9 * capacity * available / needed)
        fits -= fits % 10 ** (len(str(fits)) - 1)  # down to its first digit
        raise ValueError(f"{note} Lower Replay.capacity: {max(fits, period)} would fit")
    return note


def available_memory(root: pathlib.Path = pathlib.Path("/")) -> int:
    """Bytes that this process may still use: what the machine, or a control group around it (version 2), has left."""
    lines = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines())
    left = [int(lines["MemAvailable"].split()[0]) * 1024]
    groups = root / "proc/self/cgroup"
    for line in groups.read_text().splitlines() if groups.exists() else ():
        if not line.startswith("0::"):
            continue
        group = root / "sys/fs/cgroup" / line.removeprefix("0::").strip("/")
        for folder in (group, *group.parents):
            if (folder / "memory.max").exists() and (
                most := (folder / "memory.max").read_text().strip()
            ) != "max":
                stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                # The usage includes file cache that can be dropped.
                used = int((folder / "memory.current").read_text()) - int(stat.get("inactive_file", 0))
                left.append(int(most) - used)
    return min(left)
