"""Outputs in units of the return: what the layers of Keras, PyTorch and JAX, and `scalings.return_out`, share.

A network puts out q, and values are Q = unit q, head by head, where unit = sqrt(max(E[G^2], E[R^2])) comes from the
same statistics as sigma. When the unit changes, last layers are rewritten so that no value does, as in Pop-Art (van
Hasselt et al. 2016). Learning is then the same, action by action, for rewards times any number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rbs_tf.returns import real_numbers

# Smaller changes of units wait until they have added up: rewriting float32 weights rounds them every time. Weights of
# float32 do not hold larger ones.
SMALLEST_CHANGE, LARGEST_CHANGE = 1e-4, 1e30


def unit_ratio(old: ArrayLike, new: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """What last layers are multiplied with, so that no value changes when the unit goes from `old` to `new`.

    Args:
      old: the unit that the layers are in, [H]; 0 where there has been none, and all values are 0.
      new: the unit wanted, [H]; 0 where no reward but 0 has been seen.

    Returns:
      The ratio, float32 [H], and the unit after it, float64 [H]. The ratio is 1 where the unit changes by less than
      1e-4 of itself; from `old` 0, where the unit is taken over as it is; and to `new` 0 or by a factor of 1e30 or
      more, where it stays. The unit is what the rounded ratio leads to, old / ratio.

    Raises:
      ValueError: a unit that is negative, NaN or infinite; different numbers of heads.
    """
    units = [np.atleast_1d(real_numbers("a unit", values)).astype(np.float64) for values in (old, new)]
    fits = all(np.all((x >= 0) & (x < np.inf)) and x.ndim == 1 for x in units)
    if not fits or units[0].shape != units[1].shape:
        raise ValueError(
            f"units must be finite numbers of at least 0, [H] of H heads each; got {old!r} and {new!r}. A layer of "
            "several heads says so with heads=H"
        )
    return ratio_and_unit(
        units[0], units[1], np.where, lambda x: x.astype(np.float32), lambda x: x.astype(np.float64)
    )


def ratio_and_unit(
    old: Any, new: Any, where: Callable[..., Any], single: Callable[[Any], Any], double: Callable[[Any], Any]
) -> tuple[Any, Any]:
    """`unit_ratio` of arrays [H] of any library, unchecked: its `where`, and what makes its float32 and its float64.

    Where `needs_powers_of_two`, `single` also rounds to the nearest power of two. A new unit that is NaN or infinite is
    left out.
    """
    known = old > 0.0
    fits = (new > 0.0) & (new < np.inf)
    changes = known & fits & (abs(new - old) > SMALLEST_CHANGE * old)
    changes = changes & (new / LARGEST_CHANGE < old) & (old / LARGEST_CHANGE < new)
    ratio = single(where(changes, old / where(changes, new, 1.0), 1.0))
    return ratio, where(known, old / double(ratio), where(fits, new, 0.0))


# A positive float32 whose bits, as an int32, are (bits + HALF) & EXPONENT is the power of two next to it: what lies
# between 0.75 and 1.5 times a power of two becomes that.
HALF, EXPONENT = 0x00400000, 0x7F800000


def needs_powers_of_two(dtype: str) -> bool:
    """Whether weights of this dtype are multiplied by powers of two only, as bfloat16 rounds all other products.

    Raises ValueError for float16 and smaller ones, in which such products of small weights are not exact either.
    """
    if not dtype.endswith(("float64", "float32", "bfloat16")):
        raise ValueError(
            f"a last layer in units of the return cannot have weights of {dtype.rpartition('.')[2]}, which would "
            "change its values with every unit: keep its weights in float32, as mixed precision does, or in bfloat16"
        )
    return dtype.endswith("bfloat16")


def check_outputs(outputs: int, heads: int) -> None:
    """Raises ValueError unless each of the heads has as many of a last layer's outputs, and at least one."""
    if heads < 1 or outputs % heads:
        raise ValueError(f"outputs must be as many for each head; got {outputs} outputs and {heads} heads")
