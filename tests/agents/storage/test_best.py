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


def test_a_damaged_file_is_refused_until_it_is_removed(tmp_path, variables):
    offer(Best(tmp_path), variables, 10, 8.0)
    path = tmp_path / "best.npz"
    path.write_bytes(path.read_bytes()[:-1])
    for read in (lambda: best.load(tmp_path, variables), lambda: Best(tmp_path)):
        with pytest.raises(RunFolderError, match=r"best\.npz is damaged .*Remove it"):
            read()


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


def test_weights_of_another_order_number_shape_or_dtype_are_refused(tmp_path):
    core_first, heads_first = dense("core", "heads"), dense("heads", "core")
    offer(Best(tmp_path), core_first, 10, 8.0)
    narrow = tf.Variable(tf.zeros((2, 8)), name="core/kernel")  # of as many bytes
    whole = tf.Variable(tf.zeros((4, 4), tf.int32), name="core/kernel")
    rest = core_first[1:]
    for other in (heads_first, core_first[:2], [*core_first, narrow], [narrow, *rest], [whole, *rest]):
        before = [variable.numpy() for variable in other]
        with pytest.raises(RunFolderError, match=r"config\.gin.*: it holds .* where the network has "):
            best.load(tmp_path, other)
        for variable, value in zip(other, before, strict=True):
            np.testing.assert_array_equal(variable, value)
    assert kept(tmp_path, dense("core", "heads")).update == 10


def test_a_network_that_is_made_again_in_one_process_takes_its_weights(tmp_path):
    first, again = (dense(None, None) for _ in range(2))  # Keras counts: dense, dense_1; dense_2, dense_3
    offer(Best(tmp_path), first, 10, 8.0)
    assert kept(tmp_path, again).update == 10


def test_a_file_from_before_names_were_kept_is_taken_by_its_size(tmp_path, variables):
    offer(Best(tmp_path), variables, 10, 8.0)
    with np.load(tmp_path / "best.npz") as arrays:
        older = {name: arrays[name] for name in arrays if name != "layout"}
    np.savez(tmp_path / "best.npz", **older)
    assert kept(tmp_path, variables).update == 10
    with pytest.raises(RunFolderError, match="different version"):
        best.load(tmp_path, variables[:1])
