"""A user's alternative: Stable-Baselines3's DQN and sb3-contrib's QR-DQN on an Atari game, on one core.

    make rivals-venv
    .venv-rivals/bin/python -m benchmarks.rivals.sb3_atari --algorithm=dqn --game=pong --core=0

Settings are RL-Zoo's for Atari, run as they stand: exploration is planned over 1e7 steps, of which an hour on one core
makes a small part. The one exception is QR-DQN's replay: RL-Zoo leaves it at the library's million transitions, 56 GB
that a machine of 24 GB refuses at the start, so it gets the 100,000 that RL-Zoo gives DQN (5.6 GB).

At each quarter of --minutes one line goes to --out: wall and CPU minutes of training so far, environment steps (the
agent's decisions, 4 frames each), gradient updates, and the mean greedy return of 20 episodes. Evaluation does not
count as training time. Returns are undiscounted and unclipped, of whole games from the first life to the last, and
every evaluation of a run meets the same 20 seeded starts. An episode is cut at 18,000 frames (4,500 decisions, the
no-ops at its start included), well before the game's own 108,000, because a greedy player that never serves would play
Breakout for ever; a cut one counts with what it has scored.

There are two means because RL-Zoo trains with a wrapper that serves (FIRE) at the start of every life. In `mean_return`
it serves at the start of a game only: the player has to serve its other lives itself, which training never asked of it.
In `mean_return_served` it serves every life, as in training and as in RL-Zoo's own evaluation. Pong has no lives, so
there the two are one.

A run whose four lines are in --out is not repeated. One that was stopped starts again, and its lines are replaced: its
replay alone would be gigabytes to save. In --folder it leaves the scores of training (0.monitor.csv) and model.zip.
"""

from __future__ import annotations

import argparse
import csv
import fcntl
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
GAMES = {"pong": "PongNoFrameskip-v4", "breakout": "BreakoutNoFrameskip-v4"}
WITH_LIVES = {"breakout"}
PLANNED_STEPS = 10_000_000  # what schedules refer to; the clock stops a run long before
FRAME_STACK = 4
EPISODES = 20  # in an evaluation
MOST_FRAMES = 18_000  # in an episode of an evaluation
EVALUATION_SEED = 1_000_000  # added to the run's
REPLAY = 100_000  # transitions
SETTINGS: dict[
    str, dict[str, Any]
] = {  # hyperparams/dqn.yml and qrdqn.yml of DLR-RM/rl-baselines3-zoo, "atari"
    "dqn": {
        "buffer_size": REPLAY,
        "learning_rate": 1e-4,
        "batch_size": 32,
        "learning_starts": 100_000,
        "target_update_interval": 1000,
        "train_freq": 4,
        "gradient_steps": 1,
        "exploration_fraction": 0.1,
        "exploration_final_eps": 0.01,
        "optimize_memory_usage": False,
    },
    "qrdqn": {
        "buffer_size": REPLAY,  # not RL-Zoo's: see above
        "learning_starts": 50_000,
        "exploration_fraction": 0.025,
        "optimize_memory_usage": False,
    },
}


class Run(NamedTuple):
    """One training run; with the minutes, the key of its lines."""

    algorithm: str
    game: str
    seed: int


class Evaluation(NamedTuple):
    """Mean return of `EPISODES` greedy episodes, and how many of them were cut."""

    mean_return: float
    cut: int


FIELDS = [
    *Run._fields,
    "minutes",  # of training, wall clock
    "cpu_minutes",  # of training
    "environment_steps",  # decisions, 4 frames each
    "updates",
    "mean_return",
    "cut_episodes",
    "mean_return_served",
    "cut_episodes_served",
    "eval_episodes",
    "machine",
]
Line = dict[str, str]


class Stopwatch:
    """Wall and CPU minutes since it was made; what happens while it is paused does not count."""

    def __init__(
        self, wall: Callable[[], float] = time.perf_counter, cpu: Callable[[], float] = time.process_time
    ):
        self._clocks = wall, cpu
        self._starts = [wall(), cpu()]

    def minutes(self) -> tuple[float, float]:
        """Wall and CPU."""
        wall, cpu = ((clock() - start) / 60 for clock, start in zip(self._clocks, self._starts, strict=True))
        return wall, cpu

    @contextmanager
    def paused(self) -> Iterator[None]:
        before = [clock() for clock in self._clocks]
        yield
        for index, clock in enumerate(self._clocks):
            self._starts[index] += clock() - before[index]


