"""The paper's claims on Atari at a small size: ten heads and one, under four scalings and clipping, in five games.

    .venv/bin/python -m benchmarks.atari_claims --minutes=60

Works through a grid of runs of `configs/atari_small.gin`, of 300,000 environment steps each (1.2e6 frames; the paper's
have 1e9), in two processes of one thread: `benchmarks.grid` tells how it goes on, and where its lines are. The order is
random, one repeat of everything before the next. Every run counts, and no other does.

The games were chosen before any run, for the variety of their rewards: Pong (1 and -1), Breakout (1, 4 and 7), Boxing
(1 and 2 for hits, as many lost), Space Invaders (5 to 200), Q*bert (25 to thousands). The config's learning rate was
chosen with `return`, in Pong and Breakout. If time does not suffice for both repeats of everything, the second repeat
is left out for Q*bert first, then for Boxing.
"""

from __future__ import annotations

from agents.running.startup import quiet

quiet()  # before TensorFlow is imported

from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import NamedTuple  # noqa: E402

from benchmarks import grid  # noqa: E402

STEPS, BINS = 300_000, 6
GAMES = ("pong", "breakout", "boxing", "space_invaders", "qbert")
VARIANTS = (
    *((10, name) for name in ("none", "return", "return_out", "pop_art")),
    *((1, name) for name in ("none", "return", "clip")),
)
REPEATS = 2
TABLES = {
    name: grid.ROOT / f"docs/results/atari_small_claims{end}.csv"
    for name, end in (("heads", "_heads"), ("runs", ""))
}


class Run(NamedTuple):
    """One run, and the key of its lines in the results."""

    game: str
    heads: int
    scaling: str
    repeat: int


def runs() -> list[Run]:
    """The grid, in the order in which it is worked through."""
    return [
        run
        for repeat in range(REPEATS)
        for run in sorted(
            (Run(game, *variant, repeat) for game in GAMES for variant in VARIANTS), key=grid.digest
        )
    ]


def measure(run: Run, folder: Path) -> grid.Lines:
    """Trains once in this process."""
    bindings = [
        f"train.env = '{run.game}'",
        f"train.seed = {grid.digest(run)}",
        f"train.environment_steps = {STEPS}",
        "train.steps_per_update = 40",  # as many for all; what the config's replay ratio comes to
        *(["Heads.pairs = ((0.997, False),)"] if run.heads == 1 else []),
    ]
    config = f"configs/atari_small.gin,configs/scaling/{run.scaling}.gin"
    return grid.train(config, bindings, folder, BINS, rounds=1)


def main(command_line: Sequence[str] | None = None) -> None:
    grid.main("benchmarks.atari_claims", __doc__, runs(), measure, TABLES, command_line)


if __name__ == "__main__":
    main()
