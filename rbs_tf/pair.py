"""Numbers of twice the digits of float32, for statistics that are kept on devices without float64."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Pair(NamedTuple):
    """Arrays of numbers high + low, each float32 and low at most half a last digit of high: about 47 bits (Dekker 1971).

    A pytree with the operators that `ReturnMoments` and `rbs_tf.returns.extended` are written in, in which a sum goes
    on growing where float32 would stand still. Multiplying by powers of two is exact. Where high leaves float32, low is
    no number.

    Compilers may contract a * b + c to one rounding, or divide with less than full precision. Nothing here depends on
    it: all products that are to be exact are of 12 bits times 12 bits, and quotients and roots are corrected by what
    they leave over. Compilers may not reorder sums, and XLA does not.
    """

    high: jax.Array
    low: jax.Array

    @classmethod
    def of(cls, value: Pair | jax.Array | float) -> Pair:
        """The pair of a number of float32, or of one that is a pair already."""
        if isinstance(value, Pair):
            return value
        high = jnp.asarray(value, jnp.float32)
        return cls(high, jnp.zeros_like(high))

    @property
    def shape(self) -> tuple[int, ...]:
        """That of both arrays."""
        return self.high.shape

    def __add__(self, other: Pair | jax.Array | float) -> Pair:  # type: ignore[override]  # tuples are joined
        other = Pair.of(other)
        high, rest = _sum(self.high, other.high)
        low, lowest = _sum(self.low, other.low)
        high, low = _sum_by_size(high, rest + low)
        return Pair(*_sum_by_size(high, low + lowest))

    def __neg__(self) -> Pair:
        return Pair(-self.high, -self.low)

    def __sub__(self, other: Pair | jax.Array | float) -> Pair:
        return self + -Pair.of(other)

    def __mul__(self, other: Pair | jax.Array | float) -> Pair:  # type: ignore[override]  # tuples are repeated
        other = Pair.of(other)
        high, low = _product(self.high, other.high)
        return Pair(*_sum_by_size(high, low + (self.high * other.low + self.low * other.high)))

    def __truediv__(self, other: Pair | jax.Array | float) -> Pair:
        other = Pair.of(other)
        quotient = self.high / other.high
        rest = self - other * quotient
        return Pair(*_sum_by_size(quotient, rest.high / other.high))

    def __pow__(self, exponent: float) -> Pair:
        """The square root, which is all that moments need: the exponent is 0.5."""
        if exponent != 0.5:
            raise ValueError(f"the only power of a Pair is 0.5; got {exponent}")
        root = jnp.sqrt(self.high)
        rest = self - Pair.of(root) * root
        correction = rest.high / jnp.where(root > 0.0, root + root, 1.0)
        return Pair(*_sum_by_size(root, jnp.where(root > 0.0, correction, 0.0)))

    def __abs__(self) -> Pair:
        sign = jnp.where(self.high < 0.0, -1.0, 1.0).astype(jnp.float32)
        return Pair(sign * self.high, sign * self.low)


def _sum(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """a + b in float32, and exactly what that has lost (Knuth)."""
    total = a + b
    of_b = total - a
    return total, (a - (total - of_b)) + (b - of_b)


def _sum_by_size(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The same where a is at least as large as b."""
    total = a + b
    return total, b - (total - a)


def _product(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """About a b in float32, and what that has lost, from four products without any rounding."""
    (a, a_rest), (b, b_rest) = _halves(a), _halves(b)
    middle, lowest = _sum(a * b_rest, a_rest * b)
    high, low = _sum_by_size(a * b, middle)
    return high, low + (lowest + a_rest * b_rest)


def _halves(a: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The first 12 bits of a number, and the others."""
    first = jax.lax.reduce_precision(a, exponent_bits=8, mantissa_bits=11)
    return first, a - first
