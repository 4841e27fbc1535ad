"""Every setting of a run: its default, what may be given, and the paper's value where it has one.

A configuration names a setting by the class's `known_as`, as in `Replay.capacity = 100000`. What it means stands in the
docstring of the class, or of what is `built` with it. The settings of `Heads` and `SequenceShape` stand in
`agents.heads` and `agents.sequences`. `Settings.from_gin` reads all settings out of gin once, and
`agents.workers.build` passes each on by name. gin also gives arguments to scalings, to torsos, and to what a user has
registered.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gin
import tensorflow as tf

import networks  # noqa: F401  registers torsos
from agents.agent import LEARNING_RATE, RecurrentMultiHeadAgent
from agents.bandit import HeadBandit
from agents.checks import FLAG, Checked, Kind, choice, factory, number, optional, setting, whole
from agents.errors import UsageError
from agents.heads import Heads
from agents.policy import EPSILONS, PAPER_EPSILONS, MultiHeadPolicy
from agents.scalings import ReturnBasedScaling, Scaling
from agents.seeds import Seeds
from agents.sequences import SequenceShape
from networks.recurrent_q_network import RecurrentQNetwork
from rbs_tf import environments

_NAME = Kind("the name of an environment (--env=NAME)", lambda value: isinstance(value, str) and value != "")
_SCALING = factory("a scaling", Scaling)
_TORSO = factory("a network for observations", tf.keras.layers.Layer)
_ARGUMENTS = Kind(
    "a dictionary of arguments by their names",
    lambda value: isinstance(value, Mapping) and all(isinstance(name, str) for name in value),
)
_CHANCE = number(least=0, most=1)
_LAYER = whole("units", least=1, most=2**20)
_PIXELS = whole("pixels", least=1, most=4096)
_STEPS = whole("environment steps", least=1)
_PACE = number("environment steps", least=1e-3)
_ROUND = whole("steps of each environment", least=1, most=100_000)
_STRATEGY = choice("default", "mirrored", "tpu")
_BACKEND = choice("local", "ray", "reverb")


@dataclasses.dataclass(frozen=True)
class TrainSettings(Checked):
    """The run, whichever processes it is spread over.

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

    known_as = "train"

    env: str = setting(None, _NAME, example="pong")
    updates: int = setting(None, whole("updates in total"), example=10_000, paper="200,000")
    environment_steps: int | None = setting(None, optional(_STEPS), example=1_000_000)
    seed: int = setting(0, whole())
    strategy: str = setting("default", _STRATEGY)
    scaling: Callable = setting(ReturnBasedScaling, _SCALING, example="@scalings.return_based")
    num_envs: int = setting(32, whole("environments", least=1, most=100_000), paper="192")
    batch_size: int = setting(32, whole("sequences", least=1, most=100_000), paper="32")
    steps_per_round: int = setting(10, _ROUND)
    steps_per_update: float | None = setting(None, optional(_PACE), example=4)
    eval_interval: int = setting(1000, whole("updates; 0: at the end only"))
    eval_envs: int = setting(8, whole("episodes side by side", least=1, most=100_000))
    eval_repeat_action_probability: float | None = setting(None, optional(_CHANCE), example=0.25)
    eval_random_steps: int | None = setting(None, optional(whole("environment steps", most=1000)), example=5)
    final_eval_rounds: int = setting(4, whole("episodes of each environment"))
    trial_episodes: int = setting(0, whole("episodes"), example=40, paper="not given")
    checkpoint_interval: int = setting(1000, whole("updates", least=1))
    summary_interval: int = setting(100, whole("updates; 0: never"))
    weights_interval: int = setting(400, whole("steps of each environment", least=1), paper="400")
    step_timeout: float = setting(120.0, number("seconds", above=0), gin=False)
    max_faults: int = setting(10, whole())

    def is_over(self, updates: int, steps: int) -> bool:
        """Says whether the run has come to its end."""
        limit = self.environment_steps
        return updates >= self.updates or (limit is not None and steps >= limit)


@dataclasses.dataclass(frozen=True)
class AgentSettings(Checked):
    """How the agent learns."""

    known_as = "RecurrentMultiHeadAgent"
    built = RecurrentMultiHeadAgent

    learning_rate: float = setting(2e-4, LEARNING_RATE, paper="2e-4")
    adam_epsilon: float = setting(1e-6, number(above=0), paper="1e-6")
    target_update_period: int = setting(400, whole("updates", least=1), paper="400")
    double_q: bool = setting(False, FLAG, paper="no")
    priority_eta: float = setting(0.9, _CHANCE, paper="R2D2: 0.9")
    importance_exponent: float = setting(0.6, number(least=0), paper="0.6")
    evaluation_epsilon: float = setting(0.0, _CHANCE)
    jit_compile: bool | None = setting(None, optional(FLAG), example=True)


