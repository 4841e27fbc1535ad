"""rbs_tf.jax and docs/jax.md: statistics of a NumPy replay, wherever JAX runs; actions free of the rewards' size."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

import functools
import pickle
import sys

import numpy as np
import pytest

jax = pytest.importorskip("jax", reason="make test-adopting runs these in .venv-rivals")
pytest.importorskip("optax")
import jax.numpy as jnp  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

import rbs_tf  # noqa: E402
from rbs_tf import ReturnMoments  # noqa: E402
from rbs_tf.pair import Pair  # noqa: E402
from tests import pages  # noqa: E402
from tests.elsewhere.vectors import BY_NAME, TOLERANCE, changing_units  # noqa: E402

GAMMAS = np.array([0.9, 0.997])
PAIRS = 1e-11  # relative; measured: 2e-12


@pytest.fixture(params=["pairs", "float64"])
def tolerance(request):
    """In both arithmetics: how far moments may be off, relatively."""
    with jax.enable_x64(request.param == "float64"):
        yield TOLERANCE if request.param == "float64" else PAIRS


def stream(seed, steps=60, num_envs=4, offset=0.0):
    """Rewards and discounts [T, N, H] that float32 holds, ended [T, N]: half of the episodes' ends are terminal."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(offset, 1.0, (steps, num_envs, len(GAMMAS))).astype(np.float32)
    ended, cut = rng.uniform(size=(2, steps, num_envs)) < [[[0.1]], [[0.5]]]
    terminal = ended & ~cut
    discounts = np.where(terminal[..., None], 0.0, GAMMAS).astype(np.float32)
    return rewards, discounts, ended


def replay(rewards, discounts, ended):
    """The same in NumPy, environment by environment; the last episode is still open."""
    total = ReturnMoments.empty(rewards.shape[-1])
    for env in range(ended.shape[1]):
        of_env = rewards[:, env], discounts[:, env]
        total = ReturnMoments.merge(total, ReturnMoments.from_steps(*of_env))
        closed = ended[:, env].nonzero()[0].max(initial=-1) + 1
        inside = np.where(ended[:closed, env, None], 0.0, of_env[1][:closed])
        returns = rbs_tf.discounted_returns(of_env[0][:closed], inside)
        total = ReturnMoments.merge(total, ReturnMoments.from_returns(returns))
    return total


@functools.partial(jax.jit, static_argnames=("axis_name", "max_report_steps"))
def played(state, rewards, discounts, ended, head=None, axis_name=None, max_report_steps=27_000):
    def step(state, now):
        how = {"head": head, "axis_name": axis_name, "max_report_steps": max_report_steps}
        return rbs_tf.jax.observe(state, *now, **how), None

    return jax.lax.scan(step, state, (rewards, discounts, ended))[0]


def init(num_envs=4):
    return rbs_tf.jax.init(num_envs, len(GAMMAS))


def assert_same(found, expected, rtol):
    found = rbs_tf.jax.moments(found) if isinstance(found, rbs_tf.jax.State) else found
    np.testing.assert_allclose(found.to_array(), expected.to_array(), rtol=rtol)


def of_row(tree, row):
    return jax.tree.map(lambda x: x[row], tree)


def test_statistics(tolerance):
    """Those of a replay; with donated states, with a task for each environment, and of episodes that never end."""
    steps = rewards, discounts, ended = stream(0)
    state, expected = played(init(), *steps), replay(*steps)
    assert_same(state, expected, tolerance)
    of_results = TOLERANCE if tolerance == TOLERANCE else 5e-7
    np.testing.assert_allclose(rbs_tf.jax.sigma(state), expected.sigma, rtol=of_results)
    np.testing.assert_allclose(rbs_tf.jax.unit(state), expected.unit, rtol=of_results)
    jax.jit(rbs_tf.jax.observe, donate_argnums=0)(init(), *of_row(steps, 0))
    if tolerance != PAIRS:
        return
    tasks = np.array([0, 1, 1, 0])
    found = rbs_tf.jax.moments(played(init(), *steps, tasks)).to_array()
    for task in (0, 1):
        expected = replay(*(x[:, tasks == task] for x in steps)).to_array()
        np.testing.assert_allclose(found[:, task], expected[:, task], rtol=PAIRS)
    discounts, ended = np.full_like(discounts, 0.5), np.zeros_like(ended)
    state = played(init(), rewards, discounts, ended, max_report_steps=20)
    ended[19::20] = True
    assert_same(state, replay(rewards, discounts, ended), PAIRS)


