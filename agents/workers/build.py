"""Builds the parts of a run from its settings; every process builds those that it needs."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import pathlib
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tf_agents.environments import py_environment
from tf_agents.specs import tensor_spec
from tf_agents.train.utils import strategy_utils

from agents.agent import RecurrentMultiHeadAgent
from agents.replay.backends import LOCAL, RAY, REVERB, resolve_backend
from agents.replay.blocks import Layout, choose_level
from agents.replay.local_replay import LocalReplay
from agents.replay.memory import check_memory, estimate_memory
from agents.replay.replay import Replay
from agents.scalings import Scaling
from agents.sequences import stored_spec
from agents.settings import Settings
from agents.storage.run_folder import REPLAY, newest_replay
from agents.workers.collector import Collector
from networks.recurrent_q_network import RecurrentQNetwork
from rbs_tf import environments
from rbs_tf.environments.batched import GymnasiumVectorEnvironment
from rbs_tf.environments.names import MINATAR_GAMES

if TYPE_CHECKING:
    from agents.replay.ray_replay import RayClient

_RANDOM_STEPS = 5  # of MinAtar's evaluations: its games start alike


def build_environment(
    settings: Settings, num_envs: int, seed: int, random_steps: int = 0, **options: Any
) -> GymnasiumVectorEnvironment:
    """A batch of the run's environments.

    Args:
      random_steps: of `environments.make`.
      **options: in place of those in `settings.environment`.

    Raises:
      ValueError: what `environments.make` raises, and for an option of another kind.
      EnvironmentFault: a copy cannot be made.
    """
    training = settings.train
    environment = dataclasses.replace(settings.environment, **options)
    return environments.make(
        training.env,
        num_envs=num_envs,
        seed=seed,
        full_action_set=environment.full_action_set,
        max_episode_steps=environment.max_episode_steps,
        repeat_action_probability=environment.repeat_action_probability,
        img_height=environment.img_height,
        img_width=environment.img_width,
        grayscale=environment.grayscale,
        stack_num=environment.stack_num,
        fire_on_new_life=environment.fire_on_new_life,
        terminal_on_life_loss=environment.terminal_on_life_loss,
        env_kwargs=environment.env_kwargs,
        random_steps=random_steps,
    )


def build_eval_environment(
    settings: Settings, num_envs: int = 1, seed: int | None = None, **options: Any
) -> GymnasiumVectorEnvironment:
    """The same for evaluation, which has its own seed and may have stickier actions than training."""
    training = settings.train
    name = "repeat_action_probability"
    seed = settings.seeds.evaluation_seed(0) if seed is None else seed
    sticky = training.eval_repeat_action_probability
    random_steps = training.eval_random_steps
    if random_steps is None and training.env in MINATAR_GAMES:
        random_steps = _RANDOM_STEPS
    options = {"random_steps": random_steps or 0} | options
    if sticky is None:
        return build_environment(settings, num_envs, seed, **options)
    try:
        return build_environment(settings, num_envs, seed, **options | {name: sticky})
    except ValueError as error:
        raise ValueError(str(error).replace(name, f"train.eval_{name}")) from error


def build_strategy(name: str) -> tf.distribute.Strategy:
    """The strategy for the agent that learns, from its name in `train.strategy`.

    Raises:
      ValueError: there is no TPU, or it does not answer.
    """
    if name == "default":
        return tf.distribute.get_strategy()
    if name == "mirrored":
        on_gpus = tf.config.list_physical_devices("GPU")
        # On CPUs the default, collectives, hangs in the learner's graph.
        reduction = None if on_gpus else tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(cross_device_ops=reduction)
    address = os.environ.get("TPU_NAME", "local")
    try:
        if address == "local" and not tf.config.list_physical_devices("TPU"):
            raise ValueError("TensorFlow sees no TPU device on this machine")
        return strategy_utils.get_strategy(tpu=address, use_gpu=False)
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        raise ValueError(
            f"train.strategy is 'tpu', but {error}. It takes a TPU virtual machine with libtpu and the TensorFlow "
            "built for it, or the name or grpc:// address of a TPU in the environment variable TPU_NAME"
        ) from error


def build_agent(
    settings: Settings,
    environment: py_environment.PyEnvironment,
    seed: int | None = None,
    strategy: tf.distribute.Strategy | None = None,
) -> RecurrentMultiHeadAgent:
    """The agent for such an environment. Its weights depend on `train.seed` only.

    Args:
      environment: gives the specs.
      seed: of its acting; None: `train.seed`.
      strategy: for the agent that learns, see `build_strategy`; None for those that only act.

    Raises:
      ValueError: a batch that cannot be shared out equally among the strategy's replicas.
    """
    strategy = strategy or tf.distribute.get_strategy()
    batch_size, replicas = settings.train.batch_size, strategy.num_replicas_in_sync
    if batch_size % replicas:
        raise ValueError(
            f"train.batch_size = {batch_size} sequences cannot be shared out equally among {replicas} replicas; "
            f"write a multiple of {replicas}"
        )
    with strategy.scope():
        train_step = tf.Variable(0, dtype=tf.int64, trainable=False, name="train_step")
        scaling = settings.train.scaling(len(settings.heads))
    return RecurrentMultiHeadAgent(
        tensor_spec.from_spec(environment.time_step_spec()),
        tensor_spec.from_spec(environment.action_spec()),
        build_network(settings, environment, scaling),
        heads=settings.heads,
        scaling=scaling,
        shape=settings.shape,
        epsilon_greedy=tuple(settings.policy.epsilons),
        bandit_window=settings.bandit.window,
        learning_rate=settings.agent.learning_rate,
        adam_epsilon=settings.agent.adam_epsilon,
        target_update_period=settings.agent.target_update_period,
        double_q=settings.agent.double_q,
        priority_eta=settings.agent.priority_eta,
        importance_exponent=settings.agent.importance_exponent,
        evaluation_epsilon=settings.agent.evaluation_epsilon,
        jit_compile=settings.agent.jit_compile,
        train_step_counter=train_step,
        seed=settings.train.seed if seed is None else seed,
        strategy=strategy,
    )


def build_network(
    settings: Settings, environment: py_environment.PyEnvironment, scaling: Scaling
) -> RecurrentQNetwork:
    """The network for such an environment, with the outputs that the scaling asks for."""
    time_step_spec = tensor_spec.from_spec(environment.time_step_spec())
    return RecurrentQNetwork(
        (time_step_spec.observation, tf.TensorSpec((), tf.int32), time_step_spec.reward),
        num_actions=environment.num_actions,
        num_heads=len(settings.heads),
        torso=settings.network.torso,
        normalise_torso=settings.network.normalise_torso,
        lstm_units=settings.network.lstm_units,
        post_lstm_units=settings.network.post_lstm_units,
        head_hidden=settings.network.head_hidden,
        scale_gradient=settings.network.scale_gradient,
        reward_input=settings.network.reward_input,
        seed=settings.train.seed,
        outputs_per_action=scaling.outputs_per_action,
    )


def choose_backend(settings: Settings, root_dir: str | os.PathLike, distributed: bool = False) -> str:
    """Chooses the backend from the settings and the newest checkpoint, and raises what `resolve_backend` raises."""
    return resolve_backend(settings.replay.backend, newest_replay(root_dir), distributed)


def check_settings(
    settings: Settings, root_dir: str | os.PathLike, stores: bool, distributed: bool = False
) -> None:
    """Builds what processes of a run will: one copy of its environments, and the agent in a graph, without memory.

    Args:
      stores: whether the replay is on this machine.

    Raises:
      ValueError, UsageError, EnvironmentFault: something cannot be built, or memory does not hold the replay.
    """
    backend = choose_backend(settings, root_dir, distributed)
    check_buffer(settings, backend, distributed)
    build_environment(settings, 1, seed=0).close()
    with contextlib.closing(build_eval_environment(settings)) as environment, tf.Graph().as_default():
        agent = build_agent(settings, environment)
        if stores:
            check_fits(settings, environment, agent.network.state_spec, backend)


def check_buffer(settings: Settings, backend: str, distributed: bool = False) -> None:
    """Raises ValueError for settings of a replay with which collectors or learner would wait forever."""
    if backend != LOCAL and settings.train.steps_per_update is None:
        ahead = settings.replay.read_ahead
        settings.replay.check_buffer(int(distributed) if ahead is None else ahead, settings.train.batch_size)


def check_fits(
    settings: Settings, environment: py_environment.PyEnvironment, state_spec: Any, backend: str
) -> str:
    """Says what a full replay takes of this machine's memory.

    Raises:
      ValueError: memory does not hold it, the message says what would fit; or another program has its port.
    """
    if backend == REVERB and settings.replay.port is not None:
        from agents.replay.reverb_replay import check_free  # it need not be installed otherwise

        check_free(settings.replay.port)
    replay = settings.replay
    spec = stored_observation(environment)
    kind = REVERB if backend == REVERB else LOCAL
    level = choose_level(spec, replay.compression)
    full = estimate_memory(spec, state_spec, settings.shape, replay.capacity, level, kind)
    return check_memory(full, replay.capacity, settings.shape.period)


def build_replay(
    settings: Settings,
    environment: py_environment.PyEnvironment,
    agent: RecurrentMultiHeadAgent,
    backend: str,
    root_dir: str | None = None,
    address: str | None = None,
) -> Replay:
    """The replay for such an environment and agent: with "ray", in the process that has the table.

    Args:
      root_dir: the run folder, whose newest checkpoint the table begins with.
      address: of the Reverb server, in place of a table of its own.
    """
    replay = settings.replay
    if replay.read_ahead is None:
        replay = dataclasses.replace(replay, read_ahead=int(backend == RAY or address is not None))
    if settings.train.steps_per_update is not None:
        replay = dataclasses.replace(replay, error_buffer=math.inf)  # who asks for updates keeps the pace
    layout = _build_layout(settings, environment, agent)
    num_heads = len(settings.heads)
    folder = root_dir if address is None else None  # of a table of its own
    saved = None if folder is None else newest_replay(folder)
    if backend == LOCAL:
        return LocalReplay(layout, num_heads, replay, seed=settings.seeds.draws, saved=saved)
    # Neither of the others needs to be installed.
    if backend == RAY:
        from agents.replay.ray_replay import RayTable

        return RayTable(layout, num_heads, replay, seed=settings.seeds.draws, saved=saved)
    from agents.replay.reverb_replay import ReverbReplay

    writes_to = None if folder is None else pathlib.Path(folder).absolute() / REPLAY / REVERB
    return ReverbReplay(layout, num_heads, replay, address, writes_to, saved)


def build_ray_client(
    settings: Settings,
    environment: py_environment.PyEnvironment,
    agent: RecurrentMultiHeadAgent,
    learner: Any,
) -> RayClient:
    """The way of a collector or of the evaluator to the learner's table; `learner` is Ray's handle of that process."""
    from agents.replay.ray_replay import RayClient

    return RayClient(_build_layout(settings, environment, agent), learner)


def _build_layout(
    settings: Settings, environment: py_environment.PyEnvironment, agent: RecurrentMultiHeadAgent
) -> Layout:
    observation = stored_observation(environment)
    return Layout(settings.shape, observation, agent.network.state_spec, settings.replay.compression)


def stored_observation(environment: py_environment.PyEnvironment) -> tf.TensorSpec:
    """Spec of an observation in a replay."""
    return stored_spec(tensor_spec.from_spec(environment.time_step_spec()).observation)


def trackables(agent: RecurrentMultiHeadAgent) -> dict[str, Any]:
    """What a checkpoint holds of the agent that learns."""
    return {"agent": agent, "train_step": agent.train_step_counter}


def build_collector(
    environment: py_environment.PyEnvironment,
    agent: RecurrentMultiHeadAgent,
    replay: Replay,
    name: str = "collector",
) -> Collector:
    """The collector that plays in the environment with exploration and feeds the replay."""
    return Collector(
        environment,
        agent.collect_policy,
        agent.heads,
        replay,
        agent.shape,
        agent.initial_priorities,
        name=name,
    )
