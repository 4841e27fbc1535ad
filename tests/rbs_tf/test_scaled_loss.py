"""`ScaledLoss`: its statistics against NumPy's, its losses against errors scaled by hand, and what it refuses."""

import types

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.utils import common

from rbs_tf import ReturnMoments, ScaledLoss
from tests.scripted import A, B, expected

FIRST, MID, LAST = range(3)


def steps(*episodes):
    """Trajectories of one environment: rewards of each episode, and whether it ends in a terminal step.

    Each is (step_type, next_step_type, reward, discount); a boundary follows every episode, as in TF-Agents.
    """
    for rewards, terminal in episodes:
        for t, reward in enumerate(rewards):
            last = t == len(rewards) - 1
            yield FIRST if t == 0 else MID, LAST if last else MID, reward, 0.0 if last and terminal else 1.0
        yield LAST, FIRST, 0.0, 1.0


def trajectory(*rows, array=np.array):
    """One step of B environments from B rows."""
    columns = zip(*rows, strict=True)
    kinds = (np.int32, np.int32, np.float32, np.float32)
    names = ("step_type", "next_step_type", "reward", "discount")
    values = (array(np.array(column, kind)) for column, kind in zip(columns, kinds, strict=True))
    return types.SimpleNamespace(**dict(zip(names, values, strict=True)))


def observe(loss, *environments, **kinds):
    for rows in zip(*environments, strict=False):
        loss.observe(trajectory(*rows, **kinds))
    return loss


def assert_equal(loss, moments):
    np.testing.assert_allclose(loss.scaling.statistics, moments.to_array(), rtol=1e-10, atol=1e-10)


C = ([4.0, 4.0, 1.0, 0.5, 7.0], False)


@pytest.fixture(scope="module")
def seen() -> ScaledLoss:
    """It is not to be fed again."""
    return observe(ScaledLoss(gamma=0.9), steps(A, B, C), steps(C, A, B))


def test_statistics_are_those_of_the_episodes(seen):
    assert_equal(seen, expected(0.9, A, B, C, C, A, B))
    loss = observe(ScaledLoss(gamma=0.9), steps(A, B), array=tf.constant)
    assert_equal(loss, expected(0.9, A, B))


def test_observing_in_a_graph_without_a_batch_axis():
    loss = ScaledLoss(gamma=0.9)

    @tf.function
    def drive(rows):
        for row in rows:
            names = ("step_type", "next_step_type", "reward", "discount")
            kinds = (tf.int32, tf.int32, tf.float32, tf.float32)
            fields = (tf.cast(row[i], kind) for i, kind in enumerate(kinds))
            loss.observe(types.SimpleNamespace(**dict(zip(names, fields, strict=True))))

    drive(tf.constant([*steps(A, B, C)]))
    assert_equal(loss, expected(0.9, A, B, C))


def test_cuts():
    """Where episodes are left, and after the longest report."""
    left = observe(ScaledLoss(gamma=0.9, reward_scale_factor=-10.0), [*[*steps(C)][:2], *steps(A)])
    assert_equal(left, expected(0.9, ([-40.0, -40.0], False), (-10.0 * np.array(A[0]), True)))
    endless = observe(ScaledLoss(gamma=0.9, max_report_steps=2), steps(C))
    assert_equal(endless, expected(0.9, ([4.0, 4.0], False), ([1.0, 0.5], False), ([7.0], False)))


targets, predictions = np.random.default_rng(0).normal(0, 20, (2, 4, 7)).astype(np.float32)
sigma = expected(0.9, A, B, C, C, A, B).sigma[0]


def test_the_loss(seen):
    """Half the square of errors divided by sigma, unless another is given."""
    np.testing.assert_allclose(seen.scale, sigma, rtol=1e-10)
    scaled, prediction = (targets - predictions) / sigma, tf.constant(predictions)
    with tf.GradientTape() as tape:
        tape.watch(prediction)
        loss = seen(targets, prediction)
    np.testing.assert_allclose(loss, 0.5 * scaled**2, rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(loss, prediction), -scaled / sigma, rtol=1e-5)

    def given(loss_fn):
        loss = ScaledLoss(gamma=0.9, loss_fn=loss_fn)
        loss.scaling.merge_state(expected(0.9, A, B, C, C, A, B))
        return loss

    huber = given(common.element_wise_huber_loss)(targets, predictions)  # its threshold is 1 sigma
    size = np.abs(scaled)
    assert (size < 1).any() and (size > 1).any()
    np.testing.assert_allclose(huber, np.where(size < 1, 0.5 * size**2, size - 0.5), rtol=1e-5)
    below = given(lambda errors, zeros: tf.nn.relu(errors - zeros))
    np.testing.assert_allclose(below([5.0, -5.0], [0.0, 0.0]), [5.0 / sigma, 0.0], rtol=1e-6)


