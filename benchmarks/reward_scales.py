"""What normalises best when rewards have other scales: MinAtar with changed rewards, 50,000 steps a run.

    .venv/bin/python -m benchmarks.reward_scales rates --minutes=60
    .venv/bin/python -m benchmarks.reward_scales attribution --minutes=60
    .venv/bin/python -m benchmarks.reward_scales table --minutes=60
    .venv/bin/python -m benchmarks.reward_scales same_rate --minutes=60
    .venv/bin/python -m benchmarks.reward_scales table --measure KEY FOLDER   # one run; a wrong KEY names a right one

Four experiments, in this order, each a grid of runs: `benchmarks.grid` tells how it goes on. This page was written
before the first of them ran, and so was the analysis (`benchmarks/reward_scales_results.py`), but for its rule about
looks, which is from before the first run of 2, and for 4, which was added when the first look at 3 was known. Every
run of a grid counts, and no other does. Orders are random, one repeat of everything before the next.

Level ground for all: ten heads, the paper's, on `configs/minatar.gin`; an update per 10 environment steps, whoever
survives longer; a seed of its own for every run; the LSTM sees rewards divided by their root mean square
(`RecurrentQNetwork.reward_input`). Scores are those of the clean game (`benchmarks.reward_tasks`).

1. rates. Two games with rewards times 10, which do not count later; learning rates 2e-4, 6e-4, 2e-3 and 6e-3. One
   run of everything; then two more of each method's two best rates; while the best of all is the smallest or the
   largest rate tried, three runs at a third or three times that. A method's rate is the one with the highest mean
   logarithm of returns, over both games, of those with three runs; from there on it stays.
2. attribution. What in `return_out` makes the difference to `pop_art`? {statistics of all returns, running ones of
   targets} x {first scale taken over, preserved} x {errors divided by sigma, s, sqrt(sigma s)}, two games, rewards
   times 1 and 100, five repeats, all at the learning rate that most methods were given, beside `clip`,
   `max_reward`, `gymnasium` and `none`.
3. table. Ten methods, each at its rate: two games with rewards times 0.001, 1 and 10,000, `mixed`, `spikes`, `offset`
   and `drift`. Looks at 3, 6 and 9 repeats, and no further ones once every contrast named in the analysis is decided,
   or as many as there is time for.
4. same_rate. In 3 `pop_art` and `pop_art_first` have different learning rates. So here is `pop_art` at the rate of
   `pop_art_first`: the tasks of 3, three repeats. One contrast: the `pop_art_first` of 3, its first three repeats, over
   this `pop_art`.

If time is short, repeats are cut before tasks, and tasks before the attribution; the results say what was cut.
"""

from __future__ import annotations

from agents.running.startup import quiet

quiet()  # before TensorFlow is imported

import sys  # noqa: E402
import time  # noqa: E402
from collections import Counter  # noqa: E402
from collections.abc import Mapping, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import NamedTuple  # noqa: E402

import numpy as np  # noqa: E402

from agents.workers.evaluator import Evaluator  # noqa: E402
from benchmarks import grid, reward_tasks  # noqa: E402
from benchmarks.performance import processor  # noqa: E402
from rbs_tf import environments  # noqa: E402

GAMES = ("space_invaders", "breakout")
BINS = 10
GREEDY_ENVS, GREEDY_ROUNDS = 25, 4
RATES = ("6e-5", "2e-4", "6e-4", "2e-3", "6e-3", "2e-2", "6e-2")  # thirds and threefolds, as good as
FIRST_RATES = RATES[1:5]
RATES_TASK = "x10"
LOOK = 3  # repeats between two looks at the table
TASKS = ("x0.001", "x1", "x10000", "mixed", "spikes", "offset", "drift")
METHODS = (
    "none",
    "clip",
    "return",
    "return_out",
    "pop_art",
    "pop_art_first",
    "max_reward",
    "gymnasium",
    "two_hot",
    "return_support",
)
# Statistics, first scale, divisor of errors -> file of configs/scaling and its bindings.
FACTORIAL: dict[str, tuple[str, tuple[str, ...]]] = {
    f"{statistics}, {first}, {divisor}": (
        ("return_out" if statistics == "returns" else "pop_art_first" if first == "taken" else "pop_art"),
        (
            f"scalings.{{}}.divisor = '{divisor}'",
            *(
                ["scalings.{}.preserve_first = True"]
                if (statistics, first) == ("returns", "preserved")
                else []
            ),
            # The published bounds on the scale are no part of the question.
            *(
                ["scalings.{}.max_scale = 1e12", "scalings.{}.min_scale = 1e-12"]
                if (statistics, first) == ("targets", "preserved")
                else []
            ),
        ),
    )
    for statistics in ("returns", "targets")
    for first in ("taken", "preserved")
    for divisor in ("sigma", "s", "geometric")
}
REFERENCES = ("clip", "max_reward", "gymnasium", "none")
EXPERIMENTS = ("rates", "attribution", "table", "same_rate")


