"""MinAtar's games with changed rewards, by names such as "benchmarks.reward_tasks:space_invaders-spikes-v0".

Beneath what changes the rewards, the clean game's episodes are recorded. `STEPS` is the length of the runs in
benchmarks/sweeps, whose middle is where `offset` turns and whose end is where `drift` ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import gymnasium
import numpy as np
from gymnasium.wrappers import RecordEpisodeStatistics

from benchmarks.changed_rewards import DriftRewards, MixedRewards, ScaleRewards, ShapedRewards, SpikeRewards
from rbs_tf import environments
from rbs_tf.environments import names
from rbs_tf.environments.batched import GymnasiumVectorEnvironment

STEPS, NUM_ENVS = 50_000, 16  # of a run; of its environments
_STEPS_OF_EACH = STEPS // NUM_ENVS
MOST_EPISODES = 100_000  # that an environment remembers

# Rewards of the games are 1; their returns are 3 to 60.
_TASKS: dict[str, Callable[[gymnasium.Env], gymnasium.Env]] = {
    **{f"x{scale:g}": functools.partial(ScaleRewards, scale=scale) for scale in (1e-3, 1.0, 10.0, 1e4)},
    "mixed": MixedRewards,
    "spikes": functools.partial(SpikeRewards, size=1e4, probability=1e-3),
    # Up to +-3 at every step, a function of time only: with discount 1 no return differs by more than a constant.
    "offset": functools.partial(
        ShapedRewards, potential=10.0, discount=1.0, period=20, reverse_after=_STEPS_OF_EACH // 2
    ),
    "drift": functools.partial(DriftRewards, steps=_STEPS_OF_EACH, start=1.0, end=1e3),
}
GAMES = tuple(name.removeprefix("minatar/") for name in names.MINATAR_GAMES)


def name_of(game: str, task: str) -> str:
    """What `rbs_tf.environments.make` and `train.env` take."""
    return f"benchmarks.reward_tasks:{game}-{task}-v0"


def game_and_task(name: str) -> tuple[str, str]:
    """The inverse of `name_of`."""
    game, task, _ = name.removeprefix("benchmarks.reward_tasks:").split("-")
    return game, task


def clean_episodes(environment: GymnasiumVectorEnvironment) -> list[tuple[np.ndarray, np.ndarray]]:
    """Returns in the clean game, and lengths, float64 [E] each, of all episodes so far, environment by environment."""
    found = []
    for env in environment.vector_env.envs:
        queues = (env.get_wrapper_attr(name) for name in ("return_queue", "length_queue"))
        found.append(tuple(np.array(queue, float).ravel() for queue in queues))
    return found


def _make(game: str, task: str) -> gymnasium.Env:
    environments.factory._register_minatar()
    env = gymnasium.make(
        names.minatar_id(f"minatar/{game}"), use_minimal_action_set=False, disable_env_checker=True
    )
    return _TASKS[task](RecordEpisodeStatistics(env, buffer_length=MOST_EPISODES))


for _game in GAMES:
    for _task in _TASKS:
        gymnasium.register(f"{_game}-{_task}-v0", functools.partial(_make, _game, _task), order_enforce=False)
