"""What the windows of an episode hold, for episodes of every length and rounds of every size."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tf_agents.trajectories.time_step import StepType

from agents.replay.windows import Block, Rows, SequenceCutter, Window
from agents.storage.state import from_bytes, to_bytes
from agents.targets import SequenceShape, Steps

MID = 1
PAPER = SequenceShape()
HEADS = 2


def episode(transitions: int, terminal: bool = True, number: int = 0) -> Rows:
    """Rows that say where they come from: row t observes (number, t) and its state is (number, t) as well."""
    t = np.arange(transitions + 1)
    step_type = np.full(transitions + 1, MID, np.int32)
    step_type[0], step_type[-1] = StepType.FIRST, StepType.LAST
    discount = np.ones(transitions + 1, np.float32)
    discount[-1] = 0.0 if terminal else 1.0
    where = np.stack([np.full(transitions + 1, number), t], axis=1)
    state = (where * (t > 0)[:, None]).astype(np.float32)
    return Rows(
        Steps(
            step_type=step_type,
            observation=(where + 1).astype(np.uint16),
            previous_action=np.where(t == 0, -1, t % 7).astype(np.int32),
            reward=np.where(t == 0, 0.0, 10.0 * number + t).astype(np.float32),
            discount=discount,
        ),
        core_state=(state, -state),
        taken_values=np.stack([t + 0.25, t + 0.5], axis=1).astype(np.float32),
        greedy_values=np.stack([t + 0.75, t + 1.0], axis=1).astype(np.float32),
    )


def rows_between(rows: Rows, start: int, end: int) -> Rows:
    return Rows(
        Steps(*(column[start:end] for column in rows.steps)),
        tuple(column[start:end] for column in rows.core_state),
        rows.taken_values[start:end],
        rows.greedy_values[start:end],
    )


def joined(*parts: Rows) -> Rows:
    return Rows(
        Steps(*(np.concatenate(columns) for columns in zip(*(part.steps for part in parts), strict=True))),
        tuple(np.concatenate(columns) for columns in zip(*(part.core_state for part in parts), strict=True)),
        np.concatenate([part.taken_values for part in parts]),
        np.concatenate([part.greedy_values for part in parts]),
    )


def windows_of(pieces: list, shape: SequenceShape) -> list[tuple[Steps, tuple, Window]]:
    """Reassembles what the table would hold: (steps with observations, core state, window)."""
    blocks, windows = [], []
    for piece in pieces:
        if isinstance(piece, Block):
            assert len(piece.steps.reward) == shape.block
            blocks.append(piece)
        else:
            own = blocks[-shape.blocks :]
            steps = Steps(*(np.concatenate(columns) for columns in zip(*(b.steps for b in own), strict=True)))
            windows.append((steps, own[0].core_state, piece))
    return windows


def cut(rows: Rows, shape: SequenceShape, round_size: int) -> list:
    cutter, pieces = SequenceCutter(shape), []
    for start in range(0, len(rows.steps.reward), round_size):
        pieces += cutter.cut(rows_between(rows, start, start + round_size))
    return windows_of(pieces, shape)


def times_trained(windows: list, shape: SequenceShape, transitions: int) -> np.ndarray:
    """How many windows train each transition of an episode, read off the rows themselves."""
    counts = np.zeros(transitions, int)
    for steps, _, _ in windows:
        trains = steps.step_type[shape.burn_in : shape.burn_in + shape.length] != StepType.LAST
        for t in steps.observation[shape.burn_in : shape.burn_in + shape.length][trains, 1].astype(int) - 1:
            counts[t] += 1
    return counts


def check_episode(windows: list, rows: Rows, shape: SequenceShape) -> None:
    transitions = len(rows.steps.reward) - 1
    starts = list(shape.starts(transitions))
    assert len(windows) == len(starts)
    for start, (steps, core_state, window) in zip(starts, windows, strict=True):
        wanted = np.arange(start - shape.burn_in, start + shape.length + shape.n_step)
        real = (wanted >= 0) & (wanted <= transitions)
        for got, source in zip(steps, rows.steps, strict=True):
            np.testing.assert_array_equal(got[real], source[wanted[real]])
        np.testing.assert_array_equal(window.taken_values[real], rows.taken_values[wanted[real]])
        np.testing.assert_array_equal(window.greedy_values[real], rows.greedy_values[wanted[real]])
        assert (steps.step_type[~real] == StepType.LAST).all() and (steps.previous_action[~real] == -1).all()
        assert not steps.observation[~real].any() and not steps.reward[~real].any()
        assert window.steps.observation is None
        for got, known in zip(steps, window.steps, strict=True):
            assert known is None or (got == known).all()
        entering = max(
            wanted[0], 0
        )  # The state that enters padding is the one that enters the episode: zeros.
        for got, source in zip(core_state, rows.core_state, strict=True):
            np.testing.assert_array_equal(got, source[entering])

    counts = times_trained(windows, shape, transitions)
    assert counts.min() >= 1, "every transition trains, the last one included"
    assert counts.max() <= -(-shape.length // shape.period)
    trained = sum(
        np.count_nonzero(steps.step_type[shape.burn_in : shape.burn_in + shape.length] != StepType.LAST)
        for steps, _, _ in windows
    )
    assert trained == counts.sum(), "padding trains nothing"


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("transitions", [1, 2, 39, 40, 41, 79, 80, 81, 200])
def test_every_transition_of_an_episode_is_accounted_for(transitions, terminal):
    rows = episode(transitions, terminal)
    windows = cut(rows, PAPER, round_size=16)
    check_episode(windows, rows, PAPER)
    final = [steps.discount[steps.observation[:, 1] == transitions + 1] for steps, _, _ in windows]
    assert set(np.concatenate(final)) == {0.0 if terminal else 1.0}


@pytest.mark.parametrize(
    ("transitions", "starts"),
    [(1, [0]), (80, [0]), (81, [0, 40]), (120, [0, 40]), (121, [0, 40, 80]), (200, [0, 40, 80, 120])],
)
def test_windows_of_the_paper(transitions, starts):
    assert list(PAPER.starts(transitions)) == starts


def test_the_first_window_of_an_episode_begins_with_padding_and_a_zero_state():
    ((steps, core_state, _),) = cut(episode(3), PAPER, round_size=2)
    assert steps.step_type[:25].tolist() == [StepType.LAST] * 20 + [
        StepType.FIRST,
        MID,
        MID,
        StepType.LAST,
        StepType.LAST,
    ]
    assert not core_state[0].any() and not core_state[1].any()


def test_the_stored_state_is_the_one_that_enters_the_windows_first_row():
    windows = cut(episode(200, number=5), PAPER, round_size=7)
    assert [state[0].tolist() for _, state, _ in windows] == [[0, 0], [5, 20], [5, 60], [5, 100]]


shapes = st.builds(
    lambda burn_in, length, period, n_step: SequenceShape(burn_in, length, min(period, length), n_step),
    st.integers(0, 6),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(1, 4),
)


@given(
    shapes, st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=4), st.integers(1, 50)
)
def test_windows_of_any_shape_never_cross_an_episodes_end(shape, lengths, round_size):
    episodes = [episode(length, terminal, number) for number, (length, terminal) in enumerate(lengths)]
    windows = cut(joined(*episodes), shape, round_size)
    for rows in episodes:
        count = len(shape.starts(len(rows.steps.reward) - 1))
        check_episode(windows[:count], rows, shape)
        windows = windows[count:]
    assert windows == []


@given(shapes, st.integers(1, 60), st.integers(1, 59))
def test_windows_of_an_unfinished_episode_are_the_first_of_the_finished_one(shape, transitions, seen):
    whole = episode(transitions)
    finished = cut(whole, shape, 100)
    unfinished = cut(rows_between(whole, 0, min(seen, transitions)), shape, 100)
    assert len(unfinished) <= len(finished)
    for (steps, _, _), (same, _, _) in zip(unfinished, finished, strict=False):
        assert all((a == b).all() for a, b in zip(steps, same, strict=True))


def test_pieces_are_copies_so_that_the_recorder_may_reuse_its_buffers():
    rows, cutter = episode(9), SequenceCutter(SequenceShape(0, 2, 2, 2))
    pieces = cutter.cut(rows)
    for column in rows.steps:
        column[:] = 77
    assert all((piece.steps.reward != 77).all() for piece in pieces)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (rows_between(episode(5), 1, 6), "a new episode"),
        (joined(rows_between(episode(5), 0, 3), episode(5)), "a new episode goes on"),
    ],
)
def test_a_stream_with_a_hole_is_refused(rows, words):
    with pytest.raises(ValueError, match=words):
        SequenceCutter(PAPER).cut(rows)


def test_a_hole_between_rounds_is_refused():
    cutter = SequenceCutter(PAPER)
    cutter.cut(rows_between(episode(5), 0, 3))
    with pytest.raises(ValueError, match="an unfinished episode"):
        cutter.cut(episode(5))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"period": 81}, "period = 80 or less"),
        ({"n_step": 0}, "n_step counts rows"),
        ({"burn_in": -1}, "burn_in counts rows"),
        ({"length": 2.5}, "length counts rows"),
    ],
)
def test_impossible_shapes_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        SequenceShape(**settings)


def test_rows_are_stored_in_blocks_that_divide_windows_and_their_distance():
    assert (PAPER.rows, PAPER.block, PAPER.blocks) == (105, 5, 21)


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    round_size=st.integers(1, 25),
    cut_at=st.integers(0, 150),
    shape=st.sampled_from([SequenceShape(2, 4, 2, 2), SequenceShape(0, 6, 4, 3), SequenceShape(3, 5, 5, 1)]),
)
def test_a_cutter_goes_on_where_another_was(lengths, round_size, cut_at, shape):
    rows = joined(*(episode(length, number=number) for number, length in enumerate(lengths)))
    whole, cutter, pieces = SequenceCutter(shape), SequenceCutter(shape), []
    expected = whole.cut(rows)
    for start in range(0, len(rows.steps.reward), round_size):
        if start <= cut_at < start + round_size:
            state, cutter = cutter.state(), SequenceCutter(shape)
            cutter.restore(from_bytes(to_bytes(state)))
        pieces += cutter.cut(rows_between(rows, start, start + round_size))
    assert [type(piece) for piece in pieces] == [type(piece) for piece in expected]
    for piece, same in zip(pieces, expected, strict=True):
        for column, other in zip(*map(tf.nest.flatten, (piece, same)), strict=True):
            np.testing.assert_array_equal(column, other)
            assert getattr(column, "dtype", None) == getattr(other, "dtype", None)
