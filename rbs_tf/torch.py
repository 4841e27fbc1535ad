"""Return-based scaling for PyTorch: scaled errors, and last layers whose outputs are in units of the return.

env = rbs_tf.collect_returns(env, scaling := rbs_tf.torch.ReturnScaling(), gamma=0.99)
loss = 0.5 * scaling(targets - values).square().mean()    # was: (targets - values)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import ArrayLike
from torch import nn

from rbs_tf.advice import PAPERS_FLOOR, Advice
from rbs_tf.moments import ReturnMoments, check_heads, compute_batch_moments, wrong_columns
from rbs_tf.numpy import ReturnScaling as HostScaling
from rbs_tf.units import EXPONENT, HALF, check_outputs, needs_powers_of_two, ratio_and_unit


class _Float64Buffers(nn.Module):
    """A module whose buffers stay float64 under casts, and on the host where the device has no float64."""

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> _Float64Buffers:
        own, self._buffers = self._buffers, {}  # type: ignore[has-type]
        try:
            super()._apply(fn, recurse)
        finally:
            self._buffers = own
        for name, values in own.items():
            made = fn(torch.empty(0, device=values.device))
            own[name] = values.to(_choose_float64_device(made.device))
            if made.is_shared():  # `share_memory`
                own[name].share_memory_()
        return self


class ReturnScaling(_Float64Buffers):
    """Divides TD errors by max(sigma, sigma_v, batch_sigma): `rbs_tf.ReturnScaling` for PyTorch.

    Feed it with `collect_returns` or `merge_state`. The one of `rbs_tf.numpy` keeps the statistics on the host and logs
    its warnings; buffers follow it: `state_dict` holds the statistics, and a compiled loss reads the current ones
    without recompiling. Casts of the module (`half`, `bfloat16`, `to`) leave them float64.

    In memory shared with other processes, only the one that made it changes it. `copy.deepcopy` there makes one of its
    own.

    With `torch.distributed`, each process feeds its environments, and all call `sync` before an update: until then
    `merge_state` only gathers. After it, all have the same statistics, bit by bit.

    Args:
      num_heads: H, the number of value functions or tasks, each with its statistics.
      sigma_v: positive floor of the scale, a number or one per head. Assign to change it.
      floor_in_units: the floor is sigma_v `unit`, for networks whose last layer is a `UnitLinear`. While a head's unit
        is 0, its errors are divided by their root mean square, or by 1 if all are 0.

    Attributes:
      statistics: float64 [8, H] buffer, the rows of `ReturnMoments.to_array`; `sigma_v`: float64 [H] buffer.
    """

    def __init__(self, num_heads: int = 1, sigma_v: ArrayLike = PAPERS_FLOOR, floor_in_units: bool = False):
        super().__init__()
        self._scale = HostScaling(num_heads, sigma_v, floor_in_units=floor_in_units)
        feed = "merge_state(moments), and in a process group of several sync() after it"
        self._scale.advice = Advice("ReturnScaling", feed, floor_in_units)
        self._pending = ReturnMoments.empty(num_heads)
        self.num_heads, self.floor_in_units = num_heads, floor_in_units
        self.register_buffer("statistics", _zeros(8, num_heads))
        self.register_buffer("sigma_v", _zeros(num_heads))
        self.register_buffer("in_units", _zeros() + floor_in_units)  # for `state_dict` only
        self.register_buffer("_floored", _zeros(num_heads), persistent=False)  # max(sigma, floor)
        self._write_buffers()
        self.register_load_state_dict_post_hook(ReturnScaling._restore)

    def forward(
        self, errors: torch.Tensor, batch_sigma: torch.Tensor | None = None, head: Any = None
    ) -> torch.Tensor:
        """errors / max(sigma, sigma_v, batch_sigma): float64 for float64 errors, float32 for all others.

        Args:
          errors: [..., H]; without the last axis, too, when there is one head or `head` is given.
          batch_sigma: [H], the function `batch_sigma` of the errors' batch. NaN does not count. No gradient flows into
            it.
          head: whole numbers, in the errors' shape or one: the head, or task, of each error.

        Raises:
          ValueError: errors of another shape, complex numbers; on the CPU, a head out of range, unless compiled or in
            `torch.vmap`.
        """
        if not isinstance(errors, torch.Tensor):
            raise TypeError(f"errors must be a torch.Tensor; got {type(errors).__name__}, see rbs_tf.numpy")
        _check_real(errors=errors, batch_sigma=batch_sigma)
        several = self.num_heads > 1 and head is None
        if several and errors.shape[-1:] != (self.num_heads,):
            raise wrong_columns("errors", tuple(errors.shape), self.num_heads)
        if not torch.compiler.is_compiling():
            if self.home.is_here and not self._scale.moments.count.any():
                self._scale()  # warns once
            if head is not None and _is_readable(torch.as_tensor(head)):
                check_heads(np.asarray(head), self.num_heads)
        errors = _to_single(errors)
        divisor = _copy_like(errors, self._floored)
        if batch_sigma is not None:
            divisor = torch.fmax(divisor, _copy_like(errors, batch_sigma.detach()).reshape(self.num_heads))
        if self.floor_in_units:
            squares = _to_float64(errors).square()
            of_errors = (squares.reshape(-1, self.num_heads).mean(0) if several else squares.mean()).sqrt()
            of_errors = _copy_like(errors, torch.where(of_errors > 0.0, of_errors, 1.0))
            divisor = torch.where(divisor > 0.0, divisor, of_errors)
        if head is not None:
            divisor = divisor[torch.as_tensor(head, device=errors.device).long()]
        elif self.num_heads == 1:
            divisor = divisor[0]
        return errors / divisor

    def extra_repr(self) -> str:
        """Steps seen, sigma and unit, for `print`."""
        steps, sigma, unit = (x.tolist() for x in (self.moments.count, self.sigma, self.unit))
        return f"steps={steps}, sigma={sigma}, unit={unit}"

    def merge_state(self, moments: ReturnMoments) -> None:
        """Adds statistics, in a process group of several at the next `sync`; raises what NumPy's raises."""
        self.home.check()
        with self.home.lock:
            if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
                self._pending = ReturnMoments.merge(self._pending, moments)
            else:
                self._scale.merge_state(moments)
                self._write_buffers()

    def sync(self, group: dist.ProcessGroup | None = None) -> None:
        """Adds what all processes have been fed since the last `sync`, in the order of their ranks.

        Every process of the group calls it, before its update and before saving. Without processes it does nothing.
        """
        if not (dist.is_available() and dist.is_initialized()):
            return
        self._check_buffers()
        with self.home.lock:
            self._restore()  # DDP broadcasts buffers, as when one process has loaded a checkpoint
            rows = torch.from_numpy(self._pending.to_array())
            rows = rows.to("cuda" if dist.get_backend(group) == "nccl" else "cpu")
            gathered = [torch.empty_like(rows) for _ in range(dist.get_world_size(group))]
            dist.all_gather(gathered, rows, group=group)
            self._pending = ReturnMoments.empty(self.num_heads)
            for of_rank in gathered:
                self._scale.merge_state(ReturnMoments.from_array(of_rank.cpu().numpy()))
            self._write_buffers()

    def reset_state(self) -> None:
        """Forgets all statistics, also those that wait for `sync`; `sigma_v` stays."""
        self._check_buffers()
        with self.home.lock:
            self._pending = ReturnMoments.empty(self.num_heads)
            self._scale.reset_state()
            self._write_buffers()

    moments = property(lambda self: ReturnMoments(*self.statistics.clone()), doc="Of float64 [H] tensors.")
    sigma = property(lambda self: self.moments.sigma, doc="float64 [H], without a floor; 0 at first.")
    unit = property(lambda self: self.moments.unit, doc="float64 [H], the size of values; 0 at first.")
    mean_return = property(lambda self: self.moments.mean_return, doc="float64 [H], E[G].")
    home = property(lambda self: self._scale.home, doc="What `collect_returns` asks for.")

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("statistics", "sigma_v") and name in self._buffers:
            self._check_buffers()
            self._buffers[name].copy_(torch.as_tensor(value, dtype=torch.float64, device="cpu"))
            self._restore()
        else:
            super().__setattr__(name, value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """For pickle and copy: what is copied in another process than its own has newer statistics in its buffers."""
        super().__setstate__(state)
        self._read_buffers()

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *others: Any) -> None:
        self._check_buffers()
        in_units = state_dict.setdefault(f"{prefix}in_units", self.in_units)  # older states have none
        self._scale.check_floor_in_units(bool(in_units))
        super()._load_from_state_dict(state_dict, prefix, *others)

    def _write_buffers(self) -> None:
        """Copies the scale on the host into the buffers."""
        scale = self._scale
        floor = scale.sigma_v * scale.unit if self.floor_in_units else scale.sigma_v
        self.statistics.copy_(torch.from_numpy(scale.moments.to_array()))
        self.sigma_v.copy_(torch.from_numpy(scale.sigma_v.copy()))
        self._floored.copy_(torch.from_numpy(np.maximum(scale.sigma, floor)))
        if scale.moments.count.any():
            scale()  # logs once which floor fits

    def _restore(self, _: Any = None) -> None:
        """Copies the buffers, once a state has been loaded, into the scale on the host."""
        with self.home.lock:
            try:
                self._read_buffers()
            finally:
                self._write_buffers()

    def _read_buffers(self) -> None:
        state = {"moments": self.statistics.cpu().numpy(), "sigma_v": self.sigma_v.cpu().numpy()}
        self._scale.load_state_dict(state)

    def _check_buffers(self) -> None:
        """Raises RuntimeError before a change in another process that shares the buffers."""
        if self.statistics.is_shared():
            self.home.check()


