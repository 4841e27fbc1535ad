"""`rbs_tf.numpy`: the layer's twin in NumPy, and which heads' floor either of them names."""

import copy
import json
import logging
import os
import pickle

import numpy as np
import pytest

import rbs_tf
from rbs_tf import ReturnMoments
from rbs_tf.numpy import ReturnScaling as NumpyScaling

TIMES = 1024.0  # a power of two: multiplying by it rounds nothing


def steps(rewards, gamma, length=20):
    """Moments of episodes of so many steps: rewards [T], one head."""
    discounts = np.where(np.arange(len(rewards)) % length == length - 1, 0.0, gamma)
    return ReturnMoments.from_episode(rewards, discounts)


def heads(*moments):
    return ReturnMoments.from_array(np.concatenate([each.to_array() for each in moments], axis=1))


def some(num_heads=2, times=1.0, seed=0):
    rewards, discounts = np.random.default_rng(seed).normal(size=(2, 50, num_heads))
    return ReturnMoments.from_episode(times * rewards, discounts)


def test_scale():
    scale, larger = NumpyScaling(2, sigma_v=[1e-3, 5e3]), NumpyScaling(2, sigma_v=[1e-3, 5e3])
    assert scale().tolist() == pytest.approx([1e-3, 5e3]) and scale().dtype == np.float32
    for seed in range(3):
        scale.merge_state(some(seed=seed))
        larger.merge_state(some(times=TIMES, seed=seed))
    assert scale()[0] == np.float32(scale.sigma[0]) > 0.1 and scale()[1] == 5e3
    np.testing.assert_array_equal(larger.sigma, TIMES * scale.sigma)
    np.testing.assert_array_equal(larger.mean_return, TIMES * scale.mean_return)
    scale.sigma_v = 7e3
    assert scale().tolist() == [7e3, 7e3] == scale.sigma_v.tolist()
    scale.reset_state()
    assert not scale.moments.count.any() and scale.sigma_v.tolist() == [7e3, 7e3]


def test_its_state_is_kept_to_the_last_bit(caplog):
    scale = NumpyScaling(2, sigma_v=[0.1, 0.3])
    scale.merge_state(some())
    state = scale.state_dict()
    for carried in (json.loads(json.dumps(state)), {name: np.array(value) for name, value in state.items()}):
        restored = NumpyScaling(2)
        restored.load_state_dict(carried)
        np.testing.assert_array_equal(restored.moments.to_array(), scale.moments.to_array())
        np.testing.assert_array_equal(restored.sigma_v, scale.sigma_v)
        np.testing.assert_array_equal(restored(), scale())
    assert not caplog.records, "it has seen steps: those before it was saved"
    for copied in (copy.deepcopy(scale), pickle.loads(pickle.dumps(scale))):
        copied.merge_state(some(seed=1))
        assert copied.moments.count[0] == 100 and scale.moments.count[0] == 50


def test_wrong_states():
    scale = NumpyScaling(2)
    scale.merge_state(some())
    before = scale.state_dict()
    for state, complaint in (
        (
            NumpyScaling(3).state_dict(),
            r"state is of 3 heads, this ReturnScaling of 2.*ReturnScaling\(num_heads=3\)",
        ),
        ({"moments": before["moments"]}, "lacks sigma_v"),
        (before | {"sigma_v": [1.0, 2.0, 3.0]}, "sigma_v must be"),
        (before | {"moments": np.full((8, 2), np.nan)}, "must be finite"),
        (
            before | {"floor_in_units": True},
            "state is of floor_in_units=True, and this is of floor_in_units=False",
        ),
    ):
        with pytest.raises(ValueError, match=complaint) as refused:
            scale.load_state_dict(state)
        assert "\n" not in str(refused.value) and scale.state_dict() == before


def test_older_states():
    """They do not tell what their floor is in."""
    scale = NumpyScaling(2, floor_in_units=True)
    scale.load_state_dict({"moments": some().to_array(), "sigma_v": [1.0, 2.0]})
    assert scale.moments.count[0] == 50


@pytest.mark.parametrize("kind", ["numpy", "keras"])
def test_a_copy_in_another_process_is_not_fed(kind, monkeypatch):
    if kind == "keras":
        pytest.importorskip("tensorflow")
    scale = (NumpyScaling if kind == "numpy" else rbs_tf.ReturnScaling)()
    monkeypatch.setattr(os, "getpid", lambda: 1)  # as after a fork
    ways = [lambda: scale.merge_state(some(1))]
    if kind == "keras":
        ways += [lambda: scale.update_state([1.0], [0.9]), lambda: scale.update_returns([1.0])]
    for feed in ways:
        with pytest.raises(
            RuntimeError, match=r"copy of a scaling from another process.*copy.deepcopy\(scaling\)"
        ):
            feed()
    own = copy.deepcopy(scale)
    own.merge_state(some(1))
    assert own.moments.count[0] == 50 and not np.any(scale.moments.count)


def test_tensors_of_others_are_refused():
    tf = pytest.importorskip("tensorflow")
    for errors in (tf.ones(3), tf.Variable(tf.ones(3))):
        with pytest.raises(
            TypeError, match="lose the gradient of errors of tensorflow.*take rbs_tf.ReturnScaling"
        ):
            NumpyScaling()(errors)


