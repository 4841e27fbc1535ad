"""rbs_tf.torch: what it shares with the layer, what PyTorch does to modules, and that agents with it learn."""

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import rbs_tf
from tests import pages
from tests.elsewhere import other_process
from tests.elsewhere.one_of_two import episodes_of
from tests.elsewhere.vectors import BY_NAME, TOLERANCE, changing_units
from tests.pages import ROOT

torch = pytest.importorskip("torch", reason="make test-adopting runs this in .venv-rivals")
nn = torch.nn
ReturnScaling, UnitLinear = rbs_tf.torch.ReturnScaling, rbs_tf.torch.UnitLinear

EPISODE = rbs_tf.ReturnMoments.from_episode([[1.0, -1.0], [3.0, 100.0]], [[0.9, 0.9], [0.0, 0.0]])
LARGER = rbs_tf.ReturnMoments.from_episode([[1e3, 1e3], [3.0, 100.0]], [[0.9, 0.9], [0.0, 0.0]])


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def scaled():
    module = ReturnScaling(2)
    module.merge_state(EPISODE)
    return module


def tensors(*arrays):
    return [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]


# What it computes.


@pytest.mark.parametrize("name", BY_NAME)
def test_it_computes_what_the_layer_does(name):
    vector = BY_NAME[name]
    scaled = ReturnScaling(vector.num_heads, vector.sigma_v, floor_in_units=vector.in_units)
    for episode in vector.episodes:
        scaled.merge_state(rbs_tf.ReturnMoments.from_episode(*episode))
    errors, tasks, own = tensors(vector.errors, vector.tasks, vector.batch_sigma)
    found = {
        "sigma": scaled.sigma,
        "unit": scaled.unit,
        "batch_sigma": rbs_tf.torch.batch_sigma(*tensors(*vector.batch)),
        "scaled": scaled(errors),
        "scaled_with_batch": scaled(errors, own),
        "scaled_with_part": scaled(errors, torch.from_numpy(vector.part_of_batch_sigma)),
        "scaled_by_task": scaled(errors[:, 0], head=tasks),
    }
    for key, values in found.items():
        np.testing.assert_allclose(values, getattr(vector, key), rtol=TOLERANCE, err_msg=key)
        assert values.dtype == torch.float64


def test_what_it_shows(scaled):
    assert repr(ReturnScaling()) == "ReturnScaling(steps=[0.0], sigma=[0.0], unit=[0.0])"
    assert repr(scaled).startswith("ReturnScaling(steps=[2.0, 2.0], sigma=[")


def test_dtypes(scaled):
    for given, expected in ((torch.bfloat16, torch.float32), (torch.int32, torch.float32)):
        assert scaled(torch.ones(3, 2, dtype=given)).dtype == expected
    last = UnitLinear(3, 2, dtype=torch.bfloat16)
    last.to_unit_(1e30)
    assert last(torch.ones(3, dtype=torch.bfloat16)).dtype == torch.float32


def test_gradients_flow_through_errors_only(scaled):
    errors, own = torch.ones(3, 2, requires_grad=True), torch.full([2], 1e3, requires_grad=True)
    scaled(errors, own).sum().backward()
    assert own.grad is None
    torch.testing.assert_close(errors.grad, torch.full([3, 2], 1e-3))


def test_updates_between_forward_and_backward():
    scaled, errors = ReturnScaling(), torch.ones(3, requires_grad=True)
    loss = scaled(errors).sum()
    scaled.merge_state(rbs_tf.ReturnMoments.from_episode([1.0, 9.0], [0.9, 0.0]))
    loss.backward()
    assert errors.grad.tolist() == pytest.approx([100.0] * 3)


