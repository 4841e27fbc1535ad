import numpy as np
import pytest
import tensorflow as tf

from agents.errors import RunFolderError
from agents.storage import best
from agents.storage.best import Best


@pytest.fixture
def variables():
    """A stand-in for a network; their value says which update they are of."""
    return [tf.Variable(tf.zeros((2, 3))), tf.Variable(0, dtype=tf.int64)]


def offer(keeper, variables, update, *returns):
    for variable in variables:
        variable.assign(tf.cast(tf.fill(variable.shape, update), variable.dtype))
    return keeper.offer(update, np.array(returns, float), variables)


def kept(root, variables):
    found = best.load(root, variables)
    assert [float(tf.reduce_max(v)) for v in variables] == [found.update] * len(variables)
    return found


def test_the_weights_of_the_highest_mean_stay(tmp_path, variables):
    keeper = Best(tmp_path)
    assert best.load(tmp_path, variables) is None and not offer(keeper, variables, 5, np.nan)
    offered = [offer(keeper, variables, 10, -5.0, -7.0), offer(keeper, variables, 20, 4.0, 2.0, 3.0)]
    offered += [offer(keeper, variables, 30, 9.0, -9.0), offer(keeper, variables, 40, 3.0)]
    assert offered == [True, True, False, False]
    assert kept(tmp_path, variables) == (20, 3.0, 3)
    resumed = Best(tmp_path)
    assert not offer(resumed, variables, 50, 2.0)
    assert kept(tmp_path, variables).update == 20
    assert offer(resumed, variables, 60, 9.0)
    assert kept(tmp_path, variables).update == 60


def test_a_damaged_file_is_replaced_by_the_best_of_what_comes(tmp_path, variables, caplog):
    offer(Best(tmp_path), variables, 10, 8.0)
    path = tmp_path / "best.npz"
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"not a zip file", content[:-1]):
        path.write_bytes(damaged)
        with pytest.raises(RunFolderError, match=r"best\.npz is damaged"):
            best.load(tmp_path, variables)
        caplog.clear()
        keeper = Best(tmp_path)
        assert "best.npz is damaged" in caplog.text
        offer(keeper, variables, 20, 1.0)
        assert kept(tmp_path, variables).update == 20


def test_what_cannot_be_written_leaves_the_old_file(tmp_path, variables, file_size_limit):
    keeper = Best(tmp_path)
    offer(keeper, variables, 10, 8.0)
    with file_size_limit(100), pytest.raises(RunFolderError, match=r"Cannot write to .*best.npz: "):
        offer(keeper, variables, 20, 9.0)
    assert [path.name for path in tmp_path.iterdir()] == ["best.npz"]
    assert kept(tmp_path, variables).update == 10
    with pytest.raises(
        RunFolderError,
        match=r"best.npz does not fit config.gin, which was edited, or comes from a different version",
    ):
        best.load(tmp_path, variables[:1])


def dense(*names):
    """Variables of layers of the same size, made in this order."""
    layers = [tf.keras.layers.Dense(4, name=name) for name in names]
    for layer in layers:
        layer(tf.zeros((1, 4)))
    return [variable for layer in layers for variable in layer.variables]


def test_weights_of_a_network_in_another_order_are_refused(tmp_path):
    core_first, heads_first = dense("core", "heads"), dense("heads", "core")
    offer(Best(tmp_path), core_first, 10, 8.0)
    for other in (heads_first, core_first[:2], [*core_first, tf.Variable(0.0, name="more")]):
        before = [variable.numpy() for variable in other]
        with pytest.raises(RunFolderError, match=r"config\.gin.*: it holds .* where the network has "):
            best.load(tmp_path, other)
        np.testing.assert_array_equal(
            np.concatenate([v.numpy().ravel() for v in other]), np.concatenate([v.ravel() for v in before])
        )
    assert kept(tmp_path, dense("core", "heads")).update == 10


def test_weights_of_other_shapes_or_dtypes_are_refused_though_they_are_as_many_bytes(tmp_path):
    offer(Best(tmp_path), [tf.Variable(tf.zeros((2, 3)), name="w")], 10, 8.0)
    for other in (tf.zeros((3, 2)), tf.zeros((2, 3), tf.int32)):
        with pytest.raises(
            RunFolderError, match=r"it holds w:0 \(float32 \[2, 3\]\) where the network has w:0 "
        ):
            best.load(tmp_path, [tf.Variable(other, name="w")])


def test_a_network_that_is_made_again_in_one_process_takes_its_weights(tmp_path):
    first, again = (dense(None, None) for _ in range(2))  # Keras counts: dense, dense_1; dense_2, dense_3
    offer(Best(tmp_path), first, 10, 8.0)
    assert kept(tmp_path, again).update == 10
