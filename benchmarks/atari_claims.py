"""The paper's claims on Atari at a small size: ten heads and one, under four scalings and clipping, in five games.

    .venv/bin/python -m benchmarks.atari_claims --minutes=60

Works through a grid of runs of `configs/atari_small.gin`, of 300,000 environment steps each (1.2e6 frames; the paper's
have 1e9), in two processes of one thread: `benchmarks.grid` tells how it goes on, and where its lines are. The order is
random, one repeat of everything before the next. Every run counts, and no other does.

The games were chosen before any run, for the variety of their rewards: Pong (1 and -1), Breakout (1, 4 and 7), Boxing
(1 and 2 for hits, as many lost), Space Invaders (5 to 200), Q*bert (25 to thousands). The config's learning rate was
chosen with `return`, in Pong and Breakout. If time does not suffice for both repeats of everything, the second repeat
is left out for Q*bert first, then for Boxing: so these come last, Q*bert's after Boxing's.
"""

from __future__ import annotations

from agents.running.startup import quiet

quiet()  # before TensorFlow is imported

import itertools  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

import numpy as np  # noqa: E402

from agents.tags import RETURN  # noqa: E402
from agents.workers.evaluator import Evaluator  # noqa: E402
from benchmarks import grid  # noqa: E402
from benchmarks.performance import processor  # noqa: E402
from benchmarks.quickstart_curves import scalars  # noqa: E402

STEPS, BINS = 300_000, 6
GAMES = ("pong", "breakout", "boxing", "space_invaders", "qbert")
VARIANTS = (
    *((10, name) for name in ("none", "return", "return_out", "pop_art")),
    *((1, name) for name in ("none", "return", "clip")),
)
REPEATS = 2
CUT = ("boxing", "qbert")  # games whose second repeat comes last
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

    def place(run: Run) -> tuple[int, int, int]:
        return run.repeat, CUT.index(run.game) if run.repeat and run.game in CUT else -1, grid.digest(run)

    everything = itertools.product(GAMES, VARIANTS, range(REPEATS))
    return sorted((Run(game, *variant, repeat) for game, variant, repeat in everything), key=place)


class PlayedEpisodes(Evaluator):
    """An evaluator that keeps how many rewards other than 0 each episode had."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.rewarded: list[int] = []

    def _value_errors(self, rewards: np.ndarray, discounts: np.ndarray, values: np.ndarray) -> np.ndarray:
        self.rewarded.append(np.count_nonzero(rewards))
        return super()._value_errors(rewards, discounts, values)


def measure(run: Run, folder: Path) -> grid.Lines:
    """Trains once in this process, then plays 20 greedy episodes.

    Returns:
      "runs": mean training return over the run, its last fifth and six parts; `greedy`, mean of these episodes, its
      standard error, and the mean number of their rewards that are not 0, `rewarded`; updates, minutes and the
      machine's processor.
      "heads": see `grid.head_lines`.
    """
    bindings = [
        f"train.env = '{run.game}'",
        f"train.seed = {grid.digest(run)}",
        f"train.environment_steps = {STEPS}",
        "train.steps_per_update = 40",  # as many for all; what the config's replay ratio comes to
        *(["Heads.pairs = ((0.997, False),)"] if run.heads == 1 else []),
    ]
    config = f"configs/atari_small.gin,configs/scaling/{run.scaling}.gin"
    start = time.monotonic()
    with grid.trained(config, bindings, folder) as (embedded, result):
        minutes = (time.monotonic() - start) / 60
        agent = embedded.agent
        player = PlayedEpisodes(embedded.eval_environment, agent.policy, agent.heads, agent.scaling)
        played = player.run()
        assert played is not None
        heads = grid.head_lines(embedded, folder, played.value_errors)
    training = scalars(folder / "train")
    updates, returns = training[RETURN].T
    steps = np.interp(updates, *training["environment_steps"].T)
    parts = grid.binned(steps, returns, result.environment_steps, BINS)
    line = {
        "mean_return": returns.mean(),
        "last_fifth": returns[steps > 0.8 * result.environment_steps].mean(),
        **{f"bin_{index}": value for index, value in enumerate(parts)},
        "greedy": played.returns.mean(),
        "greedy_error": played.returns.std(ddof=1) / np.sqrt(len(played.returns)),
        "rewarded": np.mean(player.rewarded),
    }
    facts = {"updates": str(result.updates), "minutes": f"{minutes:.1f}", "processor": processor()}
    return {"heads": heads, "runs": [{name: f"{value:.5g}" for name, value in line.items()} | facts]}


def main(command_line: Sequence[str] | None = None) -> None:
    grid.main("benchmarks.atari_claims", __doc__, runs(), measure, TABLES, command_line)


if __name__ == "__main__":
    main()
