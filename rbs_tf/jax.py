"""Return-based scaling as pure functions of JAX, for agents whose whole loop is compiled.

    state = rbs_tf.jax.init(num_envs)
    state = rbs_tf.jax.observe(state, rewards, discounts, ended)      # every step, in `lax.scan`
    errors = rbs_tf.jax.scale_errors(state, targets - values)          # in the loss

All but `init` and `moments` runs inside `jit`, `vmap`, `scan`, `shard_map` and `pmap`. The state is a pytree, which
pickle and Orbax save. With `jax_enable_x64` it is float64. Without, it is pairs of float32 (`rbs_tf.pair`), and rewards
may be of 1e-10 to 1e10.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from rbs_tf.advice import PAPERS_FLOOR
from rbs_tf.moments import ReturnMoments, compute_batch_moments, wrong_columns
from rbs_tf.pair import FIELDS, Pair
from rbs_tf.returns import LARGEST, LONGEST_EPISODE, extend_episodes
from rbs_tf.units import EXPONENT, HALF, needs_powers_of_two, ratio_and_unit

# The largest reward or discount, and the largest sum over an episode: those of 100,000 long episodes at once fit.
_LIMITS_OF_PAIRS = (1e10, 1e33)
_LIMITS_OF_FLOAT64 = (LARGEST, 1e300)


class State(NamedTuple):
    """Statistics of H heads, and the open episodes of N environments.

    Over devices, the statistics are the same on each, and the environments are divided: `State(P(), P("devices"))`.

    Attributes:
      moments: all-time `ReturnMoments`, [H] each: a `Pair`, or float64.
      episodes: six of [N, H] each, see `rbs_tf.returns.extend_episodes`.
    """

    moments: ReturnMoments
    episodes: tuple[Any, ...]


def init(num_envs: int, num_heads: int = 1) -> State:
    """The state before the first step of N environments, for H heads or tasks."""

    def zeros(*shape: int) -> Any:
        high, low = jnp.zeros(shape), jnp.zeros(shape)  # a buffer each: they may be donated
        return Pair(high, low) if high.dtype == jnp.float32 else high

    episodes = tuple(zeros(num_envs, num_heads) for _ in range(6))
    return State(ReturnMoments(*(zeros(num_heads) for _ in FIELDS)), episodes)


def observe(
    state: State,
    rewards: ArrayLike,
    discounts: ArrayLike,
    ended: ArrayLike,
    *,
    head: ArrayLike | None = None,
    axis_name: Hashable | None = None,
    max_report_steps: int = LONGEST_EPISODE,
) -> State:
    """Takes in a step of every environment: rewards and discounts at once, returns when their episode has ended.

    Per head, a step that is NaN, infinite or larger than 1e10 (1e140 in float64), or that takes an episode's sums out
    of float32, is left out; it still ends its episode. So statistics are always finite.

    Args:
      rewards: [N] or [N, H].
      discounts: [N] or [N, H]: gamma, and 0 at a terminal step.
      ended: bool [N], whether this is the episode's last step, terminal or cut.
      head: int [N], the head, or task, that each environment feeds; without, all.
      axis_name: of `pmap`, `shard_map` or `vmap`, or several: the step's statistics are those of all devices.
      max_report_steps: returns of longer episodes are cut every so many steps.

    Raises:
      ValueError: shapes that do not broadcast to [N, H], complex numbers.
    """
    _check_real(rewards=rewards, discounts=discounts)
    pairs = isinstance(state.moments.count, Pair)
    number = Pair.wrap if pairs else jnp.asarray
    largest, largest_sum = _LIMITS_OF_PAIRS if pairs else _LIMITS_OF_FLOAT64
    num_envs, num_heads = state.episodes[0].shape
    given = [jax.lax.stop_gradient(jnp.asarray(x, float)) for x in (rewards, discounts)]
    given = [jnp.broadcast_to(x[:, None] if x.ndim == 1 else x, (num_envs, num_heads)) for x in given]
    keep = (jnp.abs(given[0]) <= largest) & (jnp.abs(given[1]) <= largest)
    if head is not None:
        keep &= jnp.asarray(head)[:, None] == jnp.arange(num_heads)
    reward, discount = (number(jnp.where(keep, x, 0.0)) for x in given)
    after = extend_episodes(state.episodes, reward, discount)
    keep &= functools.reduce(jnp.maximum, map(jnp.abs, jax.tree.leaves(after))) <= largest_sum
    after = _where(keep, after, state.episodes)
    closed = jnp.asarray(ended, bool)[:, None] | (_to_array(after[0]) >= max_report_steps)

    nothing, one = number(jnp.zeros_like(given[0])), number(jnp.ones_like(given[0]))
    of_steps = [_where(keep, x, nothing) for x in (one, reward, discount)]
    of_returns = [_where(closed, x, nothing) for x in (after[0], *after[4:])]
    count, *steps, return_count, returns, squares = _totals([*of_steps, *of_returns], axis_name)
    # Centred sums come second, as squares of large means would cancel.
    divisor, return_divisor = (_where(_to_array(x) > 0.0, x, number(1.0)) for x in (count, return_count))
    means = [x / divisor for x in steps]
    deviations = [x - mean for x, mean in zip((reward, discount), means, strict=True)]
    reward_m2, discount_m2 = _totals([_where(keep, x * x, nothing) for x in deviations], axis_name)
    returns = returns / return_divisor
    squares = squares / return_divisor
    seen = ReturnMoments(count, means[0], reward_m2, means[1], discount_m2, return_count, returns, squares)
    return State(ReturnMoments.merge(state.moments, seen), _where(closed, (nothing,) * 6, after))


def merge_state(state: State, other: State | ReturnMoments) -> State:
    """The state with what another has seen, or a NumPy `ReturnMoments`: of another host, or of recorded episodes.

    Open episodes stay those of `state`. Raises ValueError for another number of heads, and for moments of NumPy that
    float32 does not hold.
    """
    moments = other.moments if isinstance(other, State) else other
    if isinstance(moments.count, np.ndarray):
        number = Pair.split_float64 if isinstance(state.moments.count, Pair) else jnp.asarray
        moments = ReturnMoments(*map(number, moments))
    return state._replace(moments=ReturnMoments.merge(state.moments, moments))


def moments(state: State) -> ReturnMoments:
    """The statistics in NumPy, float64 [H] each, for `rbs_tf.numpy`, files and other hosts. Not inside `jit`."""
    return ReturnMoments(*(x.float64() if isinstance(x, Pair) else np.asarray(x) for x in state.moments))


def sigma(state: State) -> jax.Array:
    """sqrt(V[R] + V[gamma] E[G^2]), float32 (or 64) [H], without a floor; 0 before the first step."""
    return ReturnMoments(*map(_to_array, state.moments)).sigma


def unit(state: State) -> jax.Array:
    """The size of values, sqrt(max(E[G^2], E[R^2])), float32 (or 64) [H]; 0 before the first reward that is not 0."""
    return ReturnMoments(*map(_to_array, state.moments)).unit


def scale(
    state: State, sigma_v: ArrayLike = PAPERS_FLOOR, batch_sigma: Any = None, floor_in_units: bool = False
) -> jax.Array:
    """What errors are divided by, max(sigma, sigma_v, batch_sigma), float32 (or 64) [H]; see `rbs_tf.ReturnScaling`.

    Args:
      sigma_v: positive floor, a number or [H]; 1e-2.
      batch_sigma: [H], of the batch that the errors come from, or None. NaN does not count.
      floor_in_units: the floor is sigma_v `unit`, as outputs in units of the return need it; 1 where that is 0.
    """
    found = _divisor(state, sigma_v, batch_sigma, floor_in_units)
    return jnp.where(found > 0.0, found, 1.0)


def scale_errors(
    state: State,
    errors: ArrayLike,
    sigma_v: ArrayLike = PAPERS_FLOOR,
    batch_sigma: Any = None,
    floor_in_units: bool = False,
    *,
    head: Any = None,
) -> jax.Array:
    """TD errors divided by `scale`, or by their root mean square before it is known; both without gradient.

    Args:
      errors: [..., H], or without the last axis when there is one head or `head` is given.
      sigma_v: see `scale`.
      batch_sigma: see `scale`.
      floor_in_units: see `scale`.
      head: the head, or task, of each error: whole numbers that broadcast to the errors' shape; not checked, as
        indices are not in JAX.

    Returns:
      The shape of the errors, float64 for float64 errors, float32 for all others.

    Raises:
      ValueError: errors whose last axis is not the heads', complex numbers.
    """
    errors = jnp.asarray(errors)
    _check_real(errors=errors)
    errors = errors.astype(jnp.float64 if errors.dtype == jnp.float64 else jnp.float32)
    found = _divisor(state, sigma_v, batch_sigma, floor_in_units)
    if head is None and found.size > 1 and errors.shape[-1:] != found.shape:
        raise wrong_columns("errors", errors.shape, found.size)
    axes = None if head is not None or found.size == 1 else tuple(range(errors.ndim - 1))
    of_errors = jnp.sqrt(jnp.mean(jnp.square(jax.lax.stop_gradient(errors)), axes))
    divisor = jnp.where(found > 0.0, found, jnp.where(of_errors > 0.0, of_errors, 1.0))
    if head is not None:
        divisor = divisor[jnp.asarray(head)]
    elif found.size == 1:
        divisor = divisor[0]
    return errors / divisor.astype(errors.dtype)


def batch_sigma(rewards: ArrayLike, discounts: ArrayLike, mask: ArrayLike) -> jax.Array:
    """sigma of a sampled batch, float32 (or 64) [H], a floor for its errors; see `rbs_tf.batch_sigma`.

    Args:
      rewards: [T, B, H].
      discounts: [T, B, H].
      mask: [T, B], 1 for real steps, 0 for padding.

    Raises:
      ValueError: other shapes, complex numbers.
    """
    _check_real(rewards=rewards, discounts=discounts)
    rewards, discounts = (jax.lax.stop_gradient(jnp.asarray(x, float)) for x in (rewards, discounts))
    return compute_batch_moments(jnp, rewards, discounts, jnp.asarray(mask)).sigma


def to_unit(layer: Any, old: jax.Array, new: jax.Array, *, axis: int = -1) -> tuple[Any, jax.Array]:
    """A last layer in another unit, such that no value changes: values are unit times outputs, head by head.

    Where a parameter or `old` is of bfloat16, all are multiplied by powers of two only, which rounds none of them. The
    unit becomes the power of two between 0.67 and 1.33 times `new`. If `old` was no power of two, as where the layer
    was cast from float32, it becomes a power of two times `old`, between 0.5 and 2 times `new`. Bring copies in float32
    to that unit, not to `new`: `to_unit(ema, ema_unit, unit)`.

    Args:
      layer: its parameters, of the online or the target network, a pytree. All have the same number of
        outputs, equally many for each head; the first head's come first.
      old: [H], the unit that the layer is in; 0 at first, from where the new one is taken as it is.
      new: [H], `unit(state)`; NaN and infinity are left out.
      axis: of the outputs; that of a parameter [n], a bias, is its only one. Weights [out, in], as Equinox has them,
        take 0.

    Returns:
      The layer, and the unit that it is in now: `old` where the unit changes by less than 1e-4 of itself, or by a
      factor of 1e30 or more; see `rbs_tf.unit_ratio`.

    Raises:
      ValueError: units of different numbers of heads; parameters of different numbers of outputs, or of outputs that
        are not as many of each head; parameters of float16; complex units.
    """
    _check_real(old=old, new=new)
    leaves = jax.tree.leaves(layer)
    if old.shape != jnp.shape(new):
        raise ValueError(
            f"old and new must be units of the same heads, [H]; got {old.shape} and {jnp.shape(new)}"
        )
    outputs = {x.shape[axis if x.ndim > 1 else 0] for x in leaves}
    if len(outputs) != 1 or min(outputs) % old.size:
        raise ValueError(
            "all parameters of the layer must have the same number of outputs, as many for each of "
            f"{old.size} heads; got shapes {[x.shape for x in leaves]} with outputs on axis {axis}. Weights "
            "[out, in] take axis=0"
        )
    powers = any([needs_powers_of_two(x.dtype.name) for x in (old, *leaves)])
    single = _power_of_two if powers else jnp.float32
    new = _power_of_two(new).astype(old.dtype) if powers else new
    ratio, after = ratio_and_unit(old, new, jnp.where, single, lambda x: x.astype(old.dtype))
    ratio = jnp.repeat(ratio, min(outputs) // ratio.size)

    def multiply(x: jax.Array) -> jax.Array:
        shape = [1] * x.ndim
        shape[axis if x.ndim > 1 else 0] = -1
        return x * ratio.reshape(shape).astype(x.dtype)

    return jax.tree.map(multiply, layer), after


def _check_real(**named: Any) -> None:
    """Raises ValueError for complex numbers, of which a cast would keep the real part."""
    for name, values in named.items():
        if "complex" in (dtype := str(getattr(values, "dtype", ""))):
            raise ValueError(f"{name} must be real numbers; got {dtype}")


def _power_of_two(values: jax.Array) -> jax.Array:
    """float32, rounded as `rbs_tf.units.HALF` says."""
    bits = jax.lax.bitcast_convert_type(jnp.float32(values), jnp.int32)
    return jax.lax.bitcast_convert_type((bits + HALF) & EXPONENT, jnp.float32)


def _to_array(x: Any) -> jax.Array:
    return x.high + x.low if isinstance(x, Pair) else x


def _where(condition: jax.Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(functools.partial(jnp.where, condition), yes, no)


def _totals(columns: list[Any], axis_name: Hashable | None) -> list[Any]:
    """[N, H] each -> [H] each, over the environments of all devices."""

    def sum_axis(stacked: Any, axis: int) -> Any:
        zeros = jax.tree.map(lambda x: jnp.zeros((), x.dtype), stacked)
        return jax.lax.reduce(stacked, zeros, operator.add, (axis,))

    sums = sum_axis(jax.tree.map(lambda *x: jnp.stack(x), *columns), 1)
    if axis_name is not None:
        # psum would round sums of pairs. It only brings each device's to all others, where they are added alike.
        mine = (jnp.arange(jax.lax.psum(1, axis_name)) == jax.lax.axis_index(axis_name))[:, None, None]
        sums = sum_axis(jax.tree.map(lambda x: jax.lax.psum(jnp.where(mine, x, 0.0), axis_name), sums), 0)
    return [jax.tree.map(operator.itemgetter(row), sums) for row in range(len(columns))]


def _divisor(state: State, sigma_v: Any, batch_sigma: Any, floor_in_units: bool) -> jax.Array:
    """`scale`, but 0 where nothing has been seen in units of the return."""
    _check_real(sigma_v=sigma_v, batch_sigma=batch_sigma)
    found = jnp.maximum(sigma(state), unit(state) * sigma_v if floor_in_units else jnp.asarray(sigma_v))
    if batch_sigma is not None:
        found = jnp.fmax(found, jnp.reshape(batch_sigma, found.shape))
    return jax.lax.stop_gradient(found)