def test_what_does_not_fit_is_refused(scaled):
    with pytest.raises(TypeError, match="must be a torch.Tensor; got ndarray, see rbs_tf.numpy"):
        scaled(np.ones(2))
    for errors in (torch.ones(3), torch.ones(()), torch.ones(2, 3)):
        with pytest.raises(ValueError, match=r"\[..., 2\]"):
            scaled(errors)
    for head in (2, torch.tensor([0, 1, -1]), 0.5):
        with pytest.raises(ValueError, match="head must be whole numbers from 0 to 1"):
            scaled(torch.ones(3), head=head)
    with pytest.raises(ValueError, match="equally many heads"):
        scaled.merge_state(rbs_tf.ReturnMoments.empty(3))
    with pytest.raises(ValueError, match=r"rewards \[T, B, H\]"):
        rbs_tf.torch.batch_sigma(torch.ones(3, 2), torch.ones(3, 2), torch.ones(3, 2))
    batch, complex_numbers = torch.ones(3, 2, 1), torch.ones(3, 2, 1, dtype=torch.complex64)
    for name, call in (
        ("errors", lambda: scaled(torch.ones(2, dtype=torch.complex64))),
        ("batch_sigma", lambda: scaled(torch.ones(2), torch.ones(2, dtype=torch.complex64))),
        ("rewards", lambda: rbs_tf.torch.batch_sigma(complex_numbers, batch, batch[..., 0])),
        ("discounts", lambda: rbs_tf.torch.batch_sigma(batch, complex_numbers, batch[..., 0])),
        ("unit", lambda: UnitLinear(1, 1).to_unit_(np.ones(1, complex))),
    ):
        with pytest.raises(ValueError, match=f"{name} must be real numbers; got torch.complex"):
            call()


def test_floors_and_resets(scaled):
    scaled.sigma_v = [1e3, 1e-3]
    assert scaled(torch.ones(2)).tolist() == pytest.approx([1e-3, 1.0 / scaled.sigma[1].item()])
    scaled.sigma_v = torch.tensor(2.0)
    scaled.reset_state()
    assert not scaled.statistics.any() and scaled(torch.ones(2)).tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="sigma_v must be a positive number"):
        scaled.sigma_v = 0.0


# What PyTorch does to modules.


def same(a, b):
    """Whether two modules scale alike and go on alike."""
    for _ in range(2):
        if not torch.equal(a.statistics, b.statistics) or not torch.equal(a(torch.ones(2)), b(torch.ones(2))):
            return False
        a.merge_state(LARGER)
        b.merge_state(LARGER)
    return True


def test_saving(scaled, tmp_path):
    scaled.sigma_v = [0.1, 0.2]
    agent = nn.ModuleDict({"network": UnitLinear(3, 4, heads=2), "scaled": scaled})
    agent["network"].to_unit_(scaled.unit)
    torch.save(agent.state_dict(), tmp_path / "agent.pt")
    state = torch.load(tmp_path / "agent.pt", weights_only=True)
    assert {*state} == {f"network.{x}" for x in ("weight", "bias", "unit")} | {
        "scaled.statistics",
        "scaled.sigma_v",
        "scaled.in_units",
    }
    for assign in (False, True):
        kept = copy.deepcopy(state)
        restored = nn.ModuleDict({"network": UnitLinear(3, 4, heads=2), "scaled": ReturnScaling(2)})
        restored.load_state_dict(state, assign=assign)
        assert torch.equal(restored["network"].unit, scaled.unit)
        assert same(restored["scaled"], copy.deepcopy(scaled))
        assert torch.equal(state["scaled.statistics"], kept["scaled.statistics"])  # the module has copied it


def test_wrong_states(scaled):
    before = copy.deepcopy(scaled)
    with pytest.raises(ValueError, match="must be finite"):
        scaled.load_state_dict(scaled.state_dict() | {"statistics": torch.full((8, 2), torch.nan)})
    assert same(scaled, before)


