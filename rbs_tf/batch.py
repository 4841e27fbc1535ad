"""sigma of a sampled batch for PyTorch, JAX and NumPy, in what their arrays share."""

from __future__ import annotations

from typing import Any

from rbs_tf.moments import ReturnMoments


def sigma_of_batch(xp: Any, rewards: Any, discounts: Any, mask: Any) -> Any:
    """sigma over all real steps of a batch of sequences, [H]; 0 without any. See `rbs_tf.batch_sigma`.

    Returns are cut where a sequence ends and at padding. It computes in the dtype of the rewards and checks no values:
    NaN and infinity come out again.

    Args:
      xp: `torch`, `jax.numpy` or `numpy`.
      rewards, discounts: [T, B, H], arrays of xp, of one floating dtype, without gradients.
      mask: [T, B], 0 for padding, whatever that holds.

    Raises:
      ValueError: other shapes.
    """
    shapes = [tuple(array.shape) for array in (rewards, discounts, mask)]
    if len(shapes[0]) != 3 or shapes[0] != shapes[1] or shapes[2] != shapes[0][:2]:
        raise ValueError(
            "batch_sigma takes rewards [T, B, H], discounts [T, B, H] and a mask [T, B]; got "
            f"{shapes[0]}, {shapes[1]} and {shapes[2]}"
        )
    keep = (mask != 0)[..., None]
    ones = xp.where(keep, xp.ones_like(rewards), 0.0)
    rewards, discounts = xp.where(keep, rewards, 0.0), xp.where(keep, discounts, 0.0)
    count = ones.sum((0, 1))
    divisor = xp.where(count > 0.0, count, 1.0)

    def mean(values: Any) -> Any:
        return values.sum((0, 1)) / divisor

    def mean_and_m2(values: Any) -> tuple[Any, Any]:
        deviations = ones * (values - mean(values))
        return mean(values), (deviations * deviations).sum((0, 1))

    returns = _returns(xp, rewards, discounts)
    return ReturnMoments(
        count, *mean_and_m2(rewards), *mean_and_m2(discounts), count, mean(returns), mean(returns * returns)
    ).sigma


def _returns(xp: Any, rewards: Any, discounts: Any) -> Any:
    """G_t = R_t + gamma_t G_{t+1} over the first axis, 0 behind its end; all [T, ...].

    By doubling, each step of which joins stretches of `rows` rows to stretches of twice as many.
    """
    sums, products, rows = rewards, discounts, 1
    while rows < rewards.shape[0]:
        nothing = xp.zeros_like(sums[:rows])
        sums = sums + products * xp.concatenate([sums[rows:], nothing])
        products = products * xp.concatenate([products[rows:], nothing])
        rows *= 2
    return sums