class Run(NamedTuple):
    """One run, and the key of its lines in the results."""

    experiment: str
    game: str
    task: str
    method: str
    rate: str
    repeat: int


Rows = Sequence[Mapping[str, str]]


def tables(experiment: str) -> grid.Tables:
    folder = grid.ROOT / "docs/results"
    return {
        name: folder / f"scales_{experiment}{end}.csv" for name, end in (("heads", "_heads"), ("runs", ""))
    }


def mean_logs(rows: Rows) -> dict[tuple[str, str], tuple[float, int]]:
    """(method, rate) -> mean over games of the mean ln of `mean_return`, and repeats that both games have."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in rows:
        by_game = found.setdefault((row["method"], row["rate"]), {game: [] for game in GAMES})
        by_game[row["game"]].append(np.log(float(row["mean_return"])))
    return {
        key: (
            float(np.mean([np.mean(values) for values in by_game.values()])),
            min(map(len, by_game.values())),
        )
        for key, by_game in found.items()
        if all(by_game.values())
    }


def best_rates(rows: Rows, least: int = 1) -> dict[str, list[str]]:
    """Rates of each method that have so many repeats, the best first."""
    found = {key: mean for key, (mean, repeats) in mean_logs(rows).items() if repeats >= least}
    methods = {method for method, _ in found}
    return {
        method: sorted((r for m, r in found if m == method), key=lambda rate: -found[method, rate])  # noqa: B023
        for method in methods
    }


def rates_grid(rows: Rows) -> list[Run]:
    """All runs of `rates` that are known by now; more follow from what these find."""

    def runs(method: str, rates: Sequence[str], repeats: range) -> list[Run]:
        return [
            Run("rates", game, RATES_TASK, method, rate, repeat)
            for game in GAMES
            for rate in rates
            for repeat in repeats
        ]

    found = [run for method in METHODS for run in runs(method, FIRST_RATES, range(1))]
    by_method = best_rates(rows)
    if all(set(FIRST_RATES) <= set(by_method.get(method, ())) for method in METHODS):
        for method in METHODS:
            first = [rate for rate in by_method[method] if rate in FIRST_RATES]
            found += runs(method, first[:2], range(1, 3))
            best, tried = by_method[method][0], sorted(by_method[method], key=float)
            at = RATES.index(best)
            if best == tried[0] and at > 0:
                found += runs(method, [RATES[at - 1]], range(3))
            if best == tried[-1] and at + 1 < len(RATES):
                found += runs(method, [RATES[at + 1]], range(3))
            for rate in set(tried) - set(FIRST_RATES):
                found += runs(method, [rate], range(3))
    return sorted(dict.fromkeys(found), key=lambda run: (run.repeat, grid.digest(run)))


def frozen_rates(rows: Rows) -> dict[str, str]:
    """The rate of each method.

    Raises:
      SystemExit: `rates` is not finished.
    """
    missing = {tuple(map(str, run)) for run in rates_grid(rows)} - {
        tuple(row[field] for field in Run._fields) for row in rows
    }
    if missing or not rows:
        raise SystemExit(
            "This takes the learning rates: run `benchmarks.reward_scales rates` to its end first"
        )
    return {method: rates[0] for method, rates in best_rates(rows, least=3).items()}


def attribution_grid(rates: Mapping[str, str]) -> list[Run]:
    common = Counter(sorted(rates.values(), key=float)).most_common(1)[0][0]
    return [
        Run("attribution", game, task, method, common, repeat)
        for game in GAMES
        for task in ("x1", "x100")
        for method in (*FACTORIAL, *REFERENCES)
        for repeat in range(5)
    ]


def table_grid(rates: Mapping[str, str]) -> list[Run]:
    return [
        Run("table", game, task, method, rates[method], repeat)
        for game in GAMES
        for task in TASKS
        for method in METHODS
        for repeat in range(3 * LOOK)
    ]


def same_rate_grid(rates: Mapping[str, str]) -> list[Run]:
    return [
        Run("same_rate", game, task, "pop_art", rates["pop_art_first"], repeat)
        for game in GAMES
        for task in TASKS
        for repeat in range(LOOK)
    ]


def every_run(experiment: str) -> list[Run]:
    """The grid of an experiment, in the order in which it is worked through."""
    rates = grid.read(tables("rates")["runs"])
    if experiment == "rates":
        return rates_grid(rates)
    grids = {"attribution": attribution_grid, "table": table_grid, "same_rate": same_rate_grid}
    runs = grids[experiment](frozen_rates(rates))
    return sorted(runs, key=lambda run: (run.repeat, grid.digest(run)))


def measure(run: Run, folder: Path) -> grid.Lines:
    """Trains once in this process, then plays 100 greedy episodes.

    Returns:
      "runs": returns per episode of the clean game: `mean_return`, mean over ten parts of the run; `last_fifth`, over
      the last two; `greedy`, mean of the greedy episodes, and its standard error; CPU milliseconds per update,
      collecting included; updates, minutes and the machine's processor.
      "heads": see `grid.head_lines`.
    """
    scaling, bindings = FACTORIAL.get(run.method, (run.method, ()))
    bindings = (
        *(binding.format(scaling) for binding in bindings),
        f"train.env = '{reward_tasks.name_of(run.game, run.task)}'",
        f"train.seed = {grid.digest(run)}",
        f"train.environment_steps = {reward_tasks.STEPS}",
        f"train.num_envs = {reward_tasks.NUM_ENVS}",
        "train.steps_per_update = 10",
        "Heads.reward_multiplier = 1.0",
        "RecurrentQNetwork.reward_input = 'rms'",
        f"RecurrentMultiHeadAgent.learning_rate = {run.rate}",
    )
    start, cpu = time.monotonic(), time.process_time()
    config = f"configs/minatar.gin,configs/scaling/{scaling}.gin"
    with grid.trained(config, bindings, folder) as (embedded, result):
        minutes, cpu = (time.monotonic() - start) / 60, time.process_time() - cpu
        episodes = reward_tasks.clean_episodes(embedded.environment)
        end = reward_tasks.name_of(run.game, reward_tasks.end_of(run.task))
        last = environments.make(end, num_envs=GREEDY_ENVS, seed=grid.digest(run))
        agent = embedded.agent
        played = Evaluator(last, agent.policy, agent.heads, agent.scaling).run(GREEDY_ROUNDS)
        assert played is not None
        heads = grid.head_lines(embedded, folder, played.value_errors)
        greedy = np.concatenate([returns[:GREEDY_ROUNDS] for returns, _ in reward_tasks.clean_episodes(last)])
        last.close()
    returns = np.concatenate([returns for returns, _ in episodes])
    ends = np.concatenate([np.cumsum(lengths) for _, lengths in episodes]) * reward_tasks.NUM_ENVS
    parts = grid.binned(ends, returns, result.environment_steps, BINS)
    line = {
        "mean_return": np.nanmean(parts),
        "last_fifth": np.nanmean(parts[-BINS // 5 :]),
        "greedy": greedy.mean(),
        "greedy_error": greedy.std(ddof=1) / np.sqrt(len(greedy)),
        "cpu_ms_per_update": 1e3 * cpu / result.updates,
    }
    facts = {"updates": str(result.updates), "minutes": f"{minutes:.1f}", "processor": processor()}
    return {"heads": heads, "runs": [{name: f"{value:.5g}" for name, value in line.items()} | facts]}


def main(command_line: Sequence[str] | None = None) -> None:
    experiment, *rest = [*(sys.argv[1:] if command_line is None else command_line), ""]
    if experiment not in EXPERIMENTS:
        raise SystemExit(f"{__doc__}\nName an experiment first: {', '.join(EXPERIMENTS)}")
    options = [word for word in rest if word]
    while True:
        runs = every_run(experiment)
        grid.main(
            f"benchmarks.reward_scales {experiment}", __doc__, runs, measure, tables(experiment), options
        )
        if every_run(experiment) == runs:
            return


if __name__ == "__main__":
    main()