def test_states_of_another_floor(scaled):
    """`sigma_v` of a floor in units is another number; a state from before it said so goes on loading."""
    in_units = ReturnScaling(2, floor_in_units=True)
    before, state = copy.deepcopy(scaled), in_units.state_dict()
    with pytest.raises(
        ValueError, match="state is of floor_in_units=True, and this is of floor_in_units=False"
    ):
        nn.ModuleList([scaled]).load_state_dict(nn.ModuleList([in_units]).state_dict())
    assert same(scaled, before)
    del state["in_units"]
    in_units.load_state_dict(state)
    scaled.load_state_dict(state)


def test_copies(scaled):
    for another in (copy.deepcopy(scaled), pickle.loads(pickle.dumps(scaled))):
        before = scaled.statistics.clone()
        another.merge_state(LARGER)
        assert torch.equal(scaled.statistics, before) and not torch.equal(another.statistics, before)
        another = copy.deepcopy(scaled)
        another.load_state_dict(scaled.state_dict())  # its own hook
        assert same(another, copy.deepcopy(scaled))


def test_shared_memory():
    """As in A3C: every process sees the weights and the unit they are in. Statistics have one process."""
    scaled, last = ReturnScaling(2), UnitLinear(1, 1)
    last.to_unit_([2.0])
    agent = nn.ModuleList([scaled, last]).share_memory()
    assert all(values.is_shared() for values in (*agent.parameters(), *agent.buffers()))
    value = last(torch.ones(1))
    processes = torch.multiprocessing.get_context("spawn")  # a fork may hang beside JAX
    told, newer = processes.Queue(), processes.Event()
    other = processes.Process(target=other_process.feed, args=(scaled, last, LARGER, told, newer))
    other.start()
    assert told.get(timeout=100) == "ready"
    scaled.merge_state(EPISODE)
    before = copy.deepcopy(scaled)
    newer.set()
    refusals, said, statistics = (told.get(timeout=100) for _ in range(3))
    other.join()
    assert len(refusals) == 4 and not said
    for refusal in refusals:
        assert "copy of a scaling from another process" in refusal and "copy.deepcopy(scaling)" in refusal
    torch.testing.assert_close(last(torch.ones(1)), value)
    assert last.unit == 4.0
    expected = rbs_tf.ReturnMoments.merge(EPISODE, LARGER).to_array()
    np.testing.assert_allclose(statistics, expected, rtol=1e-12)
    assert same(scaled, before)


def test_mapped_heads(scaled):
    """`torch.vmap` is a loop."""
    errors, heads = torch.randn(5, 3), torch.tensor([[0], [1], [1], [0], [1]])
    loop = torch.stack([scaled(row, head=head) for row, head in zip(errors, heads, strict=True)])
    torch.testing.assert_close(torch.vmap(lambda row, head: scaled(row, head=head))(errors, heads), loop)


def test_casts(scaled):
    before = copy.deepcopy(scaled)
    model = nn.ModuleDict({"last": UnitLinear(3, 4, heads=2), "scaled": scaled})
    model["last"].to_unit_(scaled.unit)
    unit = model["last"].unit.clone()
    for cast in (
        model.bfloat16,
        model.half,
        lambda: model.to("meta"),  # as MPS, a device that cannot hold them
        lambda: model.to_empty(device="cpu"),
    ):
        cast()
        assert all(values.dtype == torch.float64 for values in model.buffers())
    assert model["last"].weight.dtype == torch.float16
    assert torch.equal(model["last"].unit, unit) and same(scaled, before)