def quarters(minutes: float) -> list[str]:
    """Minutes at which lines are written: the four quarters, as the table has them."""
    return [f"{minutes * quarter / 4:.6g}" for quarter in range(1, 5)]


def read(table: Path) -> list[Line]:
    """The table's lines; none if there is no such file.

    Raises:
      ValueError: its columns are others.
    """
    if not table.exists():
        return []
    with table.open(newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames is not None and list(reader.fieldnames) != FIELDS:
            raise ValueError(f"{table} has other columns than {', '.join(FIELDS)}; name another file")
        return list(reader)


def key(line: Line) -> tuple[str, ...]:
    return tuple(line[field] for field in Run._fields)


def is_finished(table: Path, run: Run, minutes: float) -> bool:
    """Says whether all four lines of the run are there."""
    there = {line["minutes"] for line in read(table) if key(line) == tuple(map(str, run))}
    return there.issuperset(quarters(minutes))


def write(table: Path, run: Run, minutes: float, lines: Sequence[Line]) -> None:
    """Puts the run's lines so far into the table, in place of those of an earlier attempt.

    Whoever reads meanwhile finds the table before or after, and two runs that write at once do not lose lines.
    """
    marks = quarters(minutes)
    folder = os.open(table.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        others = [
            line for line in read(table) if key(line) != tuple(map(str, run)) or line["minutes"] not in marks
        ]
        beside = table.with_name(f".{table.name}.new")
        with beside.open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
            writer.writeheader()
            writer.writerows([*others, *lines])
            file.flush()
            os.fsync(file.fileno())
        beside.replace(table)
    finally:
        os.close(folder)


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.split(": ", 1)[1] for line in lines if "model name" in line), platform.machine())


def environments(
    game: str,
    seed: int,
    copies: int = 1,
    monitor: Path | None = None,
    most_frames: int | None = None,
    **wrapper: bool,
) -> Any:
    """Games as RL-Zoo makes them: uint8 [copies, 4, 84, 84], scores counted beneath everything that alters them.

    Args:
      game: of `GAMES`.
      seed: of the no-ops at the start of a game, in the first copy; one more in each other.
      copies: that step together.
      monitor: a folder for the scores of its games.
      most_frames: until a game is cut; without it ALE's 108,000.
      wrapper: for `AtariWrapper`, whose defaults are RL-Zoo's for training and for evaluating.
    """
    from stable_baselines3.common.atari_wrappers import AtariWrapper
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecFrameStack, VecTransposeImage

    made = make_vec_env(
        GAMES[game],
        n_envs=copies,
        seed=seed,
        monitor_dir=None if monitor is None else str(monitor),
        wrapper_class=AtariWrapper,
        wrapper_kwargs=wrapper,
        env_kwargs={"max_episode_steps": most_frames},
    )
    return VecTransposeImage(VecFrameStack(made, FRAME_STACK))


def evaluate(model: Any, game: str, seed: int, serve_every_life: bool) -> Evaluation:
    """`EPISODES` greedy games side by side, from the same starts every time."""
    from stable_baselines3.common.evaluation import evaluate_policy

    games = environments(
        game,
        EVALUATION_SEED + seed,
        copies=EPISODES,
        most_frames=MOST_FRAMES,
        clip_reward=False,
        terminal_on_life_loss=serve_every_life,
    )
    try:
        returns, frames = evaluate_policy(
            model, games, n_eval_episodes=EPISODES, deterministic=True, return_episode_rewards=True
        )
    finally:
        games.close()
    return Evaluation(sum(returns) / len(returns), sum(length >= MOST_FRAMES for length in frames))


def line_of(
    run: Run,
    mark: str,
    cpu_minutes: float,
    environment_steps: int,
    updates: int,
    plain: Evaluation,
    served: Evaluation,
) -> Line:
    return dict(
        zip(
            FIELDS,
            [
                *map(str, run),
                mark,
                f"{cpu_minutes:.2f}",
                str(environment_steps),
                str(updates),
                f"{plain.mean_return:.2f}",
                str(plain.cut),
                f"{served.mean_return:.2f}",
                str(served.cut),
                str(EPISODES),
                processor(),
            ],
            strict=True,
        )
    )


