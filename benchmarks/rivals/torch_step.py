"""`RecurrentMultiHeadAgent.train` in PyTorch: `nn.LSTM` where no row of a window is an episode's first, fused Adam."""

from __future__ import annotations

import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.rivals import BETA_1, BETA_2, Settings, load, serve, way

FIRST, LAST = 0, 2
Tensors = dict[str, torch.Tensor]


class ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, inputs, scale):
        ctx.scale = scale
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx, upstream):
        return upstream * ctx.scale, None


class QNetwork(nn.Module):
    """[B, T, ...] -> [T, B, H, A]; see `networks.RecurrentQNetwork`."""

    def __init__(self, weights: dict[str, np.ndarray], settings: Settings):
        super().__init__()
        self.settings = settings
        tensors = {name: torch.from_numpy(array).clone() for name, array in weights.items()}
        self.convolutions, sizes = nn.ModuleList(), settings.image
        for index, stride in enumerate(settings.strides):
            kernel = tensors[f"conv_w{index}"].permute(3, 2, 0, 1)
            padding = tuple(
                _missing(*size, stride) // 2 for size in zip(sizes, kernel.shape[2:], strict=True)
            )
            layer = nn.Conv2d(kernel.shape[1], kernel.shape[0], kernel.shape[2:], stride, padding)
            sizes = [-(-size // stride) for size in sizes]
            self.convolutions.append(_filled(layer, kernel, tensors[f"conv_b{index}"]))
        self.to(memory_format=torch.channels_last)
        self.torso, self.linear = (
            _filled(nn.Linear(*tensors[f"{name}_w"].shape), tensors[f"{name}_w"].T, tensors[f"{name}_b"])
            for name in ("torso", "linear")
        )
        inputs, units = tensors["W"].shape[0], tensors["R"].shape[0]
        self.lstm = nn.LSTM(inputs, units)
        with torch.no_grad():
            self.lstm.weight_ih_l0.copy_(tensors["W"].T)
            self.lstm.weight_hh_l0.copy_(tensors["R"].T)
            self.lstm.bias_ih_l0.copy_(tensors["b"])
            self.lstm.bias_hh_l0.zero_().requires_grad_(False)
        first = tensors["W1"].transpose(1, 2).flatten(0, 1)
        # The heads' first layers side by side.
        self.first = _filled(nn.Linear(first.shape[1], first.shape[0]), first, tensors["b1"].flatten())
        for name in ("Wv", "bv", "Wa", "ba"):
            self.register_parameter(name, nn.Parameter(tensors[name]))

    def remember(self, steps: Tensors, state: tuple) -> tuple[torch.Tensor, tuple]:
        """[B, T, ...] -> what the core puts out, [T, B, U], and the last state."""
        batch, time = steps["step_type"].shape
        observation = steps["observation"].flatten(0, 1).permute(0, 3, 1, 2)
        inputs = [
            self._features(observation).reshape(batch, time, -1),
            (steps["previous_action"][..., None] == torch.arange(self.Wa.shape[-1])).float(),
            steps["reward"].clamp(-1, 1)[..., None],
        ]
        return self._core(torch.cat(inputs, -1).transpose(0, 1), steps["step_type"].T == FIRST, state)

    def values(self, hidden: torch.Tensor) -> torch.Tensor:
        """[T, B, U] -> [T, B, H, A]"""
        many = len(self.Wv)
        shared = ScaledGradient.apply(F.relu(self.linear(hidden).flatten(0, 1)), many**-0.5)
        # One wide product first, then one per head: quicker, the two of them, than batched products.
        streams = F.relu(self.first(shared), inplace=True).chunk(2 * many, 1)
        value = torch.stack(list(map(torch.mm, streams[:many], self.Wv)), 1) + self.bv
        advantage = torch.stack(list(map(torch.mm, streams[many:], self.Wa)), 1) + self.ba
        return (value + advantage - advantage.mean(-1, keepdim=True)).unflatten(0, hidden.shape[:2])

    def _features(self, images: torch.Tensor) -> torch.Tensor:
        for index, layer in enumerate(self.convolutions):
            images = _padded(images, layer)
            if index == 0:
                images = images.float()
                if self.settings.pixels:
                    images = images / 255.0
            images = F.relu(layer(images), inplace=True)
        return F.relu(self.torso(images.permute(0, 2, 3, 1).flatten(1)), inplace=True)

    def _core(self, inputs: torch.Tensor, first: torch.Tensor, state: tuple) -> tuple[torch.Tensor, tuple]:
        if not first.any():
            hidden, state = self.lstm(inputs, tuple(part[None] for part in state))
            return hidden, tuple(part[0] for part in state)
        outputs = []
        for row, reset in zip(inputs, first, strict=True):
            state = tuple(torch.where(reset[:, None], 0.0, part)[None] for part in state)
            hidden, state = self.lstm(row[None], state)
            state = tuple(part[0] for part in state)
            outputs.append(hidden)
        return torch.cat(outputs), state


def _filled(layer: nn.Module, weight: torch.Tensor, bias: torch.Tensor) -> nn.Module:
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer


def _missing(size: int, kernel: int, stride: int) -> int:
    """Rows of padding, before and behind together, that SAME asks for."""
    return max((-(-size // stride) - 1) * stride + kernel - size, 0)


def _padded(images: torch.Tensor, layer: nn.Conv2d) -> torch.Tensor:
    """With the odd row of SAME padding, which goes behind; the convolution itself adds the even ones."""
    sizes = zip(images.shape[2:], layer.kernel_size, layer.stride, strict=True)
    below, right = (_missing(*size) % 2 for size in sizes)
    return F.pad(images, (0, right, 0, below)) if below or right else images


def n_step_targets(
    values: torch.Tensor, rewards: torch.Tensor, discounts: torch.Tensor, valid: torch.Tensor, n: int
) -> torch.Tensor:
    target = values
    for _ in range(n):
        longer = torch.where(valid[..., None], rewards + discounts * target[1:], values[:-1])
        target = torch.cat([longer, values[-1:]])
    return target[:-1]


class Learner:
    def __init__(self, settings: Settings, groups: dict[str, dict[str, np.ndarray]]):
        self.settings = settings
        self.online, self.target = (QNetwork(groups.pop(name), settings) for name in ("online", "target"))
        self.batches = {
            name: {key: torch.from_numpy(array) for key, array in batch.items()}
            for name, batch in groups.items()
        }
        trained = [weight for weight in self.online.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.Adam(trained, settings.learning_rate, (BETA_1, BETA_2), fused=True)
        self.discounts, self.clips = map(torch.tensor, (settings.discounts, settings.clips))
        self.updates = 0

    def update(self, name: str) -> tuple[torch.Tensor, torch.Tensor]:
        settings = self.settings
        self.optimizer.zero_grad()
        loss, priorities = self.loss(self.batches[name])
        loss.backward()
        self.updates += 1
        # Keras adds epsilon to the raw second moment, PyTorch to the corrected one.
        epsilon = settings.adam_epsilon / (1 - BETA_2**self.updates) ** 0.5
        self.optimizer.param_groups[0]["eps"] = epsilon
        self.optimizer.step()
        if self.updates % settings.target_update_period == 0:
            self.target.load_state_dict(self.online.state_dict())
        return loss.detach(), priorities

    def loss(self, batch: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        """Loss and priorities."""
        burn_in, length = self.settings.burn_in, self.settings.length
        state = batch["h"], batch["c"]

        def rows(start: int, end: int) -> Tensors:
            names = ("step_type", "observation", "previous_action", "reward")
            return {name: batch[name][:, start:end] for name in names}

        with torch.no_grad():
            bootstrap = self.target.values(self.target.remember(batch, state)[0][burn_in:]).amax(-1)
            _, state = self.online.remember(rows(0, burn_in), state)
        values = self.online.values(self.online.remember(rows(burn_in, burn_in + length), state)[0])

        step_type, reward, discount, action = (
            batch[name].T[burn_in:] for name in ("step_type", "reward", "discount", "previous_action")
        )
        valid = step_type[:-1] != LAST
        keep, mask = valid[:length, :, None], valid[:length].float()
        rewards = reward[1:, :, None]
        rewards = torch.where(self.clips, rewards.clamp(-1, 1), rewards)
        discounts = discount[1:, :, None] * self.discounts

        index = action[1 : length + 1].long().clamp(min=0)[:, :, None, None]
        outputs = values.gather(-1, index.expand(-1, -1, values.shape[2], -1))[..., 0]
        outputs = torch.where(keep, outputs, 0.0)
        with torch.no_grad():
            targets = n_step_targets(bootstrap, rewards, discounts, valid, self.settings.n_step)[:length]
            targets = torch.where(keep, targets, 0.0)
            expected = batch["table_size"].float() * batch["probability"]
            importance = expected.clamp(min=1e-12) ** -self.settings.importance_exponent
            importance = torch.where((expected <= 0).all(), 1.0, importance / importance.max())
        errors = torch.where(keep, targets - outputs, 0.0)
        loss = (0.5 * errors.square().sum(-1) * mask * importance).sum() / mask.numel()

        with torch.no_grad():
            each = errors.abs().mean(-1) * mask
            mean = each.sum(0) / mask.sum(0).clamp(min=1)
            priorities = self.settings.priority_eta * each.amax(0) + (1 - self.settings.priority_eta) * mean
        return loss, priorities


def main() -> None:
    torch.set_num_threads(1)
    learner = Learner(*load(sys.argv[1]))
    serve(way(learner.update, lambda result: (result[0].item(), result[1].tolist())))


if __name__ == "__main__":
    main()
