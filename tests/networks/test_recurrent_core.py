import numpy as np
import pytest
import tensorflow as tf

from networks import RecurrentCore

T, B, D, U = 7, 3, 4, 5


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def built_core(seed=0):
    core = RecurrentCore(U, seed=seed)
    core.build(tf.TensorShape((T, B, D)))
    return core


def never_first(steps=T):
    return np.zeros((steps, B), bool)


STATE = (normal(B, U, seed=1), normal(B, U, seed=2))


def numpy_lstm(core, inputs, first, state):
    """The textbook's LSTM, one step after the other, in float64."""
    W, R, b = (variable.numpy().astype(np.float64) for variable in (core.W, core.R, core.b))
    h, c = (part.astype(np.float64) for part in state)
    rows = []
    for x, start in zip(inputs.astype(np.float64), first, strict=True):
        h, c = (np.where(start[:, None], 0.0, part) for part in (h, c))
        i, f, g, o = np.split(x @ W + h @ R + b, 4, axis=-1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        rows.append(h)
    return np.stack(rows), (h, c)


def test_it_is_an_lstm_with_resets():
    core, inputs = built_core(), normal(T, B, D)
    first = np.random.default_rng(3).random((T, B)) < 0.3
    outputs, state = core(inputs, first, STATE)
    expected_outputs, expected_state = numpy_lstm(core, inputs, first, STATE)
    np.testing.assert_allclose(outputs, expected_outputs, atol=1e-6)
    np.testing.assert_allclose(state, expected_state, atol=1e-6)


def test_values_and_gradients_are_those_of_keras_with_the_same_weights():
    core, inputs = built_core(), tf.constant(normal(T, B, D))
    initial = tuple(tf.constant(part) for part in STATE)
    keras_lstm = tf.keras.layers.LSTM(U, return_sequences=True, return_state=True, time_major=True)
    keras_lstm.build((T, B, D))
    keras_lstm.set_weights([core.W.numpy(), core.R.numpy(), core.b.numpy()])
    weighting = normal(T, B, U, seed=4)

    def loss_and_gradients(run, variables):
        with tf.GradientTape() as tape:
            tape.watch((inputs, initial))
            outputs, (hidden, cell) = run()
            loss = tf.reduce_sum(outputs * weighting) + tf.reduce_sum(hidden * cell)
        return [outputs, hidden, cell, *tape.gradient(loss, [*variables, inputs, *initial])]

    def run_keras():
        outputs, hidden, cell = keras_lstm(inputs, initial_state=initial)
        return outputs, (hidden, cell)

    ours = loss_and_gradients(lambda: core(inputs, never_first(), initial), [core.W, core.R, core.b])
    theirs = loss_and_gradients(run_keras, keras_lstm.trainable_variables)
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)


def test_no_gradient_crosses_a_reset():
    core, inputs = built_core(), tf.constant(normal(T, B, D))
    initial = tuple(tf.constant(part) for part in STATE)
    first = never_first()
    first[4, 1] = True
    with tf.GradientTape() as tape:
        tape.watch((inputs, initial))
        outputs, _ = core(inputs, first, initial)
        loss = tf.reduce_sum(tf.square(outputs[4:]))
    to_inputs, to_state = tape.gradient(loss, (inputs, initial))
    reached = np.any(to_inputs.numpy() != 0.0, axis=-1)
    assert reached[:, [0, 2]].all() and reached[4:, 1].all()
    assert not reached[:4, 1].any()
    for part in to_state:
        assert np.any(part.numpy() != 0.0, axis=-1).tolist() == [True, False, True]


def test_a_reset_forgets_even_what_is_not_a_number():
    core, inputs, first = built_core(), tf.constant(normal(T, B, D)), never_first()
    broken = tuple(tf.fill((B, U), leftover) for leftover in (np.inf, np.nan))
    first[0] = True
    with tf.GradientTape() as tape:
        tape.watch((inputs, broken))
        outputs, _ = core(inputs, first, broken)
    for found in [outputs, *tape.gradient(outputs, [inputs, *broken, *core.trainable_variables])]:
        assert np.isfinite(found).all()


def test_the_first_weights():
    core = RecurrentCore(80, seed=0)
    core.build(tf.TensorShape((T, B, 40)))
    np.testing.assert_array_equal(core.b, np.repeat((0.0, 1.0, 0.0, 0.0), 80))
    for weights in (core.W, core.R):
        assert np.var(weights) == pytest.approx(1 / 120, rel=0.05)
