"""Replays of small windows, and what is written into them."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from agents.replay.backends import LOCAL, RAY
from agents.replay.blocks import Layout
from agents.replay.local_replay import LocalReplay
from agents.replay.replay import Intake, Replay, StatisticsReport
from agents.replay.rows import Rows
from agents.sequences import SequenceShape
from agents.settings import ReplaySettings

SHAPE = SequenceShape(burn_in=2, length=4, period=2, n_step=2)  # 8 rows, blocks of 2
OBSERVATION = tf.TensorSpec((3,), tf.uint8)
STATE = (tf.TensorSpec((2,), tf.float32), tf.TensorSpec((2,), tf.float32))
HEADS = 3


def make_replay(
    backend: str, shape: SequenceShape, observation: tf.TensorSpec, state: Any, num_heads: int, **options: Any
) -> Replay:
    """A replay of a backend; options are settings, or arguments of its class."""
    names = {field.name for field in dataclasses.fields(ReplaySettings)}
    arguments = {name: options.pop(name) for name in options.keys() - names}
    kind: Callable[..., Replay] = LocalReplay
    if backend == RAY:
        from tests.agents.replay.through_ray import ThroughRay as kind
    elif backend != LOCAL:
        from agents.replay.reverb_replay import ReverbReplay as kind
    settings = ReplaySettings(**options)
    return kind(Layout(shape, observation, state, settings.compression), num_heads, settings, **arguments)


def rows_of(observation, step_type, previous_action, reward, discount, core_state) -> Rows:
    """Rows [K], of columns or single values; values, head and epsilon are zeros: no replay stores them."""
    count = len(observation)
    scalars = {
        "step_type": np.full(count, step_type, np.int32),
        "previous_action": np.full(count, previous_action, np.int32),
        "reward": np.full(count, reward, np.float32),
        "discount": np.full(count, discount, np.float32),
        "head": np.zeros(count, np.int32),
        "epsilon": np.zeros(count, np.float32),
    }
    values = np.zeros((count, HEADS), np.float32)
    states = np.array(np.broadcast_to(core_state, (count, np.shape(core_state)[-1])), np.float32)
    return Rows(
        observation=observation, core_state=states, taken_values=values, greedy_values=values, **scalars
    )


class Stream:
    """Writes windows whose every row says which row of the stream it is."""

    def __init__(self, replay: Intake, rounds: bool = True):
        self.writer, self.row = replay.writer(), 0
        self._end_round = replay.end_round if rounds else lambda: None

    def append(self, starts_sequence: bool = True, priority: float | None = None) -> None:
        t = np.arange(self.row, self.row + SHAPE.block)
        observation = np.repeat(t[:, None], 3, axis=1).astype(np.uint8)
        states = np.stack([t, t, -t, -t], axis=1)
        rows = rows_of(observation, t % 3, t - 1, t * 0.1 + np.float32(1e7), t % 2, states)
        self.writer.append(rows, starts_sequence, priority)
        self.row += SHAPE.block

    def insert(self, count: int, priority: float = 1.0) -> None:
        """Inserts `count` more windows; window k begins at row 2 k. With `rounds` each is in the table then."""
        for _ in range(count):
            while self.row < SHAPE.rows - SHAPE.block:
                self.append()
            self.append(priority=priority)
            self._end_round()


def first_rows(sequence) -> list[int]:
    return sequence.steps.observation[:, 0, 0].numpy().tolist()


def whole_table(replay: LocalReplay):
    """Everything in a local replay's table, in order of insertion, as one batch of NumPy arrays."""
    keys = np.arange(replay.inserted - replay.size, replay.inserted)
    draw, replay._draw = replay._draw, lambda count: (keys, np.full(count, 1.0 / len(keys)))
    try:
        batch = next(iter(replay.dataset(batch_size=replay.size)))
    finally:
        replay._draw = draw
    return tf.nest.map_structure(lambda tensor: tensor.numpy(), batch)


def report_of(value: float, episodes: int) -> StatisticsReport:
    """A report that `value` tells from others."""
    shapes = {"moments": (8, HEADS), "episodes": (episodes, 5)}
    return {
        name: value * (index + np.arange(np.prod(shape)).reshape(shape))
        for index, (name, shape) in enumerate(shapes.items(), start=1)
    }


def drained(replay: Replay) -> list[StatisticsReport]:
    """Everything in the statistics queue, oldest first; it is empty then."""
    return [report for _, report in replay.statistics()]
