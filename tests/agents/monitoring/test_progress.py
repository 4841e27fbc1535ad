import io

import pytest

from agents.monitoring.progress import RATE_WINDOW, Progress, Snapshot, format_line


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_shows_everything_that_is_known():
    snapshot = Snapshot(
        updates=1500,
        total_updates=20_000,
        steps=48_000,
        frames=192_000,
        episode_return=12.345678,
        eval_return=-14.0,
        steps_per_second=3894.2,
        updates_per_second=6.12,
        elapsed=245.4,
        left=3 * 3600 + 59.6,
    )
    assert format_line(snapshot) == (
        "updates 1,500/20,000 (7%)  steps 48,000 (192,000 frames)  return 12.35  eval -14  "
        "3,894 steps/s  6.12 updates/s  elapsed 0:04:05  left 3:01:00"
    )


def test_a_line_marks_what_is_not_known_yet_and_leaves_frames_out_where_there_are_none():
    assert format_line(Snapshot(updates=0, total_updates=10, steps=0)) == (
        "updates 0/10 (0%)  steps 0  return -  eval -  - steps/s  - updates/s  elapsed 0:00:00  left -"
    )


def test_large_and_small_returns_stay_readable():
    line = format_line(Snapshot(1, 1, 1, episode_return=1_234_567.8, eval_return=0.00123456))
    assert "return 1,234,568  eval 0.001235" in line


def test_a_log_gets_a_whole_line_when_the_interval_has_passed_and_one_at_the_end():
    clock, stream = Clock(), io.StringIO()
    progress = Progress(100, stream=stream, clock=clock)
    for second in range(1, 26):
        clock.now += 1
        progress.update(updates=second, steps=32 * second)
    progress.done()
    assert [line.split("  ")[0] for line in stream.getvalue().splitlines()] == [
        "updates 10/100 (10%)",
        "updates 20/100 (20%)",
        "updates 25/100 (25%)",
    ]


def test_a_terminal_gets_one_line_that_is_refreshed_and_never_wraps(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    clock, stream = Clock(), Terminal()
    progress = Progress(100, stream=stream, clock=clock)
    for updates in (1, 2, 3):
        clock.now += 0.5
        progress.update(updates, steps=updates)
    progress.done()
    drawn = stream.getvalue()
    assert drawn.endswith("\n") and drawn.count("\n") == 1
    lines = [line.rstrip("\n").removesuffix("\x1b[K") for line in drawn.split("\r")[1:]]
    assert len(lines) == 4
    assert max(map(len, lines)) == 29


def test_what_is_said_stands_on_a_line_of_its_own():
    terminal, log = Terminal(), io.StringIO()
    for stream in (terminal, log):
        Progress(1, stream=stream, clock=Clock()).say("Checkpoint saved.")
    assert log.getvalue() == "Checkpoint saved.\n"
    assert terminal.getvalue() == "\r\x1b[KCheckpoint saved.\n"


def test_the_return_is_the_mean_of_the_last_episodes_and_an_evaluation_stays_until_the_next():
    clock = Clock()
    progress = Progress(10, last_episodes=3, stream=io.StringIO(), clock=clock)
    progress.update(1, 1, returns=[100.0, 1.0], eval_return=7.0)
    progress.update(2, 2, returns=[2.0, 6.0])
    snapshot = progress.snapshot(clock())
    assert (snapshot.episode_return, snapshot.eval_return) == (3.0, 7.0)


def test_rates_and_time_left_follow_the_last_minute():
    clock = Clock()
    progress = Progress(1000, frames_per_step=4, stream=io.StringIO(), clock=clock)
    clock.now += 300  # the first update waits for the graph and the replay
    progress.update(0, 640)
    for second in range(1, int(RATE_WINDOW) + 11):
        clock.now += 1
        progress.update(updates=5 * second, steps=640 + 320 * second)
    snapshot = progress.snapshot(clock())
    assert (snapshot.updates_per_second, snapshot.steps_per_second) == (5.0, 320.0)
    assert snapshot.left == (1000 - 5 * 70) / 5.0
    assert (snapshot.steps, snapshot.frames) == (640 + 320 * 70, 4 * (640 + 320 * 70))
    assert snapshot.elapsed == 370.0


def test_a_learner_that_lost_updates_counts_its_rates_from_where_it_goes_on():
    clock = Clock()
    progress = Progress(1000, stream=io.StringIO(), clock=clock)
    clock.now += 20
    progress.update(600, 6000)
    clock.now += 20
    progress.update(400, 4000)
    clock.now += 10
    progress.update(410, 4100)
    snapshot = progress.snapshot(clock.now)
    assert (snapshot.updates_per_second, snapshot.steps_per_second, snapshot.left) == (1.0, 10.0, 590.0)


def test_the_time_left_is_that_to_the_end_which_comes_first():
    clock = Clock()
    progress = Progress(10_000_000, total_steps=50_000, stream=io.StringIO(), clock=clock)
    clock.now += 10
    progress.update(500, 5000)
    snapshot = progress.snapshot(clock())
    assert snapshot.left == pytest.approx(90.0)
    assert "steps 5,000/50,000  " in format_line(snapshot)
    progress.update(9_999_500, 5000)
    assert progress.snapshot(clock()).left < 1.0


def test_a_resumed_run_counts_its_rates_from_where_it_goes_on():
    clock = Clock()
    progress = Progress(2000, updates=1000, steps=50_000, stream=io.StringIO(), clock=clock)
    clock.now += 10
    progress.update(1010, 50_100)
    snapshot = progress.snapshot(clock())
    assert snapshot.updates_per_second == pytest.approx(1.0)
    assert snapshot.steps_per_second == pytest.approx(10.0)
    assert snapshot.left == pytest.approx(990.0)