def test_devices_without_float64(scaled, monkeypatch):
    """Nothing is cast on the device; a meta tensor stands for it, whose shapes are all there is."""
    made = scaled(torch.ones(3, 2, device="meta"), torch.ones(2, dtype=torch.float64))
    assert (made.device.type, made.dtype, made.shape) == ("meta", torch.float32, (3, 2))


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_losses(backend):
    torch._dynamo.reset()
    from torch._dynamo import testing

    counter = testing.CompileCounterWithBackend(backend)
    scaled, last = ReturnScaling(2, floor_in_units=True), UnitLinear(3, 4, heads=2)
    rng = np.random.default_rng(0)
    observations = torch.from_numpy(rng.normal(size=(5, 3)).astype(np.float32))
    rewards, discounts, mask = tensors(*(rng.uniform(size=(4, 5, n)) for n in (2, 2)), np.ones((4, 5)))

    def loss(observations, rewards):
        values = last(observations).reshape(5, 2, 2)
        own = rbs_tf.torch.batch_sigma(rewards, discounts, mask)
        errors = scaled(rewards[0] - values.amax(-1), own)
        return (errors + scaled(errors[..., 0], head=torch.tensor([0, 1, 1, 0, 1]))[:, None]).square().mean()

    compiled = torch.compile(loss, backend=counter, fullgraph=True)
    found = []
    for times in (1.0, 30.0, 1e3, 1e6):
        scaled.merge_state(rbs_tf.ReturnMoments.from_array(EPISODE.to_array() * times))
        last.to_unit_(scaled.unit)
        made = compiled(observations, times * rewards)
        torch.testing.assert_close(made, loss(observations, times * rewards))
        made.backward()
        found.append(made.item())
    assert counter.frame_count == 1
    assert len({*found}) == 4 and last.weight.grad.abs().max() > 0.0


# Several processes.


def test_processes(tmp_path):
    """Two gloo processes: bit-equal, and what one process makes of both streams."""
    single = nn.ModuleDict({"last": UnitLinear(3, 2), "scaled": ReturnScaling()})
    single["scaled"].merge_state(rbs_tf.ReturnMoments.from_episode([7.0], [0.0]))
    torch.save(single.state_dict(), tmp_path / "state.pt")
    command = [sys.executable, "-m", "tests.elsewhere.one_of_two"]
    ranks = [subprocess.Popen([*command, str(rank), str(tmp_path)], cwd=ROOT) for rank in range(2)]
    assert [process.wait(100) for process in ranks] == [0, 0]
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert (
        all(torch.equal(values, second[key]) for key, values in first.items()) and len(first["synced"]) == 5
    )
    for episode in [*episodes_of(0), *episodes_of(1)]:
        single["scaled"].merge_state(rbs_tf.ReturnMoments.from_episode(*episode))
    statistics = first["scaled.statistics"]
    torch.testing.assert_close(statistics, single["scaled"].statistics, rtol=1e-12, atol=0.0)
    assert first["grad"].abs().max() > 0.0 and first["last.unit"] > 0.0


