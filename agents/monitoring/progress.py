"""Progress of a run in the terminal: one line that is refreshed, or one line now and then in a log file."""

from __future__ import annotations

import collections
import dataclasses
import math
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from typing import TextIO

from agents.tags import RETURN, SCALED, SIGMA, UNSCALED
from rbs_tf import scores

RATE_WINDOW = (
    60.0  # seconds; long enough to hold evaluations and checkpoints, short enough to follow a change
)


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """Contents of one line; None is what is not known yet, or does not apply.

    `updates`, `total_updates` count learner updates, `steps`, `total_steps` environment steps over all environments,
    `frames` what the emulator drew in them; `waits` the shares of time in which the learner waits for collectors, and
    they for it, in a distributed run; `elapsed` and `left` are seconds.
    """

    updates: int
    total_updates: int
    steps: int
    total_steps: int | None = None
    frames: int | None = None
    episode_return: float | None = None
    eval_return: float | None = None
    steps_per_second: float | None = None
    updates_per_second: float | None = None
    waits: tuple[float, float] | None = None
    elapsed: float = 0.0
    left: float | None = None


def format_line(snapshot: Snapshot) -> str:
    """Returns the line without a line end."""
    s = snapshot
    share = 100 * s.updates // max(s.total_updates, 1)
    end = "" if s.total_steps is None else f"/{s.total_steps:,}"
    frames = "" if s.frames is None else f" ({s.frames:,} frames)"
    fields = [
        f"updates {s.updates:,}/{s.total_updates:,} ({share}%)",
        f"steps {s.steps:,}{end}{frames}",
        f"return {_number(s.episode_return)}",
        f"eval {_number(s.eval_return)}",
        f"{_number(s.steps_per_second)} steps/s",
        f"{_number(s.updates_per_second)} updates/s",
        *([f"waiting: learner {s.waits[0]:.0%}, collectors {s.waits[1]:.0%}"] if s.waits else []),
        f"elapsed {_duration(s.elapsed)}",
        f"left {_duration(s.left)}",
    ]
    return "  ".join(fields)


class Progress:
    """Draws the progress of a run; costs nothing to update often.

    Args:
      total_updates, total_steps: where the run ends, whichever comes first; without `total_steps` updates alone count.
      updates, steps: where it starts, other than 0 when it goes on from a checkpoint.
      frames_per_step: frames that the emulator draws per environment step; None leaves frames out.
      last_episodes: how many finished episodes the return is the mean of.
      stream: where to write. A terminal gets one line that is refreshed, anything else whole lines.
      interval: seconds between two refreshes; by default 0.5 in a terminal, 10 elsewhere.
      clock: seconds that only grow.
    """

    def __init__(
        self,
        total_updates: int,
        *,
        total_steps: int | None = None,
        updates: int = 0,
        steps: int = 0,
        frames_per_step: int | None = None,
        last_episodes: int = 100,
        stream: TextIO | None = None,
        interval: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._total_updates, self._total_steps = total_updates, total_steps
        self._updates, self._steps = updates, steps
        self._frames_per_step = frames_per_step
        self._returns: collections.deque[float] = collections.deque(maxlen=last_episodes)
        self._said: set[str] = set()
        self._eval_return: float | None = None
        self._waits: tuple[float, float] | None = None
        self._stream = sys.stdout if stream is None else stream
        self._refreshed = self._stream.isatty()
        self._interval = interval if interval is not None else 0.5 if self._refreshed else 10.0
        self._clock = clock
        self._start = self._drawn = clock()
        self._marks = collections.deque([(self._start, steps, updates)])  # what the rates are taken from

    def update(
        self,
        updates: int,
        steps: int,
        returns: Iterable[float] = (),
        eval_return: float | None = None,
        waits: tuple[float, float] | None = None,
    ) -> None:
        """Takes the current counts, and what is new since the last call: episodes, an evaluation, shares of waiting."""
        now = self._clock()
        if updates < self._updates or steps < self._steps:  # a learner that goes on from its checkpoint
            self._marks = collections.deque([(now, steps, updates)])
        self._updates, self._steps = updates, steps
        self._returns.extend(returns)
        if eval_return is not None:
            self._eval_return = eval_return
        self._waits = waits or self._waits
        if now - self._drawn >= self._interval:
            self._draw(now)

    def say(self, text: str) -> None:
        """Prints a line of its own above the progress."""
        erase = "\r\x1b[K" if self._refreshed else ""
        self._stream.write(f"{erase}{text}\n")
        self._stream.flush()

    def say_once(self, text: str | None) -> None:
        """The same, unless there is nothing to say or it has been said."""
        if text and text not in self._said:
            self._said.add(text)
            self.say(text)

    def done(self) -> None:
        """Draws the last state and ends the line."""
        self._draw(self._clock())
        if self._refreshed:
            self._stream.write("\n")
            self._stream.flush()

    def snapshot(self, now: float) -> Snapshot:
        """Returns what a line drawn at `now` shows."""
        then, steps, updates = self._marks[0]
        seconds = now - then
        rates = (
            ((self._steps - steps) / seconds, (self._updates - updates) / seconds)
            if seconds > 0
            else (None, None)
        )
        ahead = [(self._total_updates - self._updates, rates[1])]
        if self._total_steps is not None:
            ahead.append((self._total_steps - self._steps, rates[0]))
        return Snapshot(
            updates=self._updates,
            total_updates=self._total_updates,
            steps=self._steps,
            total_steps=self._total_steps,
            frames=self._steps * self._frames_per_step if self._frames_per_step else None,
            episode_return=sum(self._returns) / len(self._returns) if self._returns else None,
            eval_return=self._eval_return,
            steps_per_second=rates[0],
            updates_per_second=rates[1],
            waits=self._waits,
            elapsed=now - self._start,
            left=min((max(count, 0) / rate for count, rate in ahead if rate), default=None),
        )

    def _draw(self, now: float) -> None:
        self._drawn = now
        line = format_line(self.snapshot(now))
        if self._refreshed:
            # A line that wraps cannot be refreshed.
            columns = shutil.get_terminal_size().columns
            self._stream.write(f"\r{line[: columns - 1]}\x1b[K")
        else:
            self._stream.write(line + "\n")
        self._stream.flush()
        self._marks.append((now, self._steps, self._updates))
        while len(self._marks) > 1 and now - self._marks[1][0] >= RATE_WINDOW:
            self._marks.popleft()


def closing_words(
    updates: int,
    steps: int,
    final_return: float,
    episodes: str | None = None,
    head: str | None = None,
    game: str | None = None,
) -> str:
    """Tells how a run went; `final_return` is NaN if nothing was evaluated."""
    words = f"{updates:,} updates from {steps:,} environment steps."
    if not math.isnan(final_return):
        words += f" Last evaluation: {final_return:.4g} per episode, {episodes}, greedy, head {head}."
        if scores.has_score(game):
            normalised = scores.human_normalised_score(game, final_return)
            words += f" Human-normalised: {normalised:.3g} (0 is random, 1 is human)."
    return f"{words}\nIn TensorBoard: {RETURN}; {UNSCALED} beside {SCALED}; {SIGMA}; bandit."


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
