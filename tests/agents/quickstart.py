"""The quickstart at the size of a test: its configuration, the command that runs it, and what it has written."""

import sys
from pathlib import Path

import gin
import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.configuration import parse

REPOSITORY = Path(__file__).parents[2]
# The quickstart's parts at the size of a test. Nearly all of the time is tracing, which every head makes longer.
TINY = (
    "Heads.pairs = ((0.9, True), (0.99, False))",
    "train.num_envs = 2",
    "train.batch_size = 4",
    "train.eval_envs = 2",
    "train.eval_interval = 0",
    "train.final_eval_rounds = 0",
    "train.checkpoint_interval = 100",
    "train.summary_interval = 5",
    "Replay.capacity = 2000",
    "Replay.min_sequences = 4",
    "Replay.replay_ratio = 4.0",
    "RecurrentQNetwork.lstm_units = 16",
    "RecurrentQNetwork.head_hidden = 16",
    "environments.make.max_episode_steps = 200",
    "RecurrentMultiHeadAgent.jit_compile = False",  # compiling takes seconds
)
COMPILED = "RecurrentMultiHeadAgent.jit_compile = None"  # in part, the default


def command(root_dir, *arguments, updates=20, bindings=()):
    flags = [f"--gin_bindings={binding}" for binding in (*TINY, *bindings)]
    return [sys.executable, "train.py", f"--root_dir={root_dir}", f"--updates={updates}", *arguments, *flags]


def tensors(folder):
    """Tag -> what has been written under it."""
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    return {tag: events.Tensors(tag) for tag in events.Tags()["tensors"]}


def values(events):
    return np.array([tf.make_ndarray(event.tensor_proto) for event in events])


def scalars(folder):
    return {tag: values(events) for tag, events in tensors(folder).items()}


class configured:
    """The quickstart at test size, in this process."""

    def __init__(self, *bindings):
        self._bindings = [*TINY, *bindings]

    def __enter__(self):
        parse([REPOSITORY / "configs/quickstart.gin"], self._bindings, REPOSITORY)

    def __exit__(self, *_):
        gin.clear_config()