def test_value_losses(seen):
    square = tf.constant([8.0, 2.0])
    with tf.GradientTape() as tape:
        tape.watch(square)
        scaled = seen.scale_value_loss(square)
    np.testing.assert_allclose(scaled, square / sigma**2, rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(scaled, square), np.full(square.shape, 1 / sigma**2), rtol=1e-6)
    small = ScaledLoss(gamma=0.9, sigma_v=1e-30)  # whose square is 0 in float32
    small.scaling.merge_state(ReturnMoments.from_episode([1e-25, 3e-25], [0.9, 0.0]))
    assert float(small.scale_value_loss(1e-20)) == pytest.approx(1e-20 / float(small.scale) ** 2)


def test_a_compiled_loss_reads_the_current_statistics():
    loss = ScaledLoss(gamma=0.9)
    compiled, found = tf.function(loss, jit_compile=True), []
    for episode in (B, A):
        loss.scaling.merge_state(expected(0.9, episode))
        found.append(compiled(targets, predictions))
        np.testing.assert_allclose(found[-1], loss(targets, predictions), rtol=1e-6)
    assert not np.allclose(*found)


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "graph"])
def test_without_any_step_there_is_no_scale(wrap):
    loss = ScaledLoss(gamma=0.9)
    for call in (lambda: loss(targets, predictions), lambda: loss.scale_value_loss(tf.constant(50.0))):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"Add scaled_loss.observe to") as refused:
            wrap(call)()
        assert wrap is tf.function or "\n" not in refused.value.message


def test_what_is_not_finite_is_refused():
    loss, rows = ScaledLoss(gamma=0.9), [*steps(C, A)]
    observe(loss, rows[:2])
    for bad in (np.nan, np.inf):
        with pytest.raises(tf.errors.InvalidArgumentError, match="rewards must be finite"):
            loss.observe(trajectory((MID, MID, bad, 1.0)))
    observe(loss, rows[2:])
    assert_equal(loss, expected(0.9, C, A))


def test_what_does_not_fit_is_refused(seen):
    with pytest.raises(tf.errors.InvalidArgumentError, match="number of environments has changed"):
        seen.observe(trajectory((FIRST, MID, 1.0, 1.0)))
    step = vars(trajectory(*[(FIRST, MID, 1.0, 1.0)] * 3))
    wrong = [
        ({name: np.ones(shape, np.float32)}, name) for name, shape in (("reward", (1,)), ("discount", (3, 1)))
    ]
    wrong.append(({name: value[None] for name, value in step.items()}, ".*merge_state"))
    with pytest.raises(ValueError, match="reward must be real numbers; got complex64"):
        ScaledLoss(gamma=0.9).observe(types.SimpleNamespace(**step | {"reward": np.ones(3, np.complex64)}))
    for fields, words in wrong:  # which do not spread over environments
        loss = ScaledLoss(gamma=0.9)
        with pytest.raises(ValueError, match=rf"\[B\] or \[\] per field; got .*{words}"):
            loss.observe(types.SimpleNamespace(**step | fields))
        assert loss.scaling.moments.count == 0
    for name, value in (("gamma", 1.1), ("reward_scale_factor", np.inf), ("max_report_steps", 0)):
        with pytest.raises(ValueError, match=name):
            ScaledLoss(**{"gamma": 0.9, name: value})


def test_an_unknown_number_of_environments_is_refused():
    """A change of it would cut the open episodes; in a graph that knows it, these go on."""
    kinds = (tf.int32, tf.int32, tf.float32, tf.float32)

    def observe_in_a_graph(loss, size):
        @tf.function(input_signature=[tf.TensorSpec([size], kind) for kind in kinds])
        def graph(step_type, next_step_type, reward, discount):
            fields = (step_type, next_step_type, reward, discount)
            loss.observe(types.SimpleNamespace(**dict(zip(vars(trajectory(*rows[0])), fields, strict=True))))

        for row in rows:
            graph(*vars(trajectory(*row)).values())
        return loss

    rows = [*zip(steps(A, B), steps(B, A), strict=True)]
    assert_equal(observe_in_a_graph(ScaledLoss(gamma=0.9), 2), expected(0.9, A, B, B, A))
    with pytest.raises(ValueError, match="must know the number of environments when a graph is traced"):
        observe_in_a_graph(ScaledLoss(gamma=0.9), None)


def test_a_checkpoint_goes_on_in_mid_episode(tmp_path, seen):
    rows = [*zip(steps(A, B, C), steps(C, A, B), strict=True)]
    loss, again = ScaledLoss(gamma=0.9), ScaledLoss(gamma=0.9)
    for row in rows[:6]:
        loss.observe(trajectory(*row))
    path = tf.train.Checkpoint(loss=loss).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(loss=again).read(path).assert_consumed()
    for row in rows[6:]:
        again.observe(trajectory(*row))
    assert_equal(again, seen.scaling.moments)


def test_a_checkpoint_of_other_environments_cuts_episodes(tmp_path):
    loss, again = ScaledLoss(gamma=0.9), ScaledLoss(gamma=0.9)
    observe(loss, *[[*steps(A)][:2], [*steps(C)][:2], [*steps(C, A)][:2]])
    path = tf.train.Checkpoint(loss=loss).write(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(loss=again).read(path).assert_consumed()
    observe(again, steps(B, A))
    assert_equal(again, expected(0.9, (A[0][:2], False), *[(C[0][:2], False)] * 2, B, A))