def train(run: Run, minutes: float, table: Path, folder: Path) -> None:
    """Trains on one thread for so many minutes, and writes a line at each quarter of them.

    Raises:
      SystemExit: a package is missing, or all planned steps were made before the time was over.
    """
    try:
        import ale_py
        import cv2
        import gymnasium
        import torch
        from sb3_contrib import QRDQN
        from stable_baselines3 import DQN
        from stable_baselines3.common.callbacks import BaseCallback
    except ImportError as error:
        raise SystemExit(
            f"{error.name} is not installed for {sys.executable}: type `make rivals-venv`, then"
            " .venv-rivals/bin/python -m benchmarks.rivals.sb3_atari"
        ) from None
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    gymnasium.logger.min_level = gymnasium.logger.ERROR  # it recommends other versions of these games
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    folder.mkdir(parents=True, exist_ok=True)
    table.parent.mkdir(parents=True, exist_ok=True)
    marks = quarters(minutes)
    lines: list[Line] = []

    class Quarters(BaseCallback):
        def _on_training_start(self) -> None:
            self.watch = Stopwatch()

        def _on_step(self) -> bool:
            wall, cpu = self.watch.minutes()
            if wall >= float(marks[len(lines)]):
                with self.watch.paused():
                    self._report(cpu)
            return len(lines) < len(marks)

        def _report(self, cpu: float) -> None:
            start = time.perf_counter()
            plain = evaluate(self.model, run.game, run.seed, serve_every_life=False)
            served = plain
            if run.game in WITH_LIVES:
                served = evaluate(self.model, run.game, run.seed, serve_every_life=True)
            steps, updates = self.model.num_timesteps, self.model._n_updates
            line = line_of(run, marks[len(lines)], cpu, steps, updates, plain, served)
            lines.append(line)
            write(table, run, minutes, lines)
            print(
                f"{run.algorithm} on {run.game}, seed {run.seed}: {line['minutes']} of {minutes:g} minutes,"
                f" {steps:,} steps, {updates:,} updates, greedy {line['mean_return']},"
                f" served {line['mean_return_served']} (evaluation {time.perf_counter() - start:.0f} s)",
                flush=True,
            )

    model = {"dqn": DQN, "qrdqn": QRDQN}[run.algorithm](
        "CnnPolicy",
        environments(run.game, run.seed, monitor=folder),
        seed=run.seed,
        device="cpu",
        **SETTINGS[run.algorithm],
    )
    model.learn(PLANNED_STEPS, callback=Quarters())
    model.save(folder / "model.zip")
    if len(lines) < len(marks):
        raise SystemExit(
            f"All {PLANNED_STEPS:,} planned steps were made before {minutes:g} minutes had passed: ask for less."
        )


def checked_options(command_line: Sequence[str] | None) -> argparse.Namespace:
    """The command line's options; what does not fit ends the program with a sentence and status 2."""
    parser = argparse.ArgumentParser(
        prog="sb3_atari", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithm", required=True, choices=list(SETTINGS))
    parser.add_argument("--game", required=True, choices=list(GAMES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="of training, wall clock (default: 60)")
    parser.add_argument("--core", type=int, help="the only core to work on; without it, one thread on any")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/results/atari_rivals.csv", metavar="CSV")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs/atari_rivals", metavar="DIR")
    options = parser.parse_args(command_line)
    if not 0 <= options.seed < 2**31:
        parser.error(f"--seed={options.seed} must be from 0 to {2**31 - 1}")
    if not (math.isfinite(options.minutes) and options.minutes > 0):
        parser.error(f"--minutes={options.minutes} must be above 0")
    cores = sorted(os.sched_getaffinity(0))
    if options.core is not None and options.core not in cores:
        parser.error(f"--core={options.core} must be one of {', '.join(map(str, cores))}")
    if options.out.suffix != ".csv" or options.out.is_dir():
        parser.error(f"--out={options.out} must be a file that ends in .csv")
    for name, folder in (("out", options.out.parent), ("folder", options.folder)):
        nearest = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
        if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
            parser.error(f"--{name}: {nearest} must be a folder in which files can be made")
    try:
        read(options.out)
    except ValueError as error:
        parser.error(f"--out: {error}")
    return options


def main(command_line: Sequence[str] | None = None) -> None:
    options = checked_options(command_line)
    run = Run(options.algorithm, options.game, options.seed)
    if is_finished(options.out, run, options.minutes):
        print(f"{run.algorithm} on {run.game}, seed {run.seed}: already in {options.out}")
        return
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})  # before anything counts cores
    train(run, options.minutes, options.out, options.folder / f"{run.algorithm}-{run.game}-{run.seed}")


if __name__ == "__main__":
    main()
