"""Return-based scaling in NumPy."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rbs_tf.advice import PAPERS_FLOOR, Advice
from rbs_tf.moments import ReturnMoments, check_heads, wrong_columns
from rbs_tf.returns import real_numbers

_FLOAT32 = np.finfo(np.float32)
# What scales the tensors of other libraries.
_ELSEWHERE = {"torch": "torch.ReturnScaling", "jax": "jax", "jaxlib": "jax", "tensorflow": "ReturnScaling"}


class ReturnScaling:
    """Divides TD errors by max(sigma, sigma_v, batch_sigma): `rbs_tf.ReturnScaling` for NumPy.

        scaling = rbs_tf.numpy.ReturnScaling()
        env = rbs_tf.collect_returns(env, scaling, gamma=0.99)
        loss = np.mean(0.5 * np.square(scaling(targets - values)))

    `rbs_tf.torch` and `rbs_tf.jax` are for errors that carry gradients. Pass `scaling()` to a jitted function as an
    argument: a number that it closes over is frozen. It logs what the layer logs. Several threads may feed it.

    Args:
      num_heads: H, the number of value functions or tasks, each with its statistics.
      sigma_v: positive floor of the scale, a number or one per head, see `rbs_tf.ReturnScaling`; may be assigned later.
      floor_in_units: the floor is sigma_v `unit`, as outputs in units of the return need it (`rbs_tf.unit_ratio`).

    Attributes:
      moments: the `ReturnMoments` of everything so far.
      home: its process and lock.
      advice: the warnings that it logs.
    """

    def __init__(
        self, num_heads: int = 1, sigma_v: ArrayLike = PAPERS_FLOOR, *, floor_in_units: bool = False
    ):
        self.num_heads, self.floor_in_units = num_heads, floor_in_units
        self.sigma_v = sigma_v  # type: ignore[assignment]  # it takes a number, too
        self.moments = ReturnMoments.empty(num_heads)
        self.home = Home()
        self.advice = Advice("ReturnScaling", "merge_state(moments)", floor_in_units)

    @property
    def sigma_v(self) -> np.ndarray:
        """The floor, float64 [H]."""
        return self._sigma_v

    @sigma_v.setter
    def sigma_v(self, sigma_v: np.ndarray) -> None:
        self._sigma_v = np.broadcast_to(check_floor(self.num_heads, sigma_v), self.num_heads)

    @property
    def sigma(self) -> np.ndarray:
        """sqrt(V[R] + V[gamma] E[G^2]), float64 [H], without a floor; 0 before the first step."""
        return self.moments.sigma

    @property
    def mean_return(self) -> np.ndarray:
        """E[G], float64 [H]: where a value network's bias may start (section 5)."""
        return self.moments.mean_return

    @property
    def unit(self) -> np.ndarray:
        """The size of values, sqrt(max(E[G^2], E[R^2])), float64 [H]; 0 before the first reward that is not 0."""
        return self.moments.unit

    def __call__(
        self,
        td_errors: ArrayLike | None = None,
        batch_sigma: ArrayLike | None = None,
        *,
        head: ArrayLike | None = None,
    ) -> np.ndarray:
        """td_errors / max(sigma, sigma_v, batch_sigma), as the layer; without errors the divisor.

        Args:
          td_errors: [..., H], or without the last axis when there is one head or `head` is given.
          batch_sigma: [H], `ReturnMoments.from_batch(...).sigma` of the batch that the errors come from. NaN does not
            count.
          head: the head, or task, of each error: whole numbers that broadcast to the errors' shape.

        Returns:
          The shape of `td_errors`, float64 for float64 errors, float32 for all others. Without errors float32 [H].

        Raises:
          ValueError: errors whose last axis is not the heads', a head out of range, complex numbers.
          TypeError: tensors of another library, whose gradients would be lost.
        """
        self.advice.warn_before_errors(self.moments, self._sigma_v)
        self.advice.judge(self.moments, self._sigma_v)
        divisor = np.maximum(self.sigma, self._sigma_v * self.unit if self.floor_in_units else self._sigma_v)
        if batch_sigma is not None:
            divisor = np.fmax(divisor, np.reshape(real_numbers("batch_sigma", batch_sigma), self.num_heads))
        if td_errors is None:
            # It is 0 in units of the return, before the first reward that is not 0.
            return np.where(divisor > 0.0, divisor, 1.0).astype(np.float32)
        if (library := type(td_errors).__module__.partition(".")[0]) in _ELSEWHERE:
            raise TypeError(
                f"rbs_tf.numpy.ReturnScaling would lose the gradient of errors of {library}: divide by scaling(), or "
                f"take rbs_tf.{_ELSEWHERE[library]}"
            )
        errors = real_numbers("td_errors", td_errors)
        errors = errors.astype(np.float64 if errors.dtype == np.float64 else np.float32)
        if head is None and errors.shape[-1:] != (self.num_heads,) and self.num_heads > 1:
            raise wrong_columns("td_errors", errors.shape, self.num_heads)
        if not divisor.all():
            axes = None if head is not None or self.num_heads == 1 else tuple(range(errors.ndim - 1))
            of_errors = np.sqrt(np.mean(np.square(errors, dtype=np.float64), axis=axes))
            divisor = np.where(divisor > 0.0, divisor, np.where(of_errors > 0.0, of_errors, 1.0))
        if head is not None:
            divisor = divisor[check_heads(head, self.num_heads)]
        elif self.num_heads == 1:
            divisor = divisor[0]
        return errors / np.asarray(divisor, errors.dtype)

    def merge_state(self, moments: ReturnMoments) -> None:
        """Adds statistics.

        Raises:
          ValueError: another number of heads, or a sum that would not be finite.
          RuntimeError: this is a copy, in another process than the one that the scale belongs to.
        """
        self.home.check()
        with self.home.lock:
            self.moments = ReturnMoments.merge(self.moments, moments)
        self.advice.is_fed = True

    def reset_state(self) -> None:
        """Forgets all statistics; `sigma_v` stays."""
        with self.home.lock:
            self.moments = ReturnMoments.empty(self.num_heads)

    def state_dict(self) -> dict[str, Any]:
        """The statistics and the floor as lists of numbers, which `torch.save`, JSON and pickle keep exactly."""
        return {
            "moments": self.moments.to_array().tolist(),
            "sigma_v": self._sigma_v.tolist(),
            "floor_in_units": self.floor_in_units,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned, or the same as arrays or tensors.

        Raises ValueError for a state of another number of heads or another `floor_in_units`, or with a part missing;
        nothing has changed then.
        """
        if missing := {"moments", "sigma_v"} - {*state}:
            raise ValueError(
                f"state must be what ReturnScaling.state_dict returns; it lacks {', '.join(sorted(missing))}"
            )
        moments = ReturnMoments.from_array(np.asarray(state["moments"]))
        if moments.num_heads != self.num_heads:
            words = f"the state is of {moments.num_heads} heads, this ReturnScaling of {self.num_heads}"
            raise ValueError(f"{words}: load it into ReturnScaling(num_heads={moments.num_heads})")
        in_units = state.get("floor_in_units", self.floor_in_units)  # older states have none
        self.check_floor_in_units(bool(in_units))
        self.sigma_v = np.asarray(state["sigma_v"])
        with self.home.lock:
            self.moments = moments

    def check_floor_in_units(self, saved: bool) -> None:
        """Raises ValueError for the state of a scale with another `floor_in_units`."""
        if saved != self.floor_in_units:
            raise ValueError(
                f"the state is of floor_in_units={saved}, and this is of floor_in_units={self.floor_in_units}: its "
                f"sigma_v would be in another unit. Create it with floor_in_units={saved}"
            )


class Home:
    """The process that statistics belong to, and the lock that its threads hold while they change them.

    A copy has a new lock. A copy that multiprocessing hands to a new process refuses changes there, until it is copied
    once more in that process.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()  # `ScaledLoss.observe` holds it round the layer's changes
        # Set while a new process unpickles its arguments. What is read from a file belongs to its reader.
        handed_over = getattr(multiprocessing.current_process(), "_inheriting", False)
        self._process = None if handed_over else os.getpid()

    def __reduce__(self) -> tuple[type[Home], tuple[()]]:
        return Home, ()

    @property
    def is_here(self) -> bool:
        """Whether this is its process."""
        return self._process == os.getpid()

    def check(self) -> None:
        """Raises RuntimeError in another process: what is fed to a copy there is lost."""
        if not self.is_here:
            raise RuntimeError(
                f"process {os.getpid()} feeds or changes a copy of a scaling from another process, which would not "
                "see it. Wrap the vector environment, collect_returns(AsyncVectorEnv(...), scaling, gamma), not those "
                "in it, or send ReturnMoments to the process of the scaling. To keep statistics in this process as "
                "well, take copy.deepcopy(scaling)"
            )


def check_floor(num_heads: int, sigma_v: ArrayLike) -> np.ndarray:
    """sigma_v as float64, [] or [H]. Raises ValueError for a wrong number of heads, too."""
    if not isinstance(num_heads, int | np.integer) or num_heads < 1:
        raise ValueError(f"num_heads must be a whole number of at least 1, got {num_heads!r}")
    floor = real_numbers("sigma_v", sigma_v).astype(np.float64)
    # Errors are divided in float32, which must hold the floor.
    fits = (floor >= _FLOAT32.tiny) & (floor <= _FLOAT32.max)
    if floor.shape not in ((), (num_heads,)) or not fits.all():
        raise ValueError(
            f"sigma_v must be a positive number that float32 can hold, or {num_heads} of them, one per head; got "
            f"{floor.tolist()}. The paper's is 1e-2"
        )
    return floor