@dataclasses.dataclass(frozen=True)
class PolicySettings(Checked):
    """How training explores."""

    known_as = "MultiHeadPolicy"
    built = MultiHeadPolicy

    epsilons: tuple[float, ...] = setting(PAPER_EPSILONS, EPSILONS, paper="7 values")


@dataclasses.dataclass(frozen=True)
class BanditSettings(Checked):
    """How the head that acts is chosen."""

    known_as = "HeadBandit"
    built = HeadBandit

    window: int = setting(200, whole("episodes", least=1, most=1_000_000), paper="not given")


@dataclasses.dataclass(frozen=True)
class ReplaySettings(Checked):
    """The replay, see `agents.replay`.

    Args:
      backend: "local", in this process, whose draws are seeded; of a distributed run "ray", the same table in the
        learner's process, or "reverb", a server. None: that of the run's checkpoint; without one local, and of a
        distributed run Reverb, or Ray's where Reverb cannot be imported.
      capacity: observations; the table holds capacity / period sequences, then the oldest leaves.
      min_sequences: sequences that must be there before the first is sampled.
      replay_ratio: how often a sequence is sampled per sequence inserted, on average. Does not count under
        `train.steps_per_update`.
      error_buffer: how many samples learner and collectors may be apart, with Ray's and Reverb's replay. In one process
        it must exceed what a round of collecting inserts times `replay_ratio`. Does not count under
        `train.steps_per_update`.
      priority_exponent: of the prioritised draw; 0 draws uniformly.
      read_ahead: batches drawn before they are asked for, so that drawing and decompression overlap the update. Drawn
        early, they miss the newest priorities. None: one for a client, whose process does nothing else meanwhile; none
        where collecting and learning take turns and draws shall be reproducible.
      compression: zlib's level for observations, from 1 to 9, of which the pieces that differ are kept; 0 leaves them
        to Reverb, which takes 2 to 16 times the memory for Atari frames, or as they are in the local replay. None: 3
        for uint8 observations of 20 kB and more, 0 for others.
      port: of the Reverb server; a free one by default.
    """

    known_as = "Replay"

    backend: str | None = setting(None, optional(_BACKEND), example="local")
    capacity: int = setting(4_000_000, whole("observations", least=1), paper="4e6")
    min_sequences: int = setting(1_000, whole("sequences", least=1), paper="not given")
    replay_ratio: float = setting(1.0, number("samples per sequence", above=0), paper="1")
    error_buffer: float = setting(10_000, number("samples", least=1, finite=False))
    priority_exponent: float = setting(0.9, number(least=0), paper="0.9")
    read_ahead: int | None = setting(None, optional(whole("batches", most=1000)), gin=False)
    compression: int | None = setting(None, optional(whole("zlib's level", most=9)), example=3, gin=False)
    port: int | None = setting(None, optional(whole(least=1, most=65_535)), example=8000)

    def check_buffer(self, read_ahead: int, batch_size: int) -> None:
        """Raises ValueError for an `error_buffer` with which one side would wait forever."""
        needed = max(1.0, self.replay_ratio, (read_ahead + 1) * batch_size)
        if self.error_buffer < needed:
            raise ValueError(
                f"Replay.error_buffer = {self.error_buffer} is too small for Replay.replay_ratio = {self.replay_ratio} "
                f"and {read_ahead + 1} batches of {batch_size} sequences, one in use and {read_ahead} read ahead; "
                f"write Replay.error_buffer = {needed} or more"
            )

    def sequences(self, period: int) -> int:
        """How many sequences of this period there is room for; a ValueError if `min_sequences` are not among them."""
        size = self.capacity // period
        if not 1 <= self.min_sequences <= size:
            raise ValueError(
                f"Replay.min_sequences is {self.min_sequences}, but Replay.capacity = {self.capacity} observations "
                f"makes room for {size} sequences of period {period}; write a number from 1 to {size}"
            )
        return size