def test_seeds_and_devices():
    """vmap of two seeds; and pmap and shard_map of halves of the environments, whose statistics are those of all."""
    rewards, discounts, ended = stream(1, num_envs=8)
    halves = [np.stack(np.split(x, 2, axis=1)) for x in (rewards, discounts, ended)]
    states = jax.tree.map(lambda x: jnp.stack([x, x]), init())
    single = [played(init(), *of_row(halves, row)) for row in (0, 1)]
    seeds = jax.jit(jax.vmap(lambda state, *steps: played(state, *steps)))(states, *halves)
    for row in (0, 1):
        assert_same(of_row(seeds, row), rbs_tf.jax.moments(single[row]), PAIRS)

    expected = replay(rewards, discounts, ended)
    devices = jax.pmap(functools.partial(played, axis_name="i"), axis_name="i")(states, *halves)
    for leaf in jax.tree.leaves(devices.moments):
        np.testing.assert_array_equal(leaf[0], leaf[1])
    assert_same(of_row(devices, 0), expected, PAIRS)

    of_state, of_steps = rbs_tf.jax.State(P(), P("i")), P(None, "i")
    sharded = jax.shard_map(
        functools.partial(played, axis_name="i"),
        mesh=jax.sharding.Mesh(jax.devices(), ("i",)),
        in_specs=(of_state, of_steps, of_steps, of_steps),
        out_specs=of_state,
    )
    assert_same(jax.jit(sharded)(init(8), rewards, discounts, ended), expected, PAIRS)


@pytest.mark.parametrize("name", BY_NAME)
def test_vectors(name):
    vector = BY_NAME[name]
    with jax.enable_x64(True):
        # Steps that are NaN are left out: all vectors are of one length, and few functions are compiled.
        rewards, discounts = np.full((2, 100, 1, vector.num_heads), np.nan)
        ended, end = np.zeros((100, 1), bool), 0
        for episode in vector.episodes:
            start, end = end, end + len(episode[0])
            rewards[start:end, 0], discounts[start:end, 0] = episode
            ended[end - 1] = True
        state = played(rbs_tf.jax.init(1, vector.num_heads), rewards, discounts, ended)
        floors = {"sigma_v": vector.sigma_v, "floor_in_units": vector.in_units}
        of_batch = rbs_tf.jax.batch_sigma(*vector.batch)
        with_batch = rbs_tf.jax.scale_errors(state, vector.errors, batch_sigma=of_batch, **floors)
        by_task = rbs_tf.jax.scale_errors(state, vector.errors[:, 0], head=vector.tasks, **floors)
        found = {
            "sigma": rbs_tf.jax.sigma(state),
            "unit": rbs_tf.jax.unit(state),
            "batch_sigma": of_batch,
            "scaled": rbs_tf.jax.scale_errors(state, vector.errors, **floors),
            "scaled_with_batch": with_batch,
            "scaled_with_part": rbs_tf.jax.scale_errors(
                state, vector.errors, batch_sigma=vector.part_of_batch_sigma, **floors
            ),
            "scaled_by_task": by_task,
        }
    for key, values in found.items():
        np.testing.assert_allclose(values, getattr(vector, key), rtol=TOLERANCE, err_msg=key)
        assert values.dtype == np.float64


def long_stream(steps=2**17, num_envs=8):
    """A million steps of rewards of 1e4 +- 1, in episodes of about 100."""
    rewards, _, _ = stream(0, steps, num_envs, offset=1e4)
    ended = np.random.default_rng(1).uniform(size=rewards.shape[:2]) < 0.01
    return rewards, np.where(ended[..., None], 0.0, GAMMAS).astype(np.float32), ended


