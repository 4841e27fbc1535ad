"""Replays of small windows, and what is written into them."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from agents.replay.local_replay import LocalReplay
from agents.replay.replay import REVERB, Replay
from agents.replay.windows import Block
from agents.targets import SequenceShape, Steps

SHAPE = SequenceShape(burn_in=2, length=4, period=2, n_step=2)  # 8 rows, blocks of 2
OBSERVATION = tf.TensorSpec((3,), tf.uint8)
STATE = (tf.TensorSpec((2,), tf.float32), tf.TensorSpec((2,), tf.float32))
HEADS = 3


def replay_class(backend: str) -> Callable[..., Replay]:
    """The class of a backend."""
    if backend != REVERB:
        return LocalReplay
    from agents.replay.reverb_replay import ReverbReplay

    return ReverbReplay


class Stream:
    """Writes windows whose every row says which row of the stream it is."""

    def __init__(self, replay: Replay):
        self.writer, self.row = replay.writer(), 0

    def append(self) -> None:
        t = np.arange(self.row, self.row + SHAPE.block, dtype=np.int32)
        observation = np.repeat(t[:, None], 3, axis=1).astype(np.uint8)
        steps = Steps(t % 3, observation, t - 1, t * 0.1 + np.float32(1e7), np.float32(t % 2))
        state = (np.full(2, t[0], np.float32), np.full(2, -t[0], np.float32))
        self.writer.append(Block(Steps(*(np.asarray(column) for column in steps)), state))
        self.row += SHAPE.block

    def insert(self, count: int, priority: float = 1.0) -> None:
        """Inserts `count` more windows; window k begins at row 2 k."""
        for _ in range(count):
            self.append()
            while self.row < SHAPE.rows:
                self.append()
            self.writer.insert(priority)
            self.writer.flush()


def first_rows(sequence) -> list[int]:
    return sequence.steps.observation[:, 0, 0].numpy().tolist()
