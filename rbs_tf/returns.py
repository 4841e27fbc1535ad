"""Discounted returns of recorded steps, in float64 NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rbs_tf.errors import describe

LONGEST_EPISODE = 27_000  # steps: half an hour of Atari, its usual time-out
LARGEST = 1e140  # larger numbers count as infinite: sums of their squares leave float64


@np.errstate(under="ignore")  # what is too small for float64 adds nothing
def discounted_returns(rewards: ArrayLike, discounts: ArrayLike) -> np.ndarray:
    """G_t = R_t + gamma_t G_{t+1}, where G after the last step is 0 (section 2: the return of each step).

    Args:
      rewards: [T] or [T, H], one row per step; several episodes may follow one another.
      discounts: of the same shape; `discounts[t]` multiplies what follows step t: gamma inside an episode, 0
        on its terminal step. The last step's discount has nothing to multiply.

    Returns:
      float64, in the shape of `rewards`.

    Raises:
      ValueError: other shapes; a reward or discount that is NaN or infinite.
    """
    sums, products = finite_columns(rewards=rewards, discounts=discounts)  # copies
    shape = np.shape(rewards)
    if (np.abs(products) > 1.0).any():  # products of many leave float64, even where nothing follows
        for t in range(len(sums) - 2, -1, -1):
            sums[t] += products[t] * sums[t + 1]
        return sums.reshape(shape)
    # By doubling: each round joins stretches of `rows` rows to stretches of twice as many, log2(T) operations on whole
    # arrays instead of a loop over T.
    rows = 1
    while rows < len(sums):
        sums[:-rows] += products[:-rows] * sums[rows:]
        products[:-rows] *= products[rows:]
        rows *= 2
    return sums.reshape(shape)


def compute_returns(
    rewards: Any, discounts: Any, zeros_like: Callable[[Any], Any], concatenate: Callable[[list], Any]
) -> Any:
    """`discounted_returns` of arrays [T, ...] of any library, in operations that compile; T may be unknown to a graph.

    `zeros_like` and `concatenate`, over the first axis, are the library's.
    """
    num_steps = 2**30 if rewards.shape[0] is None else rewards.shape[0]
    sums, products = rewards, discounts
    rows = 1
    while rows < num_steps:  # each round joins stretches of `rows` rows to stretches of twice as many
        nothing = zeros_like(sums[:rows])
        sums = sums + products * concatenate([sums[rows:], nothing])
        products = products * concatenate([products[rows:], nothing])
        rows *= 2
    return sums


def extend_episodes(episodes: Any, rewards: Any, discounts: Any) -> tuple[Any, ...]:
    """The moments of all returns of open episodes, one more step later, without a memory of their steps.

    G_t gains w_t R, where w_t is the product of all discounts since step t. Sums over t follow from sums over t:
    sum G_t' = sum G_t + R sum w_t, and sum G_t'^2 = sum G_t^2 + 2 R sum w_t G_t + R^2 sum w_t^2.

    Args:
      episodes: six arrays or tensors [...] of any library: steps, sums of w, w^2, w G, G and G^2 over the steps of
        each; zeros at its start. Returns the same six, with the step.
      rewards, discounts: [...] of the step: R, and gamma or 0 at a terminal one.
    """
    steps, w, w2, wg, g, g2 = episodes
    # The step itself joins with w = 1 and G = 0, then its reward reaches all.
    w, w2 = w + 1.0, w2 + 1.0
    g2 = g2 + rewards * (wg + wg + rewards * w2)
    wg = wg + rewards * w2
    g = g + rewards * w
    return steps + 1.0, discounts * w, discounts * discounts * w2, discounts * wg, g, g2


def real_numbers(name: str, values: ArrayLike) -> np.ndarray:
    """The values as an array of numbers, in their own dtype. Raises ValueError for dates, text and complex numbers."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be real numbers that float64 holds: {describe(error)}") from error
    # Other packages add kinds of half precision.
    if array.dtype.kind not in "biuf" and array.dtype.name not in ("bfloat16", "float8_e4m3fn"):
        raise ValueError(f"{name} must be real numbers; got {array.dtype}")
    return array


def finite_columns(**named: ArrayLike) -> list[np.ndarray]:
    """The arrays, all [T] or all [T, H], as float64 [T, H]; [T] becomes one column.

    Raises:
      ValueError: naming the array, and for a NaN or an infinity its step, head and value.
    """
    arrays = {name: real_numbers(name, values).astype(np.float64) for name, values in named.items()}
    shapes = {name: values.shape for name, values in arrays.items()}
    if len(set(shapes.values())) > 1 or any(len(shape) not in (1, 2) for shape in shapes.values()):
        words = f"{' and '.join(shapes)} must all be [T] or all be [T, H], one row per step"
        raise ValueError(f"{words}; got {', '.join(map(str, shapes.values()))}")
    columns = {name: values[:, None] if values.ndim == 1 else values for name, values in arrays.items()}
    for name, values in columns.items():
        finite = np.isfinite(values)
        if not finite.all():
            step, head = np.argwhere(~finite)[0]
            raise ValueError(
                f"{name} must be finite; got {values[step, head]} at step {step}, head {head}. "
                "Leave the step out, or repair what produced it"
            )
    return list(columns.values())