def test_a_million_large_rewards():
    steps = long_stream()
    expected = replay(*steps)
    found = rbs_tf.jax.moments(played(init(8), *steps))
    assert_same(found, expected, PAIRS)
    # In plain float32, which a state may hold as well, it is ten million times as far off.
    single = played(jax.tree.map(lambda x: x.high, init(8), is_leaf=lambda x: isinstance(x, Pair)), *steps)
    wrong = np.abs(single.moments.reward_m2 / expected.reward_m2 - 1.0)
    assert wrong.min() > 1e-5


def test_large_counts():
    before = ReturnMoments.from_array(
        replay(*stream(0)).to_array() * np.float64([[2.0**32 + 1], *[[1.0]] * 7])
    )
    steps = stream(2)
    state = played(rbs_tf.jax.merge_state(init(), before), *steps)
    expected = ReturnMoments.merge(before, replay(*steps))
    found = rbs_tf.jax.moments(state)
    np.testing.assert_array_equal(found.count, expected.count)
    assert_same(found, expected, PAIRS)


def test_what_is_not_finite():
    """A step is dropped, for its head; what it ends has ended."""
    rewards, discounts, ended = stream(3)
    broken_rewards, broken_discounts = rewards.copy(), discounts.copy()
    keep = np.random.default_rng(0).uniform(size=rewards.shape) < 0.9
    bad = np.resize([np.nan, np.inf, -np.inf, 3e38, 1e12], rewards.shape).astype(np.float32)
    broken_rewards[:, ::2] = np.where(keep, rewards, bad)[:, ::2]
    broken_discounts[:, 1::2] = np.where(keep, discounts, bad)[:, 1::2]
    found = rbs_tf.jax.moments(played(init(), broken_rewards, broken_discounts, ended))
    expected = []
    for head in range(len(GAMMAS)):
        total = ReturnMoments.empty(1)
        for env in range(4):
            edges = [0, *(np.flatnonzero(ended[:, env]) + 1), len(ended)]
            for start, end in zip(edges, edges[1:], strict=False):
                rows = np.flatnonzero(keep[start:end, env, head]) + start
                of_rows = rewards[rows, env, head], discounts[rows, env, head]
                whole = end != len(ended) or ended[-1, env]
                take = ReturnMoments.from_episode if whole else ReturnMoments.from_steps
                total = ReturnMoments.merge(total, take(*of_rows))
        expected.append(total.to_array()[:, 0])
    np.testing.assert_allclose(found.to_array(), np.stack(expected, axis=1), rtol=PAIRS)
    huge = np.full_like(rewards, 9e9)
    states = [
        played(init(), huge, np.full_like(discounts, 2.0), ended),
        played(init(), huge, discounts, ended),
    ]
    for state in states:
        assert np.isfinite(rbs_tf.jax.sigma(state)).all() and np.isfinite(rbs_tf.jax.unit(state)).all()
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(state))
        assert np.isfinite(rbs_tf.jax.scale_errors(state, np.ones(2), batch_sigma=np.full(2, np.nan))).all()