@pytest.fixture
def process_group(tmp_path):
    """Of this process only, as `torchrun --nproc-per-node=1` makes it."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1
    )
    yield
    torch.distributed.destroy_process_group()


def test_one_process(process_group, scaled, caplog):
    """There is no one to wait for: statistics count at once."""
    alone = ReturnScaling(2)
    alone.merge_state(EPISODE)
    alone.sync()
    assert same(alone, scaled) and not caplog.records


def test_advice(monkeypatch, caplog):
    """It names the module, and `sync`, for which statistics wait."""
    scaled = ReturnScaling()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    scaled.merge_state(rbs_tf.ReturnMoments.from_episode([1.0], [0.0]))
    scaled(torch.ones(1))
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith("ReturnScaling has not seen any step yet: ")
    assert "or call merge_state(moments), and in a process group of several sync() after it" in said
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as after a fork
    with pytest.raises(RuntimeError, match="copy of a scaling from another process"):
        scaled.merge_state(rbs_tf.ReturnMoments.from_episode([1.0], [0.0]))


# Outputs in units.


def test_values_keep_with_the_unit():
    last, inputs = UnitLinear(3, 4, heads=2), torch.randn(5, 3)
    assert not last(inputs).any()  # no unit yet
    last.to_unit_([2.0, 0.0])
    weight = last.weight.detach().clone()
    values = last(inputs)
    torch.testing.assert_close(
        values, torch.tensor([2.0, 2.0, 0.0, 0.0]) * nn.functional.linear(inputs, weight, last.bias)
    )
    assert not values[:, 2:].any()
    ratio, after = rbs_tf.unit_ratio(last.unit, [3.0, 4.0])
    last.to_unit_(torch.tensor([3.0, 4.0]))
    torch.testing.assert_close(last(inputs)[:, :2], values[:, :2])
    assert last.unit.tolist() == after.tolist() and ratio[1] == 1.0
    assert torch.equal(last.weight[2:], weight[2:]) and not torch.equal(last.weight[:2], weight[:2])
    last.to_unit_([0.0, 4.0002])
    assert last.unit.tolist() == after.tolist()
    with pytest.raises(ValueError, match="one number per head"):
        last.to_unit_([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="as many for each head"):
        UnitLinear(3, 5, heads=2)


@pytest.mark.parametrize("dtype, moves", [(torch.float32, 1e-5), (torch.bfloat16, 0.0)])
def test_no_value_moves_over_ten_thousand_changes(dtype, moves):
    last, units = UnitLinear(5, 6, heads=3, dtype=dtype), changing_units()
    last.to_unit_(np.ones(3))

    def values():
        weights = torch.cat([last.weight, last.bias[:, None]], dim=1).detach().double()
        return weights * last.unit.repeat_interleave(2)[:, None]

    before = values()
    for unit in units:
        last.to_unit_(unit)
    assert (values() / before - 1.0).abs().max() <= moves
    reached = last.unit.numpy() / units[-1]
    assert np.abs(reached - 1.0).max() <= (0.5 if dtype == torch.bfloat16 else 2e-4)


def test_averaged_models():
    """They come to the unit before they are updated: then values are averaged."""
    online = nn.Sequential(nn.Linear(3, 4), UnitLinear(4, 2))
    averaged = torch.optim.swa_utils.AveragedModel(online)
    inputs, values = torch.randn(5, 3), []
    for unit in (1.0, 30.0, 7.0):
        for layers in (online, averaged.module):
            layers[-1].to_unit_([unit])
        nn.init.normal_(online[-1].weight)
        values.append(online(inputs))
        averaged.update_parameters(online)
    torch.testing.assert_close(averaged(inputs), torch.stack(values).mean(dim=0))


def test_a_trained_layer():
    trained, last = nn.Linear(3, 4), UnitLinear(3, 4, heads=2)
    last.load_state_dict(trained.state_dict(), strict=False)
    last.to_unit_([1.0, 1.0])
    last.to_unit_([30.0, 0.2])
    inputs = torch.randn(5, 3)
    torch.testing.assert_close(last(inputs), trained(inputs))


def test_weights_that_are_split(process_group):
    """By FSDP2."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor.experimental import implicit_replication

    network, inputs = nn.Sequential(nn.Linear(3, 4), UnitLinear(4, 2)), torch.randn(5, 3)
    network[-1].to_unit_([2.0])
    values = network(inputs)
    fully_shard(network)
    with pytest.raises(RuntimeError, match="DTensor"):
        network[-1].to_unit_([3.0])
    for unit in (3.0, 30.0):
        network(inputs)
        network.reshard()
        with implicit_replication():
            network[-1].to_unit_([unit])
        torch.testing.assert_close(network(inputs), values)
        network(inputs).sum().backward()
        torch.testing.assert_close(network(inputs), values)


def test_units_that_no_layer_can_be_in():
    last = UnitLinear(3, 4, heads=2)
    last.to_unit_([2.0, 0.0])
    for unit in ([np.nan, 1.0], [1.0, np.inf], [-1.0, 1.0]):
        with pytest.raises(ValueError, match="finite numbers of at least 0; got"):
            last.to_unit_(unit)
    with pytest.raises(ValueError, match="cannot have weights of float16.*float32.*bfloat16"):
        last.half().to_unit_([1.0, 1.0])
    assert last.unit.tolist() == [2.0, 0.0]
    last.float().to_unit_([1e33, 0.0])
    assert last.unit.tolist() == [2.0, 0.0]