@pytest.fixture(params=["numpy", "keras"])
def fed(request):
    """Something that scales errors, fed in one of three ways, and says what its floor is."""

    def build(moments, sigma_v=1e-2, scaling=True, portions=1, **floor):
        if request.param == "numpy":
            scale = NumpyScaling(moments.num_heads, sigma_v, **floor)
            for _ in range(portions):
                scale.merge_state(moments)
                if scaling:
                    scale()
            return
        pytest.importorskip("tensorflow")
        from rbs_tf import ReturnScaling

        layer = ReturnScaling(moments.num_heads, sigma_v, **floor)
        if scaling:
            layer(np.ones((1, moments.num_heads), np.float32))
        for _ in range(portions):
            layer.merge_state(moments)

    return build


CONSTANT, NONE = np.ones(2000), np.zeros(2000)
VARYING = np.tile([0.0, 2.0], 1000)


def warnings_of(caplog):
    found = [record.getMessage() for record in caplog.records if "below its floor" in record.getMessage()]
    caplog.clear()
    return found


def test_heads_below_their_floor_are_named_once(fed, caplog):
    caplog.set_level(logging.WARNING)
    blind = heads(steps(CONSTANT, 0.0), steps(CONSTANT, 0.9), steps(CONSTANT, 0.99))
    fed(blind, portions=3)
    (said,) = warnings_of(caplog)
    assert "for head 0: errors are multiplied by [100, " in said and "sigma_v=[1, 0.01, 0.01]" in said
    assert "\n" not in said and "without any reward" not in said
    fed(blind, sigma_v=[1.0, 0.01, 0.01])  # as it has been told
    fed(heads(steps(VARYING, 0.0), steps(VARYING, 0.9), steps(CONSTANT, 0.99)))
    fed(heads(steps(NONE, 0.9), steps(VARYING, 0.9)), sigma_v=[0.3, 0.01])  # the spread of values, measured
    assert not warnings_of(caplog)

    for moments, sigma_v, head, floor in (
        (heads(steps(VARYING, 0.9), steps(-30 * CONSTANT, 0.0)), 0.5, "1", "[0.5, 30]"),  # too small by far
        (heads(steps(1e-4 * VARYING, 0.0)), 1e-2, "0", "[0.000141]"),  # tiny rewards: the floor comes down
        (heads(steps(CONSTANT, 1.0, length=10**6)), 1e-2, "0", "[1]"),  # a lone head that nothing ever ends
        (heads(steps(CONSTANT, 0.0), *[steps(5 * CONSTANT, 0.0)] * 2), 1e-2, "0, 1, 2", "[1, 5, 5]"),
    ):
        fed(moments, sigma_v)
        (said,) = warnings_of(caplog)
        assert f"for head {head}:" in said and f"sigma_v={floor}" in said
    fed(heads(steps(NONE, 0.9), steps(VARYING, 0.9)))
    (said,) = warnings_of(caplog)
    assert "for head 0:" in said and "of heads without any reward, the spread" in said


def test_a_floor_in_units_is_named_as_what_it_is(fed, caplog):
    """Rewards of 30, discount 0: sigma 0 and unit 30, hence a floor of 0.3, and first errors of 30, which is 1 unit."""
    caplog.set_level(logging.WARNING)
    fed(heads(steps(30.0 * CONSTANT, 0.0)), floor_in_units=True)
    (said,) = warnings_of(caplog)
    assert "below its floor sigma_v times the unit for head 0: errors are multiplied by [3.33]" in said
    assert said.endswith("the size of the first errors, sqrt(sigma^2 + E[R]^2) / unit: sigma_v=[1]")
    # Mean rewards of 6 that vary by 1: a floor of 0.01 units is the size of the first errors, though above sigma.
    fed(heads(steps(6.0 + VARYING, 0.99, length=10**5)), floor_in_units=True)
    assert not warnings_of(caplog)


def test_what_is_not_judged(fed, caplog):
    caplog.set_level(logging.WARNING)
    fed(heads(steps(CONSTANT[:999], 0.0)))
    fed(ReturnMoments.from_steps(CONSTANT, 0.0 * CONSTANT))  # returns follow later
    assert not warnings_of(caplog)
    fed(heads(steps(CONSTANT, 0.0)), scaling=False)
    assert not warnings_of(caplog)


def test_a_scale_without_steps_says_so_once(caplog):
    scale = NumpyScaling(sigma_v=0.02)
    for _ in range(2):
        scale()
    (said,) = (record.getMessage() for record in caplog.records)
    assert "multiplies errors by up to 50. Before the errors, play in the environment that" in said
    assert said.endswith("collect_returns wraps, in this process, or call merge_state(moments)")
    assert "\n" not in said
    caplog.clear()
    NumpyScaling(floor_in_units=True)()
    (said,) = (record.getMessage() for record in caplog.records)
    assert said.startswith(
        "ReturnScaling has not seen any step yet: errors are divided by their own root mean square. "
    )