def test_hosts_and_files():
    left, right = (played(init(), *stream(seed)) for seed in (6, 7))
    moments = [rbs_tf.jax.moments(state) for state in (left, right)]
    both = ReturnMoments.merge(*moments)
    assert_same(rbs_tf.jax.merge_state(left, right), both, PAIRS)
    assert_same(rbs_tf.jax.merge_state(left, moments[1]), both, PAIRS)
    assert_same(rbs_tf.jax.merge_state(init(), moments[0]), moments[0], PAIRS)
    kept = pickle.loads(pickle.dumps(left))
    for read, written in zip(jax.tree.leaves(kept), jax.tree.leaves(left), strict=True):
        np.testing.assert_array_equal(read, written)
    leaves = [np.asarray(x) for x in jax.tree.leaves(left)]  # as Flax stores them
    kept = jax.tree.unflatten(jax.tree.structure(init()), leaves)
    assert_same(rbs_tf.jax.merge_state(kept, right), both, PAIRS)
    scale = rbs_tf.numpy.ReturnScaling(num_heads=2)
    scale.merge_state(moments[0])
    np.testing.assert_allclose(scale(), rbs_tf.jax.scale(left), rtol=1e-6)
    with pytest.raises(ValueError, match="float32 does not hold"):
        rbs_tf.jax.merge_state(left, ReturnMoments.from_episode([[1e50, 1.0]], [[0.9, 0.9]]))
    with pytest.raises(ValueError, match="equally many heads"):
        rbs_tf.jax.merge_state(left, ReturnMoments.empty(3))


def test_ranks_that_are_not_promoted():
    state, (rewards, discounts, ended) = init(), of_row(stream(0), 0)
    expected = rbs_tf.jax.observe(state, rewards, discounts, ended)
    with jax.numpy_rank_promotion("raise"):
        with jax.numpy_rank_promotion("allow"):
            found = rbs_tf.jax.observe(state, rewards, discounts, ended)
            scaled = rbs_tf.jax.scale_errors(found, rewards)
        jax.tree.map(np.testing.assert_array_equal, found, expected)
    np.testing.assert_array_equal(scaled, rbs_tf.jax.scale_errors(expected, rewards))


def test_gradients():
    state = played(init(), *stream(8))

    def loss(errors, times):
        rewards, discounts, ended = of_row(stream(9), 0)
        now = rbs_tf.jax.observe(state, times * rewards, discounts, ended)
        return rbs_tf.jax.scale_errors(now, errors, 1e-2, 1e3 * times * jnp.ones(2)).sum()

    errors, times = jax.grad(loss, argnums=(0, 1))(jnp.ones(2), 1.0)
    assert (errors > 0.0).all() and times == 0.0
    rewards, discounts, _ = stream(9)
    of_batch = jax.grad(
        lambda times: rbs_tf.jax.batch_sigma(times * rewards, discounts, np.ones((60, 4))).sum()
    )
    assert of_batch(1.0) == 0.0
    # Nothing is known of the scale: the errors' root mean square.
    first = functools.partial(rbs_tf.jax.scale_errors, init(), floor_in_units=True)
    np.testing.assert_array_equal(first(jnp.array([[3.0, 0.0], [-3.0, 0.0]])), [[1.0, 0.0], [-1.0, 0.0]])
    np.testing.assert_array_equal(
        jax.grad(lambda x: first(x).sum())(2.0 * jnp.ones((4, 2))), 0.5 * np.ones((4, 2))
    )
    with pytest.raises(ValueError, match=r"\[..., 2\]"):
        rbs_tf.jax.scale_errors(state, np.ones(3))


@pytest.mark.parametrize("operation", ["__add__", "__sub__", "__mul__", "__truediv__"])
@pytest.mark.parametrize("how", [jax.jit, lambda function: function])
def test_pairs_hold_twice_the_digits(operation, how):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 10_000)) * 10.0 ** rng.uniform(-6, 6, (2, 10_000))
    pairs = Pair.split_float64(a), Pair.split_float64(b)
    function = how(lambda a, b: getattr(a, operation)(b))
    a, b = (np.longdouble(pair.float64()) for pair in pairs)
    expected = getattr(a, operation)(b)
    of_sums = np.maximum(abs(a), abs(b)) if operation in ("__add__", "__sub__") else abs(expected)
    assert (abs(function(*pairs).float64() - expected) / of_sums).max() < 2.0**-45
    # And powers of two are exact factors, to the last bit.
    larger = jax.tree.map(lambda x: 1024.0 * x, pairs)
    factor = {"__mul__": 2.0**20, "__truediv__": 1.0}.get(operation, 1024.0)
    for once, times in zip(
        jax.tree.leaves(function(*pairs)), jax.tree.leaves(function(*larger)), strict=True
    ):
        np.testing.assert_array_equal(times, factor * once)


