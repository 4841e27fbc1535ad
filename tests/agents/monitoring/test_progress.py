import io

from agents.monitoring.progress import RATE_WINDOW, Progress


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def started(total_updates, **options):
    clock = Clock()
    return clock, Progress(total_updates, stream=io.StringIO(), clock=clock, **options)


def test_a_line_shows_everything_that_is_known_and_a_dash_for_the_rest():
    clock, progress = started(20_000, total_steps=1_000_000, frames_per_step=4)
    assert progress.line(clock.now) == (
        "updates 0/20,000 (0%)  steps 0/1,000,000 (0 frames)  return -  eval -  - steps/s  - updates/s  "
        "elapsed 0:00:00  left -"
    )
    progress.update(
        1500, 48_000, returns=[9e9, *[24.691356, 0.0] * 50], eval_return=-1400.4, waits=(0.25, 0.5)
    )
    progress.update(1500, 48_000)
    assert progress.line(clock.now + 250) == (
        "updates 1,500/20,000 (7%)  steps 48,000/1,000,000 (192,000 frames)  return 12.35  eval -1,400  "
        "192 steps/s  6 updates/s  waiting: learner 25%, collectors 50%  elapsed 0:04:10  left 0:51:23"
    )
    assert "  steps 0  " in started(10)[1].line(0.0)


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
    for stream, said in ((Terminal(), "\r\x1b[KCheckpoint saved.\n"), (io.StringIO(), "Checkpoint saved.\n")):
        progress = Progress(1, stream=stream, clock=Clock())
        for text in ("Checkpoint saved.", "Checkpoint saved.", None):
            progress.say_once(text)
        assert stream.getvalue() == said


def test_rates_and_time_left_follow_the_last_minute():
    clock, progress = started(1000)
    clock.now += 300  # the first update waits for the graph and the replay
    progress.update(0, 640)
    for second in range(1, int(RATE_WINDOW) + 11):
        clock.now += 1
        progress.update(updates=5 * second, steps=640 + 320 * second)
    assert "  320 steps/s  5 updates/s  elapsed 0:06:10  left 0:02:10" in progress.line(clock.now)


def test_rates_are_counted_from_where_a_learner_goes_on():
    clock, progress = started(2000, updates=600, steps=6000)
    clock.now += 10
    progress.update(610, 6100)
    assert "  10 steps/s  1 updates/s  elapsed 0:00:10  left 0:23:10" in progress.line(clock.now)
    progress.update(400, 4000)  # it has lost updates
    clock.now += 10
    progress.update(410, 4100)
    assert "  10 steps/s  1 updates/s  elapsed 0:00:20  left 0:26:30" in progress.line(clock.now)


def test_the_time_left_is_that_to_the_end_which_comes_first():
    clock, progress = started(10_000_000, total_steps=50_000)
    clock.now += 10
    progress.update(500, 5000)
    assert "left 0:01:30" in progress.line(clock.now)
    progress.update(9_999_500, 5000)
    assert "left 0:00:00" in progress.line(clock.now)


def test_an_evaluation_takes_the_place_of_the_progress_now_and_then():
    for stream, shown in ((Terminal(), "\revaluating\x1b[K"), (io.StringIO(), "evaluating\n")):
        clock = Clock()
        progress = Progress(100, stream=stream, clock=clock)
        for words in ("evaluating", "evaluating", ""):
            progress.playing(words)
            clock.now += 20
        assert stream.getvalue() == shown
