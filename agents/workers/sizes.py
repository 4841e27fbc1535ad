"""What settings take in memory, estimated before anything of that size is made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tf_agents.environments import py_environment

from agents.errors import UsageError, without_gin_trail
from agents.replay.backends import LOCAL, REVERB
from agents.replay.blocks import level_for
from agents.replay.memory import available_memory, estimate_memory, rounded_down
from agents.workers import build
from agents.workers.settings import Settings
from rbs_tf.errors import described
from rbs_tf.settings import default_of, in_force

_COPIES = 5  # of the weights while the agent learns: two networks, a gradient, Adam's two moments
_ENVIRONMENT = 1000  # bytes of a copy at least, whatever it is


class Part(NamedTuple):
    what: str
    bytes: int  # at least
    settings: dict[str, int]  # that it comes from


def check(
    settings: Settings,
    environment: py_environment.PyEnvironment,
    learns: bool = True,
    stores: bool = False,
) -> None:
    """Builds the network of one environment without memory for its weights; weighs each part of what a run takes.

    Args:
      environment: one of the run's.
      learns: or only acts.
      stores: has the replay, too: unlike the driver of a cluster.

    Raises:
      UsageError: a part cannot be built, or memory does not hold it; it says what would fit.
    """
    free = available_memory()
    for part in _parts(settings, environment, learns, stores):
        if part.bytes > free:
            name = max(part.settings, key=lambda each: part.settings[each] / max(1, _default(each)))
            fits: Any = rounded_down(0.8 * part.settings[name] * free / part.bytes)
            if name.startswith(("RecurrentQNetwork", "MlpTorso")):  # its share is not linear
                fits = default_of(name) if part.settings[name] > _default(name) else None
            instead = f"{name} = {fits} would fit." if fits else "Lower the other sizes, too."
            raise UsageError(
                f"{name} = {part.settings[name]}: {part.what} takes at least {part.bytes / 1e9:,.3g} GB, and "
                f"{free / 1e9:.3g} GB of memory are free. {instead}"
            )


def _parts(
    settings: Settings, environment: py_environment.PyEnvironment, learns: bool, stores: bool
) -> Iterator[Part]:
    train, shape = settings.train, settings.shape
    specs = tf.nest.flatten(environment.observation_spec())
    seen = sum(int(np.prod(spec.shape, dtype=object)) * np.dtype(spec.dtype).itemsize for spec in specs)
    if learns:
        copy, names = seen + _ENVIRONMENT, ("num_envs", "steps_per_round", "batch_size", "eval_envs")
        envs, steps, batch, eval_envs = ({f"train.{name}": getattr(train, name)} for name in names)
        window = {f"SequenceShape.{name}": getattr(shape, name) for name in ("length", "burn_in", "n_step")}
        yield Part("collecting", train.num_envs * (copy + train.steps_per_round * (seen + 32)), envs | steps)
        yield Part("evaluating", train.eval_envs * copy, eval_envs)
        yield Part("a batch", train.batch_size * shape.rows * (seen + 32), batch | window)
    weights, state_spec = _network(settings, environment)
    network = f"a network of {weights:,} weights for {environment.num_actions:,} actions"
    layers = [f"RecurrentQNetwork.{name}" for name in ("lstm_units", "post_lstm_units", "head_hidden")]
    units = {name: int(np.max(in_force(name))) for name in (*layers, "MlpTorso.units")}
    yield Part(network, weights * 4 * (_COPIES if learns else 1), units)
    if stores:
        capacity, spec = settings.replay.capacity, build.stored_observation(environment)
        backend = REVERB if settings.replay.backend == REVERB else LOCAL
        level = level_for(spec, settings.replay.compression)
        full = estimate_memory(spec, state_spec, shape, capacity, level, backend)
        yield Part("a full replay", full, {"Replay.capacity": capacity})


def _network(settings: Settings, environment: py_environment.PyEnvironment) -> tuple[int, Any]:
    """The network's number of weights, and core state. In a graph of its own, variables have shapes and no memory."""
    try:
        with tf.Graph().as_default():
            network = build.build_network(settings, environment)
            network.create_variables()
            sizes = (int(np.prod(variable.shape, dtype=object)) for variable in network.variables)
            return sum(sizes), network.state_spec
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        why = described(error).split(" In call to configurable")[0]
        if isinstance(error, ValueError):  # in words of this program's own, around which Keras puts its own
            why = " ".join(without_gin_trail(error).split()) or why
        raise UsageError(f"The network or the scaling cannot be built: {why}") from error


def _default(name: str) -> int:
    return int(np.max(default_of(name)))
