"""The scale of errors in NumPy, for PyTorch, JAX and others; and what the Keras layer shares with it."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rbs_tf.moments import ReturnMoments
from rbs_tf.returns import real_numbers

PAPERS_FLOOR = 1e-2
STEPS_TO_JUDGE = 1000  # after which a sigma below its floor is no matter of too few steps
_FLOAT32 = np.finfo(np.float32)

log = logging.getLogger(__name__)


class Scale:
    """max(sigma, sigma_v) per head of all that has been merged into it: `ReturnScaling` without TensorFlow.

        scale = rbs_tf.Scale()
        env = rbs_tf.CollectReturns(env, scale, gamma=0.99)
        loss = (0.5 * ((targets - values) / torch.from_numpy(scale())) ** 2).mean()

    Keep it on the host and hand the loss what it returns, as an argument: a jitted function keeps a number that it
    closes over. It logs what the layer logs. Several threads may feed one `Scale`.

    Args:
      num_heads: H, the value functions with statistics of their own.
      sigma_v: positive floor of the scale, a number or one per head, see `ReturnScaling`; may be assigned later.

    Attributes:
      moments: the `ReturnMoments` of everything so far.

    Raises:
      ValueError: what the layer refuses.
    """

    def __init__(self, num_heads: int = 1, sigma_v: ArrayLike = PAPERS_FLOOR):
        self.num_heads = num_heads
        self.sigma_v = sigma_v  # type: ignore[assignment]  # it takes a number, too
        self.moments = ReturnMoments.empty(num_heads)
        self._home = Home()
        self._fed_or_warned = self._judged = False

    @property
    def sigma_v(self) -> np.ndarray:
        """The floor, float64 [H]."""
        return self._sigma_v

    @sigma_v.setter
    def sigma_v(self, sigma_v: np.ndarray) -> None:
        self._sigma_v = np.broadcast_to(checked_floor(self.num_heads, sigma_v), self.num_heads)

    @property
    def sigma(self) -> np.ndarray:
        """sqrt(V[R] + V[gamma] E[G^2]), float64 [H], without a floor; 0 before the first step."""
        return self.moments.sigma

    @property
    def mean_return(self) -> np.ndarray:
        """E[G], float64 [H]: where a value network's bias may start (section 5)."""
        return self.moments.mean_return

    def __call__(self) -> np.ndarray:
        """What TD errors [..., H] are divided by now: float32 [H]."""
        if not self._fed_or_warned and not self.moments.count.any():
            log.warning("%s", words_if_empty("Scale", self._sigma_v, "merge_state(moments)"))
            self._fed_or_warned = True
        if not self._judged and can_be_judged(self.moments):
            self._judged = True
            if words := words_if_below_floor("Scale", self.moments, self._sigma_v):
                log.warning("%s", words)
        return np.maximum(self.sigma, self._sigma_v).astype(np.float32)

    def merge_state(self, moments: ReturnMoments) -> None:
        """Takes in what has been seen: `CollectReturns` calls it.

        Raises:
          ValueError: moments of another number of heads, or so large that their sum would not be finite.
        """
        with self._home.lock:
            self.moments = ReturnMoments.merge(self.moments, moments)
        self._fed_or_warned = True

    def reset_state(self) -> None:
        """Forgets all statistics; `sigma_v` stays."""
        with self._home.lock:
            self.moments = ReturnMoments.empty(self.num_heads)

    def state_dict(self) -> dict[str, list]:
        """All of it as lists of numbers, which `torch.save`, JSON and pickle keep to the last bit."""
        return {"moments": self.moments.to_array().tolist(), "sigma_v": self._sigma_v.tolist()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state_dict` returned; its values may be arrays or tensors, too.

        Raises:
          ValueError: a state of another number of heads, or one that is not whole; nothing has changed then.
        """
        if missing := {"moments", "sigma_v"} - {*state}:
            lacks = ", ".join(sorted(missing))
            raise ValueError(f"state must be what Scale.state_dict returns; it lacks {lacks}")
        moments = ReturnMoments.from_array(np.asarray(state["moments"]))
        if moments.num_heads != self.num_heads:
            words = f"the state is of {moments.num_heads} heads, this Scale of {self.num_heads}"
            raise ValueError(f"{words}: load it into Scale(num_heads={moments.num_heads})")
        self.sigma_v = np.asarray(state["sigma_v"])
        with self._home.lock:
            self.moments = moments


class Home:
    """The process that statistics were made in, and the lock of its threads round each change of them.

    A copy has a lock of its own. A copy that multiprocessing hands to a new process is at home in none.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()  # `ScaledLoss.observe` holds it round the layer's changes
        # Set while a new process unpickles its arguments; what is read from a file is at home where it is read.
        handed_over = getattr(multiprocessing.current_process(), "_inheriting", False)
        self._process = None if handed_over else os.getpid()

    def __reduce__(self) -> tuple[type[Home], tuple[()]]:
        return Home, ()

    @property
    def is_here(self) -> bool:
        return self._process == os.getpid()


def checked_floor(num_heads: int, sigma_v: ArrayLike) -> np.ndarray:
    """sigma_v as float64, [] or [H]. Raises ValueError for a wrong number of heads, too."""
    if not isinstance(num_heads, int | np.integer) or isinstance(num_heads, bool) or num_heads < 1:
        raise ValueError(f"num_heads must be a whole number of at least 1, got {num_heads!r}")
    given = real_numbers("sigma_v", sigma_v)
    floor = given.astype(np.float64)
    # Errors are divided in float32, which must hold the floor. Nobody means True.
    fits = (floor >= _FLOAT32.tiny) & (floor <= _FLOAT32.max) & (given.dtype != bool)
    if floor.shape not in ((), (num_heads,)) or not fits.all():
        raise ValueError(
            f"sigma_v must be a positive number that float32 can hold, or {num_heads} of them, one per head; got "
            f"{' '.join(repr(sigma_v).split())}. The paper's is 1e-2"
        )
    return floor


def words_if_empty(name: str, sigma_v: np.ndarray, feed: str) -> str:
    """What to say when errors come before any step; `feed` is the call that brings steps."""
    return (
        f"{name} has not seen any step yet: its floor sigma_v multiplies errors by up to {1.0 / sigma_v.min():.4g}. "
        f"Call {feed}, before the errors; CollectReturns does, in the process that scales"
    )


def can_be_judged(moments: ReturnMoments) -> bool:
    """Says whether sigma has had time to leave its floor. Without returns it lacks its second term."""
    return bool(moments.count.min() >= STEPS_TO_JUDGE and moments.return_count.min() > 0)


def words_if_below_floor(name: str, moments: ReturnMoments, sigma_v: np.ndarray) -> str:
    """Names the heads whose scale is a floor that nobody has measured, or is too small for their errors; "" for none.

    Where values are still about 0, errors have mean E[R] and variance sigma^2. Their root mean square is a floor of
    the errors' own size, for heads that sigma is blind to.
    """
    first_errors = np.sqrt(moments.sigma_squared + np.square(moments.reward_mean))
    below = (moments.sigma < sigma_v) & ((sigma_v == PAPERS_FLOOR) | (sigma_v < 0.5 * first_errors))
    if not below.any():
        return ""
    floors = np.where(below & (first_errors > 0), np.maximum(first_errors, _FLOAT32.tiny), sigma_v)
    factors = 1.0 / np.maximum(moments.sigma, sigma_v)
    unknown = "; of heads without any reward, the spread of a new network's values"
    unknown = "" if first_errors[below].all() else unknown
    return (
        f"{name}: after {moments.count.min():.0f} steps sigma is below its floor sigma_v for head "
        f"{', '.join(map(str, np.flatnonzero(below)))}: errors are multiplied by {_numbers(factors)}, head by head. "
        "Rewards that hardly vary are invisible to sigma; set the floor to the size of the first errors, sqrt(sigma^2 "
        f"+ E[R]^2): sigma_v={_numbers(floors)}{unknown}"
    )


def _numbers(values: np.ndarray) -> str:
    return f"[{', '.join(f'{x:.3g}' for x in values)}]"
