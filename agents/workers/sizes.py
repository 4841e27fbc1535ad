"""What settings take in memory, estimated before anything of that size is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tf_agents.environments import py_environment

from agents.errors import UsageError
from agents.replay.memory import available_memory
from agents.targets import SequenceShape
from agents.workers import build
from agents.workers.settings import Settings, Training
from rbs_tf.errors import described
from rbs_tf.settings import settings_of

_COPIES = 5  # of the weights while the agent learns: two networks, a gradient, Adam's two moments
_ENVIRONMENT = 1000  # bytes of a copy at least, whatever it is


class Part(NamedTuple):
    """Something that takes memory: at least so many bytes, by these settings."""

    what: str
    bytes: int
    settings: dict[str, int]


def check(settings: Settings, environment: py_environment.PyEnvironment, learns: bool = True) -> None:
    """Builds the network of one environment without memory for its weights, and adds up what a run takes at least.

    Args:
      environment: one of the run's.
      learns: or only acts.

    Raises:
      UsageError: a part cannot be built, or memory does not hold it; it says what would fit.
    """
    free = available_memory()
    for part in _parts(settings, environment, learns):
        if part.bytes > free:
            name = max(part.settings, key=lambda each: part.settings[each] / max(1, _default(each)), default="")
            fits = float(f"{0.8 * part.settings.get(name, 0) * free / part.bytes:.1g}")
            rather = f"{name} = {part.settings[name]:,}: " if name else ""
            instead = f"About {fits:,.0f} would fit." if fits >= 1 else "Lower the other sizes, too."
            raise UsageError(
                f"{rather}{part.what} takes at least {part.bytes / 1e9:,.3g} GB, and {free / 1e9:.3g} GB of memory are "
                f"free. {instead}"
            )


def _parts(settings: Settings, environment: py_environment.PyEnvironment, learns: bool) -> Iterator[Part]:
    train, shape = settings.train, settings.shape
    seen = sum(
        int(np.prod(spec.shape, dtype=object)) * np.dtype(spec.dtype).itemsize
        for spec in tf.nest.flatten(environment.observation_spec())
    )
    if learns:
        copy, names = seen + _ENVIRONMENT, ("num_envs", "steps_per_round", "batch_size", "eval_envs")
        envs, steps, batch, eval_envs = ({f"train.{name}": getattr(train, name)} for name in names)
        window = {f"SequenceShape.{name}": getattr(shape, name) for name in ("length", "burn_in", "n_step")}
        yield Part("collecting", train.num_envs * (copy + train.steps_per_round * (seen + 32)), envs | steps)
        yield Part("evaluating", train.eval_envs * copy, eval_envs)
        yield Part("a batch", train.batch_size * shape.rows * (seen + 32), batch | window)
    weights = _built(lambda: _weights(settings, environment))
    yield Part(f"a network of {weights:,} weights", weights * 4 * (_COPIES if learns else 1), {})


def _weights(settings: Settings, environment: py_environment.PyEnvironment) -> int:
    """How many weights the network has. In a graph of its own, variables have shapes and no memory."""
    with tf.Graph().as_default():
        network = build.build_network(settings, environment)
        network.create_variables()
        return sum(int(np.prod(variable.shape, dtype=object)) for variable in network.variables)


def _built(build: Callable[[], Any]) -> Any:
    try:
        return build()
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"The network cannot be built: {described(error)}") from error


def _default(name: str) -> int:
    owner = Training if name.startswith("train.") else SequenceShape
    return settings_of(owner)[name.rpartition(".")[2]].default
