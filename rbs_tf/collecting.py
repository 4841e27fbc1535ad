"""Statistics for return-based scaling from a Gymnasium loop."""

from __future__ import annotations

import sys
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike

from rbs_tf.feed import Feed, check_values
from rbs_tf.returns import LONGEST_EPISODE


def collect_returns(
    env: Any,
    scaling: Any,
    gamma: ArrayLike,
    *,
    head: ArrayLike | None = None,
    report_steps: int = 100,
    max_report_steps: int = LONGEST_EPISODE,
) -> Any:
    """Wraps environments: their rewards, discounts and finished returns feed a `ReturnScaling`.

        scaling = rbs_tf.ReturnScaling()
        env = rbs_tf.collect_returns(gymnasium.make("CartPole-v1"), scaling, gamma=0.99)
        envs = rbs_tf.collect_returns(gymnasium.make_vec("CartPole-v1", num_envs=4), scaling, gamma=0.99)

    The wrapper of an `Env` is a `gymnasium.Wrapper`, that of a `VectorEnv` a `gymnasium.vector.VectorWrapper`, which
    works in all of Gymnasium's autoreset modes. A step that only resets an environment does not count; below an `Env`'s
    wrapper, `gymnasium.wrappers.Autoreset` may make such steps. A Stable-Baselines3 `VecEnv` gets a `VecEnvWrapper`,
    which reads time-outs from `infos[i]["TimeLimit.truncated"]`.

    Rewards and discounts of the first `report_steps` steps count at once, later ones every `report_steps` steps, and
    returns at an episode's end. A time-out (`truncated`) and a `reset` in mid-episode cut the returns; only
    `terminated` has discount 0. Several wrappers, also in several threads, may feed one layer, all in the layer's
    process: with `AsyncVectorEnv`, wrap the vector environment, not the environments in it.

    Args:
      env: the environment; put this wrapper where rewards are those that the agent learns from.
      scaling: a `ReturnScaling` of any library, or any object with their `merge_state`.
      gamma: the discount per step, a number for all heads or one per head, [H]; rewards are the same for all heads.
      head: the head, or task, that the environment's steps are of; of a vector environment one number, or one per
        environment. None: every step is of all heads.
      report_steps: steps between two reports within an episode; of a vector environment, its steps.
      max_report_steps: returns of longer episodes are cut every so many steps.

    Raises:
      TypeError: an env that is neither Gymnasium's nor Stable-Baselines3's, or that holds several environments and is
        no `VectorEnv`; a scaling that takes no moments.
      ValueError: a gamma outside [0, 1] or of another number of heads than the layer's, fewer than one step to report,
        a head out of range, a vector environment without an autoreset mode, an environment that feeds the same heads of
        the same scaling already.
        From `step`, which leaves the step out: a reward that is NaN, infinite or above 1e140; values that are not one
        per environment; a step after an episode's end without a reset.
      RuntimeError: from `step`: the scaling is of another process.
    """

    def feed(num_envs: int) -> Feed:
        made = Feed(num_envs, scaling, gamma, head, report_steps, max_report_steps)
        if _is_fed(env, made):
            raise ValueError(
                f"{type(env.unwrapped).__name__} feeds this scaling already, and each step would count twice: leave "
                "out one of the two collect_returns, or give each a `head` of its own"
            )
        return made

    if isinstance(env, gymnasium.vector.VectorEnv):  # first: EnvPool's environments are both
        return CollectVectorReturns(env, feed(env.num_envs))
    if isinstance(env, gymnasium.Env):
        pool = env.unwrapped
        held = getattr(pool, "num_envs", np.size(getattr(pool, "all_env_ids", 0)))  # Isaac Lab's, EnvPool's
        if held > 1:
            raise TypeError(
                f"{type(pool).__name__} holds {held} environments and is no gymnasium.vector.VectorEnv, which says how "
                "they reset: wrap it in one of your own, as docs/actor_critics.md does with EnvPool"
            )
        return CollectEnvReturns(env, feed(1))
    stable_baselines = sys.modules.get("stable_baselines3.common.vec_env")  # no one else need install it
    if stable_baselines is not None and isinstance(env, stable_baselines.VecEnv):
        from rbs_tf.sb3 import CollectVecEnvReturns

        return CollectVecEnvReturns(env, feed(env.num_envs))
    kinds = "a gymnasium.Env, a gymnasium.vector.VectorEnv or a Stable-Baselines3 VecEnv"
    raise TypeError(
        f"env must be {kinds}; got {env!r}. TF-Agents' drivers take the observer of a ScaledLoss instead"
    )