@dataclasses.dataclass(frozen=True)
class NetworkSettings(Checked):
    """The value function."""

    known_as = "RecurrentQNetwork"
    built = RecurrentQNetwork

    torso: Callable | None = setting(None, optional(_TORSO), example="@networks.small_torso")
    normalise_torso: str = setting("none", choice("none", "centre"))
    lstm_units: int = setting(512, _LAYER, paper="512")
    post_lstm_units: int = setting(256, _LAYER, paper="256")
    head_hidden: int = setting(256, _LAYER, paper="256")
    scale_gradient: bool = setting(True, FLAG, paper="yes")
    reward_input: str = setting("clip", choice("clip", "rms"))


@dataclasses.dataclass(frozen=True)
class EnvironmentSettings(Checked):
    """What environments are like."""

    known_as = "environments.make"
    built = environments.make

    full_action_set: bool = setting(True, FLAG)
    max_episode_steps: int | None = setting(None, optional(_STEPS), example=27_000)
    repeat_action_probability: float | None = setting(None, optional(_CHANCE), example=0.25)
    img_height: int | None = setting(None, optional(_PIXELS), example=84)
    img_width: int | None = setting(None, optional(_PIXELS), example=84)
    grayscale: bool | None = setting(None, optional(FLAG), example=True)
    stack_num: int | None = setting(None, optional(whole("frames", least=1, most=256)), example=4)
    fire_on_new_life: bool | None = setting(None, optional(FLAG), example=True)
    terminal_on_life_loss: bool | None = setting(None, optional(FLAG), example=True)
    env_kwargs: Mapping[str, Any] | None = setting(None, optional(_ARGUMENTS), example={"is_slippery": False})


@dataclasses.dataclass(frozen=True)
class Settings:
    """All settings of a run.

    Raises:
      ValueError: a replay that has no room for the sequences it waits for.
    """

    train: TrainSettings
    agent: AgentSettings
    policy: PolicySettings
    bandit: BanditSettings
    heads: Heads
    shape: SequenceShape
    replay: ReplaySettings
    network: NetworkSettings
    environment: EnvironmentSettings

    def __post_init__(self) -> None:
        self.replay.sequences(self.shape.period)

    @classmethod
    def from_gin(cls) -> Settings:
        """Reads all settings from gin as it is configured now.

        Raises:
          ValueError: a value that does not fit.
        """
        return cls(**{part: make() for part, make in _PARTS.items()})

    @property
    def seeds(self) -> Seeds:
        """The seeds of the run's parts."""
        return Seeds(self.train.seed)


# The parts of `Settings`, each as what makes it with gin's values.
_PARTS: dict[str, Callable[[], Any]] = {
    "train": gin.external_configurable(TrainSettings, "agents.train"),
    "agent": gin.external_configurable(AgentSettings, "agents.RecurrentMultiHeadAgent"),
    "policy": gin.external_configurable(PolicySettings, "agents.MultiHeadPolicy"),
    "bandit": gin.external_configurable(BanditSettings, "agents.HeadBandit"),
    "heads": gin.external_configurable(Heads, "agents.Heads"),
    "shape": gin.external_configurable(SequenceShape, "agents.SequenceShape"),
    "replay": gin.external_configurable(ReplaySettings, "agents.Replay"),
    "network": gin.external_configurable(NetworkSettings, "networks.RecurrentQNetwork"),
    "environment": gin.external_configurable(EnvironmentSettings, "environments.make"),
}


def list_settings() -> Iterator[tuple[str, dataclasses.Field, str]]:
    """Yields the name of each setting that a configuration may set, its field, and its meaning."""
    for part in _PARTS.values():
        kind: Any = part
        arguments = (inspect.getdoc(kind.built or kind) or "").partition("Args:\n")[2]
        for field in dataclasses.fields(kind):
            meaning = re.search(rf"^  {field.name}: ((?:.*\n?)(?:    .*\n?)*)", arguments, re.M)
            if field.metadata["gin"]:
                yield f"{kind.known_as}.{field.name}", field, " ".join(meaning[1].split()) if meaning else ""


def refuse_constants() -> None:
    """Raises UsageError if gin sets what is for Python only."""
    for part in _PARTS.values():
        kind: Any = part
        bound = gin.get_bindings(kind.known_as, resolve_references=False)
        for field in dataclasses.fields(kind):
            if field.name in bound and not field.metadata["gin"]:
                raise UsageError(
                    f"{kind.known_as}.{field.name} is not for a configuration to set: leave it out."
                )
