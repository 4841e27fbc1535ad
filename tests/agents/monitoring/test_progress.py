import contextlib
import errno
import io
import os

import pytest

from agents.monitoring.progress import COMPILING, RATE_WINDOW, Progress


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
    clock, progress = started(20_000, total_steps=1_000_000)
    assert progress.line(clock.now) == (
        "left -  updates 0/20,000, -/s  return -  eval -  steps 0/1,000,000, -/s"
    )
    progress.update(1500, 48_000, returns=[9e9, *[24.691356, 0.0] * 50], eval_return=-1400.4)
    progress.update(1500, 48_000)
    assert progress.line(clock.now + 250) == (
        "left 0:51:23  updates 1,500/20,000, 6/s  return 12.35  eval -1,400  steps 48,000/1,000,000, 192/s"
    )
    assert started(10)[1].line(0.0).endswith("  steps 0, -/s")


def test_a_log_gets_a_whole_line_when_the_interval_has_passed_and_one_at_the_end():
    clock, progress = started(100)
    for second in range(1, 26):
        clock.now += 1
        progress.update(updates=second, steps=32 * second)
    progress.finish()
    assert [line.split("  ")[1] for line in progress._stream.getvalue().splitlines()] == [
        f"updates {done}/100, 1/s" for done in (10, 20, 25)
    ]


@pytest.mark.parametrize("columns, last", [(80, "steps 3, 2/s"), (6, "left ")])
def test_a_terminal_gets_one_line_that_is_refreshed_and_never_wraps(monkeypatch, columns, last):
    monkeypatch.setenv("COLUMNS", str(columns))
    clock, stream = Clock(), Terminal()
    progress = Progress(100, stream=stream, clock=clock)
    for updates in (1, 2, 3):
        clock.now += 0.5
        progress.update(updates, steps=updates)
    progress.finish()
    drawn = stream.getvalue()
    assert drawn.endswith("\n") and drawn.count("\n") == 1
    lines = [line.rstrip("\n").removesuffix("\x1b[K") for line in drawn.split("\r")[1:]]
    assert len(lines) == 4 and lines[-1].endswith(last), lines
    assert max(map(len, lines)) < columns


def test_what_is_done_once_is_shown_at_once_and_leaves_rates_and_time_left_alone():
    clock, stream = Clock(), Terminal()
    progress = Progress(100, stream=stream, clock=clock)
    progress.update(0, 640)
    progress.update(0, 640, doing=COMPILING)
    said = stream.getvalue()
    assert said.startswith("\rcompiling the update ...  updates 0/100, -/s  return -"), said
    assert "left" not in said
    progress.update(0, 640, doing=COMPILING)
    assert stream.getvalue() == said
    clock.now += 40
    progress.update(1, 640)
    clock.now += 2
    progress.update(11, 800)
    assert "left 0:00:18  updates 11/100, 5/s" in progress.line(clock.now)
    assert "steps 800, 80/s" in progress.line(clock.now)


class Closed(io.StringIO):
    """A stream whose reader has gone."""

    def __init__(self, number, file):
        super().__init__()
        self.number, self.file = number, file

    def fileno(self):
        return self.file.fileno()

    def write(self, text):
        raise OSError(self.number, os.strerror(self.number))


def test_a_reader_that_goes_away_ends_no_run_and_a_full_disk_does(tmp_path):
    for number in (errno.EIO, errno.EPIPE, errno.ENOSPC):
        with open(tmp_path / "terminal", "w") as file:
            progress = Progress(1, stream=Closed(number, file), clock=Clock())
            with pytest.raises(OSError) if number == errno.ENOSPC else contextlib.nullcontext():
                progress.say("Resumed.")
            gone = os.path.samestat(os.fstat(file.fileno()), os.stat(os.devnull))
            assert gone == (number != errno.ENOSPC)


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
    assert "left 0:02:10  updates 350/1,000, 5/s" in progress.line(clock.now)
    assert "steps 23,040, 320/s" in progress.line(clock.now)


def test_rates_are_counted_from_where_a_learner_goes_on_and_time_to_the_end_which_comes_first():
    clock, progress = started(2000, updates=600, steps=6000)
    clock.now += 10
    progress.update(610, 6100)
    assert "left 0:23:10  updates 610/2,000, 1/s" in progress.line(clock.now)
    progress.update(400, 4000)  # it has lost updates
    clock.now += 10
    progress.update(410, 4100)
    assert "left 0:26:30  updates 410/2,000, 1/s" in progress.line(clock.now)
    assert "steps 4,100, 10/s" in progress.line(clock.now)
    clock, progress = started(10_000_000, total_steps=50_000)
    clock.now += 10
    progress.update(500, 5000)
    assert "left 0:01:30  updates 500/10,000,000, 50/s" in progress.line(clock.now)
    assert "  steps 5,000/50,000, 500/s" in progress.line(clock.now), "what ends the run"


def test_an_evaluation_takes_the_place_of_the_progress_now_and_then():
    for stream, shown in ((Terminal(), "\revaluating\x1b[K"), (io.StringIO(), "evaluating\n")):
        clock = Clock()
        progress = Progress(100, stream=stream, clock=clock)
        for words in ("evaluating", "evaluating", ""):
            progress.show_evaluation(words)
            clock.now += 20
        assert stream.getvalue() == shown