def _is_fed(env: Any, feed: Feed) -> bool:
    """Whether a wrapper in the environment, or in those that it holds in this process, feeds the same heads already."""
    own = getattr(env, "__dict__", {})
    inner = own.get("_feed")
    if isinstance(inner, Feed) and inner.scaling is feed.scaling and not inner.heads.isdisjoint(feed.heads):
        return True
    # What the wrappers of Gymnasium and Stable-Baselines3 call it, and what steps several in one process.
    several = own.get("envs")
    held = [own.get("env"), own.get("venv"), *(several if isinstance(several, list | tuple) else ())]
    return any(hasattr(one, "step") and _is_fed(one, feed) for one in held)


class CollectEnvReturns(gymnasium.Wrapper):
    """`collect_returns` around one environment."""

    def __init__(self, env: gymnasium.Env, feed: Feed):
        super().__init__(env)
        self._feed = feed
        self._ended = False  # True: only a reset may follow
        self._autoresets = []
        while isinstance(env, gymnasium.Wrapper):
            if isinstance(env, gymnasium.wrappers.Autoreset):
                self._autoresets.append(env)
            env = env.env

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """As the environment's."""
        only_resets = any(wrapper.autoreset for wrapper in self._autoresets)
        observation, reward, terminated, truncated, info = self.env.step(action)
        if only_resets:
            self._ended = False
        elif self._ended:
            raise ValueError(
                "the environment was stepped after its episode had ended, without a reset: this may be no transition "
                "and has been left out. Call reset, or put collect_returns beneath what resets the environment itself"
            )
        else:
            terminal = check_values("terminated", terminated, bool)
            over = terminal | check_values("truncated", truncated, bool)
            self._ended = bool(over)
            number = check_values("reward", reward, np.float64)
            self._feed.step(number.reshape(1), terminal.reshape(1), over.reshape(1), np.ones(1, bool))
        return observation, reward, terminated, truncated, info

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """As the environment's."""
        self._feed.finish(np.ones(1, bool))
        self._ended = False
        return self.env.reset(**arguments)


class CollectVectorReturns(gymnasium.vector.VectorWrapper):
    """`collect_returns` around N environments that step together."""

    def __init__(self, env: gymnasium.vector.VectorEnv, feed: Feed):
        super().__init__(env)
        self._feed = feed
        # Gymnasium up to 1.3 keeps the metadata of all environments of a class in one dictionary: the next vector
        # environment's mode would be in it.
        mode = getattr(self.env.unwrapped, "autoreset_mode", self.env.metadata.get("autoreset_mode"))
        if not isinstance(mode, AutoresetMode):
            expected = 'metadata["autoreset_mode"] to be a gymnasium.vector.AutoresetMode'
            raise ValueError(f"{self.env} does not tell how it resets: expected its {expected}, got {mode!r}")
        self._mode = mode
        self._ended = np.zeros(self.num_envs, bool)  # environments whose next step does not count

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As the environment's."""
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        shape = (self.num_envs,)
        numbers = check_values("rewards", rewards, np.float64, shape)
        terminal = check_values("terminated", terminated, bool, shape)
        over = terminal | check_values("truncated", truncated, bool, shape)
        counts = ~self._ended
        if self._mode == AutoresetMode.NEXT_STEP:
            self._ended = over
        elif self._mode == AutoresetMode.DISABLED:
            self._ended = self._ended | over  # until they are reset
        self._feed.step(numbers, terminal, over, counts)
        return observations, rewards, terminated, truncated, info

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """As the environment's; `options={"reset_mask": bool [N]}` resets only those."""
        # Read before: Gymnasium takes the mask out of the caller's dictionary.
        mask = (arguments.get("options") or {}).get("reset_mask", np.ones(self.num_envs, bool))
        mask = check_values("reset_mask", mask, bool, (self.num_envs,))
        observations, info = self.env.reset(**arguments)
        self._feed.finish(mask)
        self._ended = self._ended & ~mask
        return observations, info
