"""What the windows of an episode hold, for episodes of every length and rounds of every size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tf_agents.trajectories.time_step import StepType

from agents.replay.rows import Piece, Rows, SequenceCutter
from agents.sequences import SequenceShape

MID = 1
PAPER = SequenceShape()


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
        step_type=step_type,
        observation=(where + 1).astype(np.uint16),
        previous_action=np.where(t == 0, -1, t % 7).astype(np.int32),
        reward=np.where(t == 0, 0.0, 10.0 * number + t).astype(np.float32),
        discount=discount,
        core_state=np.concatenate([state, -state], axis=1),
        taken_values=np.stack([t + 0.25, t + 0.5], axis=1).astype(np.float32),
        greedy_values=np.stack([t + 0.75, t + 1.0], axis=1).astype(np.float32),
        head=np.full(transitions + 1, number % 2, np.int32),
        epsilon=np.full(transitions + 1, 0.125, np.float32),
    )


def windows_of(pieces: list[Piece], shape: SequenceShape) -> list[tuple[Rows, np.ndarray, Rows]]:
    """Of each window its rows and its core state, as a table would hold them, and the window as it was handed out."""
    windows = []
    for index, piece in enumerate(pieces):
        assert len(piece.block) == shape.block
        if piece.sequence is not None:
            first = index + 1 - shape.blocks
            assert pieces[first].starts_sequence
            rows = Rows.concatenate([each.block for each in pieces[first : index + 1]])
            windows.append((rows, rows.core_state[0], piece.sequence))
    return windows


def cut(rows: Rows, shape: SequenceShape, round_size: int) -> list:
    """The windows of a stream that comes in rounds."""
    cutter, pieces = SequenceCutter(shape), []
    for start in range(0, len(rows), round_size):
        pieces += cutter.cut(rows[start : start + round_size])
    return windows_of(pieces, shape)


def check_episode(windows: list, rows: Rows, shape: SequenceShape) -> None:
    transitions = len(rows) - 1
    starts = list(shape.starts(transitions))
    assert len(windows) == len(starts)
    for start, (stored, core_state, window) in zip(starts, windows, strict=True):
        wanted = np.arange(start - shape.burn_in, start + shape.length + shape.n_step)
        real = (wanted >= 0) & (wanted <= transitions)
        assert_same(stored[real], rows[wanted[real]])
        assert (stored.step_type[~real] == StepType.LAST).all()
        assert (stored.previous_action[~real] == -1).all()
        assert not stored.observation[~real].any() and not stored.reward[~real].any()
        assert_same(window, stored.drop_stored())
        # The state that enters padding is the one that enters the episode: zeros.
        np.testing.assert_array_equal(core_state, rows.core_state[max(wanted[0], 0)])
    # Read off the rows themselves.
    training = Rows.concatenate([stored[shape.burn_in :][: shape.length] for stored, _, _ in windows])
    trained = training.observation[training.step_type != StepType.LAST, 1].astype(int) - 1
    assert trained.min() >= 0, "padding trains nothing"
    counts = np.bincount(trained, minlength=transitions)
    assert len(counts) == transitions and counts.min() >= 1, "every transition trains, the last one included"
    assert counts.max() <= -(-shape.length // shape.period)


def assert_same(rows: Rows, other: Rows) -> None:
    for name, column in vars(rows).items():
        np.testing.assert_array_equal(column, getattr(other, name), err_msg=name, strict=True)


def test_windows_of_the_paper():
    starts = {1: [0], 80: [0], 81: [0, 40], 120: [0, 40], 121: [0, 40, 80], 200: [0, 40, 80, 120]}
    assert {transitions: list(PAPER.starts(transitions)) for transitions in starts} == starts
    # Blocks divide windows and their distance.
    assert (PAPER.rows, PAPER.block, PAPER.blocks) == (105, 5, 21)
    with pytest.raises(ValueError, match="period = 80 or less"):
        SequenceShape(period=81)


shapes = st.builds(
    lambda burn_in, length, period, n_step: SequenceShape(burn_in, length, min(period, length), n_step),
    st.integers(0, 6),
    st.integers(1, 12),
    st.integers(1, 12),
    st.integers(1, 4),
)


@settings(max_examples=50)
@given(
    shapes, st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=4), st.integers(1, 50)
)
def test_windows_of_any_shape_never_cross_an_episodes_end(shape, lengths, round_size):
    episodes = [episode(length, terminal, number) for number, (length, terminal) in enumerate(lengths)]
    windows = cut(Rows.concatenate(episodes), shape, round_size)
    for rows in episodes:
        count = len(shape.starts(len(rows) - 1))
        check_episode(windows[:count], rows, shape)
        windows = windows[count:]
    assert windows == []


def test_pieces_are_copies_so_that_the_recorder_may_reuse_its_buffers():
    rows, cutter = episode(9), SequenceCutter(SequenceShape(0, 2, 2, 2))
    pieces = cutter.cut(rows[:6])
    for column in vars(rows).values():
        column[:6] = 77
    pieces += cutter.cut(rows[6:])
    for part in [piece.block for piece in pieces] + [piece.sequence for piece in pieces if piece.sequence]:
        assert all((column != 77).all() for column in vars(part).values() if column is not None)


def test_a_stream_with_a_hole_is_refused():
    whole = episode(5)
    for rows in ([whole[1:]], [Rows.concatenate([whole[:3], whole])], [whole[:3], whole]):
        cutter = SequenceCutter(PAPER)
        with pytest.raises(ValueError, match="A stream must run FIRST, MID"):
            for part in rows:
                cutter.cut(part)
