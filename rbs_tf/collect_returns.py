"""Statistics for return-based scaling from a Gymnasium loop."""

from __future__ import annotations

from typing import Any, SupportsFloat, overload

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike

from rbs_tf.moments import ReturnMoments
from rbs_tf.returns import LARGEST, LONGEST_EPISODE, discounted_returns


@overload
def CollectReturns(
    env: gymnasium.Env,
    scaling: Any,
    gamma: ArrayLike,
    *,
    report_steps: int = ...,
    max_report_steps: int = ...,
) -> CollectEnvReturns: ...
@overload
def CollectReturns(
    env: gymnasium.vector.VectorEnv,
    scaling: Any,
    gamma: ArrayLike,
    *,
    report_steps: int = ...,
    max_report_steps: int = ...,
) -> CollectVectorReturns: ...
def CollectReturns(
    env: Any,
    scaling: Any,
    gamma: ArrayLike,
    *,
    report_steps: int = 100,
    max_report_steps: int = LONGEST_EPISODE,
) -> Any:
    """Wraps environments: their rewards, discounts and finished returns feed a `ReturnScaling`.

        scaling = rbs_tf.ReturnScaling()
        env = rbs_tf.CollectReturns(gymnasium.make("CartPole-v1"), scaling, gamma=0.99)
        envs = rbs_tf.CollectReturns(gymnasium.make_vec("CartPole-v1", num_envs=4), scaling, gamma=0.99)

    The wrapper of an `Env` is a `gymnasium.Wrapper`. That of a `VectorEnv` is a `gymnasium.vector.VectorWrapper`, which
    keeps every environment's episode apart and works in all of Gymnasium's autoreset modes. A step that only resets an
    environment which has ended does not count.

    Statistics arrive in portions: rewards and discounts every `report_steps` steps, returns at an episode's end. A
    time-out (`truncated`) and a `reset` in mid-episode cut returns where they are; only `terminated` has discount 0.
    Several wrappers may feed the same layer, as long as they live in its process. With `AsyncVectorEnv` that means:
    around the vector environment, not around those in it.

    Args:
      env: the environment; put this wrapper where rewards are those that the agent learns from.
      scaling: the layer, or any object with its `merge_state`.
      gamma: the discount per step, a number for all heads or one per head, [H]; rewards are the same for all heads.
      report_steps: steps between two reports within an episode; of a vector environment, its steps.
      max_report_steps: the returns of an episode that goes on for longer are cut after so many steps.

    Raises:
      TypeError: an env that is none of Gymnasium's, a scaling that takes no moments.
      ValueError: a gamma outside [0, 1] or of another number of heads than the layer's, fewer than one step to report,
        a vector environment that does not tell its autoreset mode. `step`, too, when a reward is NaN, infinite or
        above 1e140, whose square is; that step is left out, those of other environments are not.
    """
    feed = _Feed(scaling, gamma, report_steps, max_report_steps)
    if isinstance(env, gymnasium.Env):
        return CollectEnvReturns(env, feed)
    if isinstance(env, gymnasium.vector.VectorEnv):
        return CollectVectorReturns(env, feed)
    raise TypeError(f"env must be a gymnasium.Env or a gymnasium.vector.VectorEnv; got {env!r}")