def test_units():
    rng = np.random.default_rng(0)
    layer = {"kernel": rng.normal(size=(5, 6)).astype(np.float32), "bias": np.ones(6, np.float32)}
    to_unit = jax.jit(rbs_tf.jax.to_unit)

    def values(layer, unit):
        return np.repeat(unit, 3) * (np.arange(5.0) @ np.float64(layer["kernel"]) + layer["bias"])

    first, unit = to_unit(layer, jnp.zeros(2), jnp.array([3.0, 0.0]))
    np.testing.assert_array_equal(first["kernel"], layer["kernel"])
    np.testing.assert_array_equal(unit, np.float32([3.0, 0.0]))
    second, after = to_unit(layer, jnp.array([3.0, 7.0]), jnp.array([1.1e6, 7.0005]))
    np.testing.assert_allclose(after, [1.1e6, 7.0], rtol=1e-6)
    np.testing.assert_allclose(
        values(second, np.float64(after)), values(layer, np.array([3.0, 7.0])), rtol=1e-6
    )
    kept, after = to_unit(layer, jnp.array([3.0, 7.0]), jnp.zeros(2))
    np.testing.assert_array_equal(after, np.float32([3.0, 7.0]))
    np.testing.assert_array_equal(kept["bias"], layer["bias"])


@pytest.mark.parametrize("dtype, moves", [(jnp.float32, 1e-5), (jnp.bfloat16, 0.0)])
def test_no_value_moves_over_ten_thousand_changes(dtype, moves):
    units = changing_units()
    layer = {
        "kernel": jax.random.normal(jax.random.PRNGKey(0), (5, 6)).astype(dtype),
        "bias": jnp.ones(6, dtype),
    }

    def values(layer, unit):
        weights = np.concatenate([layer["kernel"], layer["bias"][None]])
        return np.float64(weights) * np.repeat(np.float64(unit), 2)

    @jax.jit
    def to_each(layer, units):
        step = lambda at, unit: (rbs_tf.jax.to_unit(*at, unit), None)  # noqa: E731
        return jax.lax.scan(step, (layer, jnp.ones(3)), units)[0]

    moved, unit = to_each(layer, jnp.float32(units))
    assert np.abs(values(moved, unit) / values(layer, np.ones(3)) - 1.0).max() <= moves
    assert np.abs(unit / units[-1] - 1.0).max() <= (0.5 if dtype == jnp.bfloat16 else 2e-4)


def test_layouts_of_units():
    """Weights [out, in] of two heads: rows change. And what has other outputs than the rest of the layer."""
    old, new = jnp.ones(2), jnp.array([1.0, 2.0])
    layer = {"weight": jnp.ones((2, 2)), "bias": jnp.ones(2)}
    there, unit = rbs_tf.jax.to_unit(layer, old, new, axis=0)
    np.testing.assert_array_equal(there["weight"], [[1.0, 1.0], [0.5, 0.5]])
    np.testing.assert_array_equal(there["bias"], [1.0, 0.5])
    np.testing.assert_array_equal(unit, [1.0, 2.0])
    np.testing.assert_array_equal(rbs_tf.jax.to_unit(layer, old, new)[0]["weight"], [[1.0, 0.5], [1.0, 0.5]])
    for wrong in (
        {"weight": jnp.ones((4, 64)), "bias": jnp.ones(4)},
        {"kernel": jnp.ones((64, 3)), "bias": jnp.ones(3)},
        {},
    ):
        with pytest.raises(ValueError, match="same number of outputs.*2 heads.*take axis=0"):
            rbs_tf.jax.to_unit(wrong, old, new)


