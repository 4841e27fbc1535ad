"""Progress of a run in the terminal: one line that is refreshed, or one line now and then in a log file."""

from __future__ import annotations

import collections
import datetime
import errno
import math
import os
import select
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from typing import TextIO

from agents.monitoring.tags import RETURN, SCALED, SIGMA, UNSCALED
from rbs_tf import scores

RATE_WINDOW = 60.0  # seconds; holds evaluations and checkpoints, and still follows a change
COMPILING = "compiling the update"
_EPISODES = 100  # that the return is the mean of


class Progress:
    """Draws the progress of a run; costs nothing to update often.

    Args:
      total_updates, total_steps: where the run ends, whichever comes first; without `total_steps` only updates count.
      updates, steps: where it starts.
      stream: a terminal gets one line that is refreshed, as far as it fits; anything else whole lines.
      clock: seconds that only grow.
    """

    def __init__(
        self,
        total_updates: int,
        *,
        total_steps: int | None = None,
        updates: int = 0,
        steps: int = 0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._total_updates, self._total_steps = total_updates, total_steps
        self._updates = updates
        self._steps = steps
        self._doing = ""
        self._returns: collections.deque[float] = collections.deque(maxlen=_EPISODES)
        self._eval_return: float | None = None
        self._said: set[str] = set()
        self._stream = sys.stdout if stream is None else stream
        self._refreshed = self._stream.isatty()
        self._interval = 0.5 if self._refreshed else 10.0  # seconds between two lines
        self._clock = clock
        self._drawn = clock()
        self._marks = collections.deque([(self._drawn, steps, updates)])  # what the rates are taken from

    def update(
        self,
        updates: int,
        steps: int,
        returns: Iterable[float] = (),
        eval_return: float | None = None,
        doing: str = "",
    ) -> None:
        """Takes the current counts, and what is new since the last call.

        Args:
          updates, steps: of the learner, and of all environments together.
          returns: of finished episodes.
          eval_return: mean of an evaluation.
          doing: what the learner does only once, such as compiling. It is shown at once, and rates count from its end.
        """
        now = self._clock()
        begins = doing and not self._doing
        # A learner that goes on from its checkpoint, or has done what does not come again.
        if updates < self._updates or steps < self._steps or (self._doing and not doing):
            self._marks = collections.deque([(now, steps, updates)])
        self._updates = updates
        self._steps = steps
        self._doing = doing
        self._returns.extend(returns)
        self._eval_return = self._eval_return if eval_return is None else eval_return
        if begins or now - self._drawn >= self._interval:
            self._draw(now)

    def say(self, text: str) -> None:
        """Prints a line of its own above the progress."""
        erase = "\r\x1b[K" if self._refreshed else ""
        self._write(f"{erase}{text}\n")

    def say_once(self, text: str | None) -> None:
        """Prints a line of its own, unless the text is empty or has been printed before."""
        if text and text not in self._said:
            self._said.add(text)
            self.say(text)

    def show_evaluation(self, words: str) -> None:
        """Shows what an evaluation has come to so far, now and then, in place of the progress."""
        now = self._clock()
        if words and now - self._drawn >= self._interval:
            self._show(words, now)

    def finish(self) -> None:
        """Draws the last state and ends the line."""
        self._draw(self._clock())
        if self._refreshed:
            self._write("\n")

    def line(self, now: float) -> str:
        """The line that is drawn at `now`, without its end; a dash stands for what is not known yet."""
        then, steps, updates = self._marks[0]
        rates: list[float | None] = [None, None]
        if now > then:
            rates = [(self._updates - updates) / (now - then), (self._steps - steps) / (now - then)]
        ahead = [self._total_updates - self._updates]
        end = ""
        if self._total_steps is not None:
            ahead.append(self._total_steps - self._steps)
            end = f"/{self._total_steps:,}"
        times = [max(n, 0) / rate for n, rate in zip(ahead, rates, strict=False) if rate]
        left = str(datetime.timedelta(seconds=round(min(times)))) if times else "-"
        fields = [  # as far as the returns they fit 80 columns
            f"{self._doing} ..." if self._doing else f"left {left}",
            f"updates {self._updates:,}/{self._total_updates:,}, {_format_number(rates[0])}/s",
            f"return {_format_number(sum(self._returns) / len(self._returns) if self._returns else None)}",
            f"eval {_format_number(self._eval_return)}",
            f"steps {self._steps:,}{end}, {_format_number(rates[1])}/s",
        ]
        return "  ".join(fields)

    def _draw(self, now: float) -> None:
        self._show(self.line(now), now)
        self._marks.append((now, self._steps, self._updates))
        while len(self._marks) > 1 and now - self._marks[1][0] >= RATE_WINDOW:
            self._marks.popleft()

    def _show(self, line: str, now: float) -> None:
        self._drawn = now
        if self._refreshed:
            room = shutil.get_terminal_size().columns - 1  # a line that wraps cannot be refreshed
            self._write(f"\r{line[:room]}\x1b[K")
        else:
            self._write(line + "\n")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EPIPE):
                raise
            _say_nothing_to(self._stream)  # nobody reads it any more, and the run goes on


def say_nothing_to_closed(*streams: TextIO) -> bool:
    """Redirects streams to /dev/null whose terminal is closed or whose pipe nobody reads: writing to them would raise.

    Returns:
      whether there were any.
    """
    found = False
    for stream in streams:
        look = select.poll()
        try:
            look.register(stream.fileno(), 0)
        except (OSError, ValueError):  # a stand-in for a stream
            continue
        if any(what & (select.POLLERR | select.POLLHUP) for _, what in look.poll(0)):
            _say_nothing_to(stream)
            found = True
    return found


def nobody_reads(error: BaseException) -> bool:
    """Says whether an error means that the reader of this program's output has gone, as `head` does: it may end."""
    return isinstance(error, BrokenPipeError) and say_nothing_to_closed(sys.stdout, sys.stderr)


def _say_nothing_to(stream: TextIO) -> None:
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def closing_words(
    updates: int, steps: int, final_return: float, evaluated: str | None, best: str | None, game: str | None
) -> str:
    """Tells how a run went.

    Args:
      final_return: of the last evaluation; NaN if there was none.
      evaluated: how many episodes it had, and which head acted.
      best: the best evaluation, if it was another one.
      game: of Atari, for its human-normalised score.
    """
    words = f"{updates:,} updates from {steps:,} environment steps."
    if not math.isnan(final_return):
        words += f"\nLast evaluation: {final_return:.4g} per episode, {evaluated}."
        if scores.has_score(game):
            normalised = scores.human_normalised_score(game, final_return)
            words += f" Human-normalised: {normalised:.3g} (0 is random, 1 is human)."
        words += f"\nBest evaluation: {best}." if best else ""
    return f"{words}\nIn TensorBoard: {RETURN}; {UNSCALED} beside {SCALED}; {SIGMA}; bandit."


def _format_number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
