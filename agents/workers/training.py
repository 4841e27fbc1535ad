"""All settings of a run, read out of gin once and passed on from there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple

import gin
import numpy as np

from agents.heads import Heads
from agents.replay.replay import ReplaySettings
from agents.scalings import ReturnBasedScaling, Scaling
from agents.sequences import SequenceShape
from rbs_tf.settings import Setting, configurable, makes

_ENV = Setting(
    kind="the name of an environment", fits=lambda name: isinstance(name, str) and name != "", example="pong"
)
_RANDOM_STEPS = Setting("environment steps", least=0, most=1000, example=5)
_SCALING = Setting(kind="a scaling", fits=makes(Scaling), example="@scalings.return_based")


@configurable("train", module="agents")
@dataclasses.dataclass(frozen=True)
class Training:
    """Settings of a run, whichever processes it is spread over.

    Args:
      env: environment name, see `rbs_tf.environments`.
      updates: learner updates in total, those of earlier starts included.
      environment_steps: ends the run before its updates are made, once so many have been collected; None: no limit.
      seed: of networks, environments, exploration and head choice.
      strategy: where updates are computed: "default" on one device, "mirrored" on all GPUs of the learner's machine (on
        its CPU if it has none), each with an equal share of the batch, or "tpu", which nobody has run yet.
      scaling: factory of a `agents.scalings` scaling, called with the number of heads.
      num_envs: environments that a collector steps as one batch.
      batch_size: sequences per update.
      steps_per_round: steps of every environment between two looks at the replay ratio.
      steps_per_update: environment steps, of all environments together, per update: after n steps there have been
        floor((n - `Replay.min_sequences` `SequenceShape.period`) / steps_per_update) updates. In one process. None: as
        many as `Replay.replay_ratio` allows; then short episodes, whose sequences are padded, earn more.
      eval_interval: updates between evaluations; 0 evaluates at the end only.
      eval_envs: episodes per evaluation, played side by side.
      eval_repeat_action_probability: chance that an action is repeated in evaluation, so that greedy games from the
        same start differ (Machado et al. 2018: 0.25); for Atari's and MinAtar's plain names. None: as in training.
      eval_random_steps: each episode of an evaluation begins with 0 to so many random steps, as Atari's games do with
        no-ops, so that greedy games from the same start differ; their rewards do not count. None: 5 in MinAtar, 0 in
        others; tasks whose first observation is to be remembered want 0.
      final_eval_rounds: the evaluation at the end plays this many times `eval_envs` episodes; 0: none.
      trial_episodes: before the evaluation at the end, all heads play so many greedy episodes together, the best acts
        from then on; 0: the bandit's best acts.
      checkpoint_interval: updates between checkpoints; one is always written at the end and when interrupted.
      summary_interval: updates between TensorBoard entries; 0 writes none.
      weights_interval: steps of each environment between two looks for newer weights; distributed.
      step_timeout: distributed: seconds after which a step of the environments counts as stuck.
      max_faults: distributed: failures of environments after which a run ends instead of restarting its collector.
    """

    env: Annotated[str, _ENV] = gin.REQUIRED
    updates: Annotated[int, Setting("updates in total", least=0, example=10_000, paper="200,000")] = (
        gin.REQUIRED
    )
    environment_steps: Annotated[int | None, Setting("environment steps", least=1, example=1_000_000)] = None
    seed: Annotated[int, Setting(least=0)] = 0
    strategy: Annotated[Literal["default", "mirrored", "tpu"], Setting()] = "default"
    scaling: Annotated[Callable[[int], Scaling], _SCALING] = ReturnBasedScaling
    num_envs: Annotated[int, Setting("environments", least=1, most=100_000, paper="192")] = 32
    batch_size: Annotated[int, Setting("sequences", least=1, most=100_000, paper="32")] = 32
    steps_per_round: Annotated[int, Setting("steps of each environment", least=1, most=100_000)] = 10
    steps_per_update: Annotated[float | None, Setting("environment steps", least=1e-3, example=4)] = None
    eval_interval: Annotated[int, Setting("updates; 0: at the end only", least=0)] = 1000
    eval_envs: Annotated[int, Setting("episodes side by side", least=1, most=100_000)] = 8
    eval_repeat_action_probability: Annotated[float | None, Setting(least=0, most=1, example=0.25)] = None
    eval_random_steps: Annotated[int | None, _RANDOM_STEPS] = None
    final_eval_rounds: Annotated[int, Setting("episodes of each environment", least=0)] = 4
    trial_episodes: Annotated[int, Setting("episodes", least=0, paper="open", example=40)] = 0
    checkpoint_interval: Annotated[int, Setting("updates", least=1)] = 1000
    summary_interval: Annotated[int, Setting("updates; 0: never", least=0)] = 100
    weights_interval: Annotated[int, Setting("steps of each environment", least=1, paper="400")] = 400
    step_timeout: Annotated[float, Setting("seconds", above=0, gin=False)] = 120.0
    max_faults: Annotated[int, Setting(least=0)] = 10

    def reached(self, updates: int, steps: int) -> bool:
        """Says whether the run has come to its end."""
        limit = self.environment_steps
        return updates >= self.updates or (limit is not None and steps >= limit)


class Result(NamedTuple):
    """The end of a run."""

    updates: int
    environment_steps: int
    final_return: float  # mean greedy return of the last evaluation, reward units of the environment; or NaN
    stopped_by: int | None  # the signal that ended it early, behind a checkpoint; 0: `on_evaluation`
    root_dir: str = ""  # of a run that Python has asked for
    head: str = ""  # that acted in the last evaluation


class Evaluated(NamedTuple):
    """One greedy evaluation of a run, as `on_evaluation` gets it; the environment's own rewards, unclipped."""

    update: int  # that the weights are of
    environment_steps: int  # of training, until then
    mean_return: float
    returns: np.ndarray  # float64 [episodes]
    lengths: np.ndarray  # int64 [episodes], environment steps


class Seeds:
    """A seed of its own for every part of a run, all from `train.seed`: no two parts see the same random numbers.

    Attributes:
      of_run: the weights', and of the agent that learns.
      draws: of the replay.
    """

    def __init__(self, seed: int):
        self.of_run = seed
        self.draws = self._derived(1, 1)

    def evaluating(self, step: int) -> int:
        """Of the evaluations of a run that goes on at update `step`."""
        return self._derived(1, 0, step)

    def collecting(self, step: int) -> int:
        """Of the environments of a run in one process that goes on at update `step`."""
        return self._derived(0, step)

    def collector(self, index: int, start: int, seconds: int) -> int:
        """Of the run's collector of this index: how often it was started before, and when this run was."""
        return self._derived(2 + index, start, seconds)

    def _derived(self, *purpose: int) -> int:
        return int(np.random.SeedSequence([self.of_run, *purpose]).generate_state(1)[0] >> 1)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a configuration says of a run. Classes that `agents.workers.build` calls take the rest from gin.

    Attributes:
      train: of the run.
      heads, shape, replay: what their own classes say.
    """

    train: Training
    heads: Heads
    shape: SequenceShape
    replay: ReplaySettings

    def __post_init__(self) -> None:
        self.replay.sequences(self.shape.period)

    @classmethod
    def configured(cls) -> Settings:
        """As gin has it now."""
        return cls(Training(), Heads(), SequenceShape(), ReplaySettings())

    @property
    def seeds(self) -> Seeds:
        """Of the run's parts."""
        return Seeds(self.train.seed)