def test_units_that_no_layer_can_be_in():
    """NaN and infinity are left out, compiled or not."""
    old, new = jnp.array([2.0, 2.0, 0.0, 0.0]), jnp.array([jnp.nan, jnp.inf, jnp.nan, jnp.inf])
    for to_unit in (rbs_tf.jax.to_unit, jax.jit(rbs_tf.jax.to_unit)):
        layer, unit = to_unit(jnp.ones((3, 4)), old, new)
        np.testing.assert_array_equal(layer, np.ones((3, 4)))
        np.testing.assert_array_equal(unit, old)
    layer, unit = rbs_tf.jax.to_unit(jnp.ones((3, 2)), jnp.array([2.0, 1e-20]), jnp.array([3e-31, 1e20]))
    np.testing.assert_array_equal(layer, np.ones((3, 2)))
    np.testing.assert_array_equal(unit, np.float32([2.0, 1e-20]))
    with pytest.raises(ValueError, match="cannot have weights of float16"):
        rbs_tf.jax.to_unit(jnp.ones((3, 4), jnp.float16), old, new)
    # A unit that is kept in bfloat16 would round, if float32 weights followed it.
    layer, unit = rbs_tf.jax.to_unit(jnp.ones(1), jnp.ones(1, jnp.bfloat16), jnp.array([3.0]))
    assert layer * unit == 1.0 and unit == 4.0
    # From a unit that is no power of two, a power of two times that one.
    layer, unit = rbs_tf.jax.to_unit(jnp.ones(1, jnp.bfloat16), jnp.array([3.0]), jnp.array([7.0]))
    assert layer * unit == 3.0 and unit == 6.0


def test_complex_numbers():
    state, ones, wrong = rbs_tf.jax.init(1), np.ones((1, 1, 1)), jnp.ones(1, jnp.complex64)
    for name, call in (
        ("rewards", lambda: rbs_tf.jax.observe(state, wrong, ones[0, 0], [False])),
        ("errors", lambda: rbs_tf.jax.scale_errors(state, wrong)),
        ("batch_sigma", lambda: rbs_tf.jax.scale(state, batch_sigma=wrong)),
        ("discounts", lambda: rbs_tf.jax.batch_sigma(ones, ones * 1j, ones[0])),
        ("new", lambda: rbs_tf.jax.to_unit(jnp.ones((2, 1)), jnp.ones(1), wrong)),
    ):
        with pytest.raises(ValueError, match=f"{name} must be real numbers; got complex"):
            call()


PAGE = "docs/jax.md"


@pytest.fixture(scope="module")
def page():
    """The page's programs, run; and how often the first one asked for the scale."""
    asked, original = [], rbs_tf.numpy.ReturnScaling.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            rbs_tf.numpy.ReturnScaling, "__call__", lambda scale: asked.append(1) or original(scale)
        )
        names = pages.run(PAGE, *pages.programs(PAGE))
    names.asked = len(asked)
    return names


def steps_balanced(failed):
    """In the last sixth; 22 at random."""
    late = np.asarray(failed)[-len(failed) // 6 :]
    return late.size / max(late.sum(), 1)


def test_the_pages_agents_learn(page):
    assert np.mean(page.returns[-20:]) > 60
    assert page.asked == 9500  # every update reads the current scale
    assert steps_balanced(page.failed) > 60
    assert "tensorflow" not in sys.modules


def test_the_pages_actions(page):
    train = jax.jit(functools.partial(page.train, steps=1000))
    (_, (once, _)), (_, (times, _)) = (train(jax.random.PRNGKey(1), factor) for factor in (1.0, 1024.0))
    np.testing.assert_array_equal(once, times)


def test_layers_of_bfloat16_reach_one_unit_whatever_theirs_was():
    layer = jnp.ones((3, 2), jnp.bfloat16)
    _, once = rbs_tf.jax.to_unit(layer, jnp.zeros(1), jnp.array([7.0]))
    _, twice = rbs_tf.jax.to_unit(layer, jnp.array([4.0]), jnp.array([7.0]))
    assert once.tolist() == twice.tolist() == [8.0]
    with pytest.raises(ValueError, match=r"units of the same heads, \[H\]; got \(1,\) and \(2,\)"):
        rbs_tf.jax.to_unit(layer, jnp.ones(1), jnp.ones(2))