class UnitLinear(_Float64Buffers, nn.Linear):
    """A `Linear` layer whose outputs are values: unit (W x + b), head by head.

        scaling = ReturnScaling(floor_in_units=True)
        last = UnitLinear(64, num_actions)     # of the network, and another one of its target network
        for layer in (last, target_last):      # before every update
            layer.to_unit_(scaling.unit)

    W learns numbers of about 1 for rewards of any size. All values are 0 before the first unit. Bring the
    online and the target network to the same unit before every update: copies between them, whole or soft, are right
    then. Shared weights, weight normalisation and weight decay on this layer are not supported.

    Args:
      in_features: of `torch.nn.Linear`, as are `options`.
      out_features: the number of outputs, equally many for each head; the first head's come first.
      heads: H, the number of value functions; `unit`, a float64 [H] buffer, has one unit for each.
    """

    def __init__(self, in_features: int, out_features: int, heads: int = 1, **options: Any):
        super().__init__(in_features, out_features, **options)
        check_outputs(out_features, heads)
        self.heads = heads
        self.register_buffer("unit", _zeros(heads).to(_choose_float64_device(self.weight.device)))

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """[..., in] -> values [..., out], float64 in a layer of float64 and float32 in all others."""
        outputs = _to_single(super().forward(input))
        return outputs * _copy_like(outputs, self.unit).repeat_interleave(self.out_features // self.heads)

    @torch.no_grad()
    def to_unit_(self, unit: ArrayLike | torch.Tensor) -> None:
        """Goes to another unit, [H], without changing a value; see `rbs_tf.unit_ratio`. Adam's slots stay.

        Weights of bfloat16 are multiplied by powers of two only, which rounds none of them. Their unit becomes the
        power of two between 0.67 and 1.33 times what is asked for. If it was no power of two, as where the layer was
        cast from float32, it becomes a power of two times what it was, between 0.5 and 2 times what is asked for. Bring
        copies in float32 to `unit` of this layer.

        Raises:
          ValueError: another number of units, complex ones; weights of float16; a unit that is negative, NaN or
            infinite, where the layer is on the CPU and not compiled; elsewhere it is left out.
        """
        _check_real(unit=torch.as_tensor(unit))
        new = torch.as_tensor(unit, dtype=torch.float64, device=self.unit.device).reshape(-1)
        if len(new) != self.heads:
            raise ValueError(f"unit must be [{self.heads}], one number per head; got {list(new.shape)}")
        if _is_readable(new) and not (torch.isfinite(new) & (new >= 0.0)).all():
            raise ValueError(f"unit must be finite numbers of at least 0; got {new.tolist()}")
        single = torch.Tensor.float
        if needs_powers_of_two(str(self.weight.dtype)):
            single = _power_of_two
            new = _power_of_two(new).double()
        ratio, after = ratio_and_unit(self.unit, new, torch.where, single, torch.Tensor.double)
        rows = ratio.repeat_interleave(self.out_features // self.heads).to(self.weight.device)
        for weight in self.parameters():
            weight.mul_(rows[:, None] if weight.ndim == 2 else rows)
        self.unit.copy_(after)
        if not torch.compiler.is_compiling():
            torch.clear_autocast_cache()  # which would keep the old weights until its block ends


def batch_sigma(rewards: torch.Tensor, discounts: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """sigma of a sampled batch (section 3.2), for `ReturnScaling` with the batch's errors; see `rbs_tf.batch_sigma`.

    Args:
      rewards: [T, B, H].
      discounts: [T, B, H].
      mask: [T, B], 1 for real steps, 0 for padding, which may hold anything.

    Returns:
      float64 [H], without gradient; 0 for a batch without real steps, NaN where a real step is.

    Raises:
      ValueError: other shapes, complex numbers.
    """
    _check_real(rewards=rewards, discounts=discounts)
    rewards, discounts = _to_float64(rewards), _to_float64(discounts)
    return compute_batch_moments(torch, rewards, discounts, mask.to(rewards.device)).sigma


def _check_real(**named: torch.Tensor | None) -> None:
    """Raises ValueError for complex numbers, of which a cast would keep the real part."""
    for name, values in named.items():
        if values is not None and values.is_complex():
            raise ValueError(f"{name} must be real numbers; got {values.dtype}")


def _zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float64, device="cpu")


def _choose_float64_device(device: torch.device) -> torch.device:
    """The device, or the CPU for devices without float64 or without values."""
    return torch.device("cpu") if device.type in ("mps", "meta") else device


def _to_float64(values: torch.Tensor) -> torch.Tensor:
    """float64, without gradient."""
    return values.detach().to(_choose_float64_device(values.device)).double()


def _power_of_two(values: torch.Tensor) -> torch.Tensor:
    """float32, rounded as `rbs_tf.units.HALF` says."""
    return ((values.float().view(torch.int32) + HALF) & EXPONENT).view(torch.float32)


def _is_readable(values: torch.Tensor) -> bool:
    """Whether Python may look at the values: on the host, neither while compiling nor in `torch.vmap`."""
    if torch.compiler.is_compiling() or values.device.type != "cpu":
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(values)


def _to_single(values: torch.Tensor) -> torch.Tensor:
    return values if values.dtype == torch.float64 else values.float()


def _copy_like(values: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """The numbers in the values' dtype and device: a copy, as they may change before the backward pass."""
    return numbers.to(values.dtype, copy=True).to(values.device)
