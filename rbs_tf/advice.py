"""What the layers and `rbs_tf.numpy.ReturnScaling` log about missing statistics and unsuitable floors."""

from __future__ import annotations

import logging

import numpy as np

from rbs_tf.moments import ReturnMoments

PAPERS_FLOOR = 1e-2
STEPS_TO_JUDGE = 1000
SMALLEST = np.finfo(np.float32).tiny

log = logging.getLogger(__name__)


class Advice:
    """Two warnings, each logged once: errors before any step, and heads whose floor does not fit.

    Args:
      name: the scale's, for messages.
      feed: the call that brings steps, for messages.
      floor_in_units: of the scale.

    Attributes:
      is_fed: True once steps have been seen or the first warning has been logged.
      is_judged: True once the floors have been compared with sigma.
    """

    def __init__(self, name: str, feed: str, floor_in_units: bool):
        self._name = name
        self._feed = feed
        self._in_units = floor_in_units
        self.is_fed = self.is_judged = False

    def warn_before_errors(self, moments: ReturnMoments, sigma_v: np.ndarray) -> None:
        """Warns if no step has been seen; moments in NumPy, sigma_v float64 [H]."""
        if self.is_fed:
            return
        self.is_fed = True
        if not moments.count.any():
            factor = f"its floor sigma_v multiplies errors by up to {1.0 / sigma_v.min():.4g}"
            if self._in_units:
                factor = "errors are divided by their own root mean square"
            log.warning(
                "%s has not seen any step yet: %s. Before the errors, play in the environment that collect_returns "
                "wraps, in this process, or call %s",
                self._name,
                factor,
                self._feed,
            )

    def judge(self, moments: ReturnMoments, sigma_v: np.ndarray) -> None:
        """Warns of floors that do not fit, once there are 1,000 steps and a return of each head."""
        if self.is_judged or not (moments.count.min() >= STEPS_TO_JUDGE and moments.return_count.min() > 0):
            return
        self.is_judged = True
        if words := self._below_floor(moments, sigma_v):
            log.warning("%s", words)

    def _below_floor(self, moments: ReturnMoments, sigma_v: np.ndarray) -> str:
        """Names the heads whose sigma is below a floor that is the default or too small for their errors; "" for none.

        While values are about 0, errors have mean E[R] and variance sigma^2: their root mean square is the floor to
        recommend.
        """
        first_errors = np.sqrt(moments.sigma_squared + np.square(moments.reward_mean))
        unit = moments.unit if self._in_units else np.ones_like(sigma_v)
        known = unit > 0.0  # a head whose rewards are all 0 has no unit, and values of 0
        unit = np.where(known, unit, 1.0)
        floor = sigma_v * unit
        # In units the default floor is small beside all values, and may stay.
        is_default = (sigma_v == PAPERS_FLOOR) & (not self._in_units)
        below = known & (moments.sigma < floor) & (is_default | (floor < 0.5 * first_errors))
        if not below.any():
            return ""
        floors = np.where(below & (first_errors > 0), np.maximum(first_errors / unit, SMALLEST), sigma_v)
        factors = 1.0 / np.maximum(moments.sigma, floor)
        unknown = "; of heads without any reward, the spread of a new network's values"
        floor_is = "sigma_v times the unit" if self._in_units else "sigma_v"
        size = "sqrt(sigma^2 + E[R]^2) / unit" if self._in_units else "sqrt(sigma^2 + E[R]^2)"
        return (
            f"{self._name}: after {moments.count.min():.0f} steps sigma is below its floor {floor_is} for head "
            f"{', '.join(map(str, np.flatnonzero(below)))}: errors are multiplied by {_format_numbers(factors)}, head "
            "by head. Rewards that hardly vary are invisible to sigma; set sigma_v to the size of the first errors, "
            f"{size}: sigma_v={_format_numbers(floors)}{'' if first_errors[below].all() else unknown}"
        )


def _format_numbers(values: np.ndarray) -> str:
    return f"[{', '.join(f'{x:.3g}' for x in values)}]"
