"""`ReturnMoments` as a pytree of JAX, and numbers with twice the digits of float32 to keep in it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rbs_tf.moments import ReturnMoments


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Pair:
    """Arrays of numbers high + low, each float32, low at most half a last digit of high: 47 bits (Dekker 1971).

    A pytree with the operators that `ReturnMoments.merge` and `rbs_tf.returns.extend_episodes` are written in. A sum of
    pairs goes on growing where one of float32 stands still. Powers of two are exact factors. Where high leaves float32,
    low may be NaN.

    Compilers may contract a * b + c to one rounding, or divide with less than full precision. Nothing here depends on
    it: products whose rounding would matter are of 12 bits times 12 bits, and quotients are corrected by what they
    leave over. Compilers may not reorder sums, and XLA does not.
    """

    high: jax.Array
    low: jax.Array

    @classmethod
    def wrap(cls, value: Pair | jax.Array | float) -> Pair:
        """From float32; a pair is returned as it is."""
        if isinstance(value, Pair):
            return value
        high = jnp.asarray(value, jnp.float32)
        return cls(high, jnp.zeros_like(high))

    @classmethod
    def split_float64(cls, values: np.ndarray) -> Pair:
        """From NumPy. Raises ValueError for a number that is too large for float32."""
        with np.errstate(over="ignore"):
            high = values.astype(np.float32)
        if not np.isfinite(high).all():
            raise ValueError(f"float32 does not hold {values}")
        return cls(jnp.asarray(high), jnp.asarray((values - high).astype(np.float32)))

    def float64(self) -> np.ndarray:
        """The numbers in NumPy."""
        return np.asarray(self.high, np.float64) + np.asarray(self.low, np.float64)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of both arrays."""
        return self.high.shape

    def __add__(self, other: Pair | float) -> Pair:
        """Right to 46 bits of the larger summand; differences of close numbers lose digits."""
        other = Pair.wrap(other)
        high, rest = _sum(self.high, other.high)
        return Pair(*_sum_by_size(high, rest + (self.low + other.low)))

    def __neg__(self) -> Pair:
        return Pair(-self.high, -self.low)

    def __sub__(self, other: Pair | float) -> Pair:
        return self + -Pair.wrap(other)

    def __mul__(self, other: Pair) -> Pair:
        high, low = _product(self.high, other.high)
        return Pair(*_sum_by_size(high, low + (self.high * other.low + self.low * other.high)))

    def __truediv__(self, other: Pair | float) -> Pair:
        if not isinstance(other, Pair):  # a power of two
            return Pair(self.high / other, self.low / other)
        quotient = self.high / other.high
        high, low = _product(quotient, other.high)
        rest = (self.high - high) - low + (self.low - quotient * other.low)
        return Pair(*_sum_by_size(quotient, rest / other.high))

    def __abs__(self) -> Pair:
        sign = jnp.where(self.high < 0.0, -1.0, 1.0).astype(jnp.float32)
        return Pair(sign * self.high, sign * self.low)


def _sum(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """a + b in float32, and its rounding error, exactly (Knuth)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _sum_by_size(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same where a is at least as large as b."""
    total = a + b
    return total, b - (total - a)


def _product(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """About a b in float32, and its rounding error, from four exact products."""
    (a, a_rest), (b, b_rest) = _halves(a), _halves(b)
    high, low = _sum_by_size(a * b, a * b_rest)
    high, lower = _sum_by_size(high, a_rest * b)
    return high, low + lower + a_rest * b_rest


def _halves(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The first 12 bits of a number, and the others."""
    first = jax.lax.reduce_precision(a, exponent_bits=8, mantissa_bits=11)
    return first, a - first


FIELDS = tuple(field.name for field in dataclasses.fields(ReturnMoments))


def _unflatten(_: None, children: Any) -> ReturnMoments:
    moments = object.__new__(ReturnMoments)  # unchecked: leaves may be anything that stands for an array
    moments.__dict__.update(zip(FIELDS, children, strict=True))
    return moments


_KEYS = [jax.tree_util.GetAttrKey(name) for name in FIELDS]
jax.tree_util.register_pytree_with_keys(
    ReturnMoments, lambda x: ([*zip(_KEYS, x, strict=True)], None), _unflatten, lambda x: ([*x], None)
)
