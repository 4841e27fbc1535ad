"""docs/adopting.md's programs for PyTorch and JAX run as they stand, learn, and need no TensorFlow.

`make test-adopting` runs this file, in an environment of its own; what it needs of that, it takes from the programs.
"""

import re
import sys
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest

import rbs_tf
from tests.test_adopting import BLOCK, ELSEWHERE, ROOT

for package in ("stable_baselines3", "jax", "optax"):
    pytest.importorskip(package, reason="make test-adopting runs these in .venv-rivals")

SHARED = ("", "What both loops below share")
TIMES = 1024.0  # a power of two: multiplying by it rounds nothing


def programs():
    """Sub-heading -> the code of its blocks; "" is what stands before the first one."""
    page = (ROOT / "docs/adopting.md").read_text()
    section = re.search(rf"^## {ELSEWHERE}\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)[1]
    parts = [part.partition("\n") for part in re.split("^### ", section, flags=re.MULTILINE)]
    return {
        title.strip(): "\n".join(re.findall(BLOCK, text, re.MULTILINE | re.DOTALL))
        for title, _, text in parts
    }


PROGRAMS = programs()


def run(title):
    """Runs a program after what is shared; returns its names, and how often it asked for the scale."""
    names, asked = {"__name__": "adopting"}, Counter()
    for part in SHARED:
        exec(compile(PROGRAMS[part], f"docs/adopting.md, {part}", "exec"), names)
    original = rbs_tf.Scale.__call__

    def counted(scale):
        asked["times"] += 1
        return original(scale)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rbs_tf.Scale, "__call__", counted)
        exec(compile(PROGRAMS[title], f"docs/adopting.md, {title}", "exec"), names)
    return SimpleNamespace(**names, asked=asked["times"])


@pytest.fixture(scope="module")
def stable_baselines():
    return run("Stable-Baselines3: DQN")


@pytest.fixture(scope="module")
def pytorch():
    return run("PyTorch")


@pytest.fixture(scope="module")
def jax():
    return run("JAX and optax")


def test_no_program_is_left_out():
    assert [*PROGRAMS] == ["", "Stable-Baselines3: DQN", SHARED[1], "PyTorch", "JAX and optax"]


def test_all_of_them_learn_without_tensorflow(stable_baselines, pytorch, jax):
    """A policy that plays at random balances for 22 steps."""
    assert stable_baselines.mean_return > 60
    assert np.mean(pytorch.returns[-20:]) > 60
    assert np.mean(jax.returns[-20:]) > 60
    assert "tensorflow" not in sys.modules


def test_the_scale_is_read_anew_for_every_update(stable_baselines, pytorch, jax):
    assert stable_baselines.asked == stable_baselines.model._n_updates > 9000
    assert pytorch.asked == pytorch.update + 1 > 9000
    assert jax.asked == jax.update + 1 > 9000


def test_stable_baselines_keeps_the_statistics_with_the_model(stable_baselines, tmp_path):
    stable_baselines.model.save(tmp_path / "model.zip")
    loaded = stable_baselines.ScaledDQN.load(tmp_path / "model.zip")
    np.testing.assert_array_equal([*loaded.scale.moments], [*stable_baselines.scale.moments])
    assert loaded.scale() == stable_baselines.scale() > 1.0


def random_batch(heads):
    rng = np.random.default_rng(0)
    discounts = rng.uniform(0.5, 1.0, (8, *heads)).astype(np.float32)
    rewards = rng.normal(size=8).astype(np.float32)
    observations = rng.normal(size=(2, 8, 4)).astype(np.float32)
    return observations[0], rng.integers(2, size=8), rewards, discounts, observations[1]


def test_pytorchs_loss_is_free_of_the_rewards_scale(pytorch):
    torch, scale = pytorch.torch, pytorch.scaled.scale
    found, kept = [], scale.state_dict()
    scale.reset_state()
    for times in (1.0, TIMES):
        batch = [torch.from_numpy(array) for array in random_batch(())]
        batch[2] *= times
        with torch.no_grad():
            for network in (pytorch.online, pytorch.target):
                network[-1].weight *= times
                network[-1].bias *= times
        scale.sigma_v = 3.0 * times
        loss = pytorch.td_loss(*batch)
        found.append((loss.item(), torch.autograd.grad(loss, pytorch.online[0].weight)[0]))
    scale.load_state_dict(kept)
    (loss, gradient), (larger_loss, larger_gradient) = found
    assert loss == larger_loss > 0.0
    assert torch.equal(gradient, larger_gradient) and gradient.abs().max() > 0


def test_pytorchs_state_dict_holds_the_statistics(pytorch, tmp_path):
    torch, path = pytorch.torch, tmp_path / "agent.pt"
    torch.save(pytorch.state, path)
    restored = torch.nn.ModuleList([pytorch.online, pytorch.ScaledErrors()])
    restored.load_state_dict(torch.load(path, weights_only=True))
    assert restored[1].scale.state_dict() == pytorch.scaled.scale.state_dict()
    assert (
        restored[1](torch.ones(3)).tolist() == pytorch.scaled(torch.ones(3)).tolist()
        and restored[1].scale() > 1.0
    )


def test_jaxs_loss_is_free_of_the_scale_of_every_head(jax):
    """One head's values and scale times 1024: the same loss and gradient. (Rewards are 0: all heads have the same.)"""
    observations, actions, rewards, discounts, following = random_batch((2,))

    def grown(layers, times):  # outputs are [H, A], flat
        *torso, (weights, biases) = layers
        return [*torso, (weights * times.repeat(2), biases * times.repeat(2))]

    def loss_and_gradient(times, rewards):
        layers = grown(jax.online, times), grown(jax.target, times)
        batch = observations, actions, rewards, discounts, following
        return jax.jax.value_and_grad(jax.td_loss)(*layers, 3.0 * times, *batch)

    all_heads = (np.float32([1.0, 1.0]), rewards), (np.float32([TIMES, TIMES]), TIMES * rewards)
    one_head = (np.float32([1.0, 1.0]), 0.0 * rewards), (np.float32([TIMES, 1.0]), 0.0 * rewards)
    for plain, larger in (all_heads, one_head):
        (loss, gradient), (larger_loss, larger_gradient) = (
            loss_and_gradient(*plain),
            loss_and_gradient(*larger),
        )
        assert loss == larger_loss > 0.0
        np.testing.assert_array_equal(gradient[0][0], larger_gradient[0][0])
        assert np.abs(gradient[0][0]).max() > 0