# docs/pytorch.md.

PAGE = "docs/pytorch.md"
LOOP, UNITS = "Two lines", "Outputs in units of the return"


@pytest.fixture(scope="module")
def loop():
    return pages.run(PAGE, LOOP, UNITS)


def test_programs_learn(loop):
    """A policy that plays at random balances for 22 steps."""
    assert np.mean(loop.lengths[-20:]) > 60
    assert np.mean(loop.lengths_in_units[-20:]) > 60
    assert "tensorflow" not in sys.modules


def test_the_readmes_program():
    (code,) = (block for block in pages.blocks("README.md") if "import torch" in block)
    names = {"__name__": "page"}
    exec(code, names)
    assert names["scaling"].moments.count == 1 and names["loss"] > 0.0


def test_the_pages_state(loop):
    assert 9000 < loop.state["2.statistics"][0].item() <= 10_000  # the last steps are still to be reported
    assert loop.scaling.unit.item() > 1000.0 and loop.online[-1].unit == loop.target[-1].unit > 1000.0


def test_the_pages_actions(loop):
    """1024 is a power of two: nothing is rounded. Values are 1024 times as large to the last bit."""
    names, found = loop.play.__globals__, []
    for times in (1.0, 1024.0):
        exec(pages.programs(PAGE)[UNITS].replace("play(times=1000.0)", f"play(2000, times={times})"), names)
        found.append((names["lengths_in_units"], names["online"](torch.eye(4)).detach()))
    (lengths, values), (larger_lengths, larger_values) = found
    assert lengths == larger_lengths and torch.equal(1024.0 * values, larger_values)
    assert values.abs().max() > 1.0


def test_layers_of_bfloat16_reach_one_unit_whatever_theirs_was():
    torch.manual_seed(0)
    online, target = (nn.Sequential(UnitLinear(5, 3, dtype=torch.bfloat16)) for _ in range(2))
    averaged = torch.optim.swa_utils.AveragedModel(online).float()
    inputs = torch.randn(4, 5)
    online[-1].to_unit_([3.0])
    for unit in (7.0, 5.0, 67.0):
        for layer in (online[-1], target[-1]):
            layer.to_unit_([unit])
        averaged.module[-1].to_unit_(online[-1].unit)
        assert online[-1].unit == target[-1].unit == averaged.module[-1].unit
        target[-1].load_state_dict(online[-1].state_dict())
        averaged.update_parameters(online)
        values = online(inputs.bfloat16())
        assert torch.equal(target(inputs.bfloat16()), values)
        torch.testing.assert_close(averaged(inputs.bfloat16().float()), values, rtol=2e-2, atol=0.02 * unit)


def test_layers_of_bfloat16_that_were_in_another_unit():
    """As docs/pytorch.md says: a power of two times that one; what was cast in one unit stays in one."""
    last = UnitLinear(3, 2)
    last.to_unit_([3.0])
    online, target = (copy.deepcopy(last).bfloat16() for _ in range(2))
    weights = online.weight.detach().clone()
    for unit, reached in ((7.0, 6.0), (70.0, 48.0), (5.0, 3.0)):
        for layer in (online, target):
            layer.to_unit_([unit])
            assert layer.unit == reached
    assert torch.equal(online.weight, weights)


def test_a_unit_that_changes_within_autocast_changes_no_value():
    last, inputs = UnitLinear(8, 1), torch.randn(4, 8)
    last.to_unit_([1.0])
    with torch.autocast("cpu", torch.bfloat16):
        before = last(inputs).detach()
        last.to_unit_([1024.0])
        torch.testing.assert_close(last(inputs), before, rtol=0.02, atol=0.02)