class _Feed:
    """The scaling that is fed, and how."""

    def __init__(self, scaling: Any, gamma: ArrayLike, report_steps: int, max_report_steps: int):
        if not callable(getattr(scaling, "merge_state", None)):
            raise TypeError(f"scaling must be a ReturnScaling, or have its merge_state; got {scaling!r}")
        gammas = np.asarray(gamma, np.float64)
        if gammas.ndim > 1 or not gammas.size or not ((gammas >= 0.0) & (gammas <= 1.0)).all():
            raise ValueError(f"gamma must be a number within [0, 1], or one per head; got {gamma!r}")
        heads = getattr(scaling, "num_heads", gammas.size)
        if gammas.ndim and gammas.size != heads:
            raise ValueError(f"gamma must be one number, or {heads}, one per head of scaling; got {gamma!r}")
        if report_steps < 1 or max_report_steps < 1:
            raise ValueError(
                "report_steps and max_report_steps must be at least 1;"
                f" got {report_steps} and {max_report_steps}"
            )
        self._gammas = np.broadcast_to(gammas, heads)
        self.scaling, self.report_steps, self.max_report_steps = scaling, report_steps, max_report_steps

    def per_head(self, rewards: ArrayLike, terminal: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Rewards and discounts [T, H] of steps [T]."""
        rewards = np.repeat(np.asarray(rewards)[:, None], len(self._gammas), axis=1)
        return rewards, np.where(np.asarray(terminal)[:, None], 0.0, self._gammas)


class CollectEnvReturns(gymnasium.Wrapper):
    """`CollectReturns` around one environment."""

    def __init__(self, env: gymnasium.Env, feed: _Feed):
        super().__init__(env)
        self._feed = feed
        self._rewards: list[float] = []
        self._reported = 0

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """As the environment's."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if not abs(float(reward)) < LARGEST:
            raise ValueError(
                f"the environment's reward is {reward} at step {len(self._rewards)}; expected a number below "
                f"{LARGEST:g}, whose square is finite. It has been left out"
            )
        self._rewards.append(float(reward))
        if terminated or truncated or len(self._rewards) >= self._feed.max_report_steps:
            self._finish(terminated)
        elif len(self._rewards) - self._reported >= self._feed.report_steps:
            self._report(terminated=False)
        return observation, reward, terminated, truncated, info

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """As the environment's."""
        if self._rewards:
            self._finish(terminated=False)
        return self.env.reset(**arguments)

    def _report(self, terminated: bool) -> tuple[np.ndarray, np.ndarray]:
        """Reports the steps that have not been; returns rewards and discounts of all, [T, H] each."""
        terminal = np.zeros(len(self._rewards), bool)
        terminal[-1] = terminated
        rewards, discounts = self._feed.per_head(self._rewards, terminal)
        new = slice(self._reported, None)
        self._feed.scaling.merge_state(ReturnMoments.from_steps(rewards[new], discounts[new]))
        self._reported = len(rewards)
        return rewards, discounts

    def _finish(self, terminated: bool) -> None:
        self._feed.scaling.merge_state(
            ReturnMoments.from_returns(discounted_returns(*self._report(terminated)))
        )
        self._rewards, self._reported = [], 0


class CollectVectorReturns(gymnasium.vector.VectorWrapper):
    """`CollectReturns` around N environments that step together."""

    def __init__(self, env: gymnasium.vector.VectorEnv, feed: _Feed):
        super().__init__(env)
        self._feed = feed
        # Gymnasium up to 1.3 keeps the metadata of all environments of a class in one dictionary: the next vector
        # environment's mode would be in it.
        mode = getattr(self.env.unwrapped, "autoreset_mode", self.env.metadata.get("autoreset_mode"))
        if not isinstance(mode, AutoresetMode):
            raise ValueError(
                f"{self.env} does not tell how it resets environments that have ended: expected its"
                f' metadata["autoreset_mode"] to be a gymnasium.vector.AutoresetMode, got {mode!r}'
            )
        self._mode = mode
        self._rows = np.arange(self.num_envs)
        # The open episodes, one per row; grown when one is longer.
        self._rewards = np.zeros((self.num_envs, min(128, self._feed.max_report_steps)))
        self._lengths = np.zeros(self.num_envs, np.int64)
        self._ended = np.zeros(self.num_envs, bool)  # environments whose next step does not count
        # What has not been reported, one vector step per row.
        self._new_rewards = np.zeros((self._feed.report_steps, self.num_envs))
        self._new_counted = np.zeros((self._feed.report_steps, self.num_envs), bool)
        self._new_terminal = np.zeros((self._feed.report_steps, self.num_envs), bool)
        self._num_new = 0

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """As the environment's."""
        observations, rewards, terminated, truncated, info = self.env.step(actions)
        numbers, terminal = np.asarray(rewards, np.float64), np.asarray(terminated, bool)
        over = terminal | np.asarray(truncated, bool)
        fits = np.abs(numbers) < LARGEST
        counted, wrong = fits & ~self._ended, ~fits & ~self._ended
        if self._mode == AutoresetMode.NEXT_STEP:
            self._ended = over
        elif self._mode == AutoresetMode.DISABLED:
            self._ended = self._ended | over  # until they are reset

        steps = self._lengths
        self._rewards[self._rows, steps] = np.where(
            counted, numbers, 0.0
        )  # the next step's place if it is not
        self._new_rewards[self._num_new] = numbers
        self._new_counted[self._num_new] = counted
        self._new_terminal[self._num_new] = terminal
        self._num_new += 1
        self._lengths = steps + counted
        self._finish(over | (self._lengths >= self._feed.max_report_steps))
        if self._num_new == self._feed.report_steps:
            self._report()
        if self._lengths.max(initial=0) == self._rewards.shape[1]:
            self._rewards = np.concatenate([self._rewards, np.zeros_like(self._rewards)], axis=1)

        if wrong.any():
            index = int(wrong.argmax())
            raise ValueError(
                f"the reward of environment {index} is {numbers[index]} at step {steps[index]} of its episode; "
                f"expected a number below {LARGEST:g}, whose square is finite. It has been left out"
            )
        return observations, rewards, terminated, truncated, info

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """As the environment's; `options={"reset_mask": bool [N]}` resets only those."""
        # Read before: Gymnasium takes the mask out of the caller's dictionary.
        mask = (arguments.get("options") or {}).get("reset_mask", np.ones(self.num_envs, bool))
        observations, info = self.env.reset(**arguments)
        self._finish(mask)
        self._ended = self._ended & ~mask
        return observations, info

    def _finish(self, which: np.ndarray) -> None:
        """Reports all steps, and the returns of the open episodes of `which`, bool [N], which end here."""
        lengths = np.where(which, self._lengths, 0)
        if not lengths.any():
            return
        rewards = np.concatenate([self._rewards[i, : lengths[i]] for i in np.flatnonzero(lengths)])
        last = np.zeros(len(rewards), bool)
        last[np.cumsum(lengths[lengths > 0]) - 1] = True
        # Cut or ended, nothing follows: a discount of 0 keeps the episodes apart.
        self._report(ReturnMoments.from_returns(discounted_returns(*self._feed.per_head(rewards, last))))
        self._lengths = np.where(which, 0, self._lengths)

    def _report(self, returns: ReturnMoments | None = None) -> None:
        """Reports the steps that have not been, together with `returns`."""
        counted = self._new_counted[: self._num_new]
        rewards, terminal = (new[: self._num_new][counted] for new in (self._new_rewards, self._new_terminal))
        self._num_new = 0
        moments = ReturnMoments.from_steps(*self._feed.per_head(rewards, terminal))
        self._feed.scaling.merge_state(moments if returns is None else ReturnMoments.merge(moments, returns))
