"""Statistics for return-based scaling from a Gymnasium loop."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from numpy.typing import ArrayLike

from rbs_tf.moments import ReturnMoments
from rbs_tf.returns import LARGEST, LONGEST_EPISODE, discounted_returns


class CollectReturns(gymnasium.Wrapper):
    """Feeds a `ReturnScaling` with the rewards, discounts and finished returns of an environment.

        scaling = rbs_tf.ReturnScaling()
        env = rbs_tf.CollectReturns(gymnasium.make("CartPole-v1"), scaling, gamma=0.99)

    Statistics arrive in portions: rewards and discounts every `report_steps` steps, returns at an episode's end. A
    time-out (`truncated`) and a `reset` in mid-episode cut returns where they are; only `terminated` has discount 0.
    Several environments may feed the same layer, as long as they live in its process
    (`gymnasium.vector.SyncVectorEnv`).

    Args:
      env: the environment; put this wrapper where rewards are those that the agent learns from.
      scaling: the layer, or any object with its `merge_state`.
      gamma: the discount per step, a number for all heads or one per head, [H]; rewards are the same for all heads.
      report_steps: steps between two reports within an episode.
      max_report_steps: the returns of an episode that goes on for longer are cut after so many steps.

    Raises:
      TypeError: a scaling that takes no moments.
      ValueError: a gamma outside [0, 1] or of another number of heads than the layer's, fewer than one step to report.
        `step`, too, when a reward is NaN, infinite or above 1e140, whose square is; that step is left out.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        scaling: Any,
        gamma: ArrayLike,
        *,
        report_steps: int = 100,
        max_report_steps: int = LONGEST_EPISODE,
    ):
        super().__init__(env)
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
        self._scaling, self._gammas = scaling, np.broadcast_to(gammas, heads)
        self._report_steps, self._max_report_steps = report_steps, max_report_steps
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
        if terminated or truncated or len(self._rewards) >= self._max_report_steps:
            self._finish(terminated)
        elif len(self._rewards) - self._reported >= self._report_steps:
            self._report(terminated=False)
        return observation, reward, terminated, truncated, info

    def reset(self, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """As the environment's."""
        if self._rewards:
            self._finish(terminated=False)
        return self.env.reset(**arguments)

    def _report(self, terminated: bool) -> tuple[np.ndarray, np.ndarray]:
        """Reports the steps that have not been; returns rewards and discounts of all, [T, H] each."""
        rewards = np.repeat(np.array(self._rewards)[:, None], len(self._gammas), axis=1)
        discounts = np.broadcast_to(self._gammas, rewards.shape).copy()
        if terminated:
            discounts[-1] = 0.0
        new = slice(self._reported, None)
        self._scaling.merge_state(ReturnMoments.from_steps(rewards[new], discounts[new]))
        self._reported = len(rewards)
        return rewards, discounts

    def _finish(self, terminated: bool) -> None:
        self._scaling.merge_state(ReturnMoments.from_returns(discounted_returns(*self._report(terminated))))
        self._rewards, self._reported = [], 0
