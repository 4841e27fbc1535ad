"""SAC with return-based scaling and without, rewards times 0.001, 1 and 1000: docs/actor_critics.md.

    make rivals-venv
    .venv-rivals/bin/python -m benchmarks.sac_scales           # 13 to 27 hours of one core; it goes on
    .venv-rivals/bin/python -m benchmarks.sac_scales --table   # writes the page's tables

Rules, written before the first run that counts:

* docs/examples/torch_sac.py. Pendulum-v1 for 20,000 steps, seeds 0 to 4; LunarLander-v3 with continuous actions for
  60,000 steps, seeds 0 to 2. No tuning.
* Arms: `learned`, a learned temperature, which begins at 1; `fixed`, a temperature of 0.2; `normalised`, a learned
  temperature and rewards over the running deviation of their discounted sums (Gymnasium's `NormalizeReward`); `units`,
  the critics' errors over sigma, their outputs in units of the return, and a learned temperature in units of the root
  mean square of the rewards so far.
* TF-Agents' own `SacAgent`, docs/examples/tf_agents_sac.py, with a learned temperature and with `units`: Pendulum-v1
  for 20,000 steps, seeds 0 to 2.
* Score: mean return of the episodes of the last fifth of the steps, in the environment's own units; of TF-Agents' the
  mean of what the example prints in it, each the mean of the last ten episodes.
* Intervals are 95%, Student's t over seeds; of a difference to another arm Welch's.
* `units` is level with another arm in a cell (environment, size of rewards) if the interval of its difference holds 0,
  above or below it otherwise. The claim is: in every cell `units` is below no other arm. If it is below one, the page
  says so, and runs that take back one of the couplings (target, temperature, actor's loss) show which one it is.
* Nothing is concluded before all runs of an environment are in.
* Those runs, named when two of LunarLander's three seeds were in and `units` looked lower: `units` in LunarLander times
  1, seeds 0 to 2, with one coupling taken back, see `TAKEN_BACK`. They are compared with all nine runs of `units`,
  because the size of rewards changes no more than rounding there, and three runs spread too much (-115, -190, 139). A
  coupling breaks it if the interval of what the runs without it have more is above 0.

One row a run in docs/results/sac_scales.csv. Runs that are in the table are skipped.
"""

from __future__ import annotations

import argparse
import itertools
import time

import gymnasium
import numpy as np

from benchmarks.examples import run_example, score_printed
from benchmarks.performance import ROOT, put_between
from benchmarks.rows import add, example, interval, missing, read, shown

TABLE, PAGE = ROOT / "docs/results/sac_scales.csv", ROOT / "docs/actor_critics.md"
BEGIN, END = "<!-- table: written by benchmarks/sac_scales.py -->", "<!-- end of SAC's table -->"
TF_AGENTS, LUNAR_LANDER = "Pendulum-v1 in TF-Agents", "LunarLander-v3"
ENVIRONMENTS = {  # steps, seeds
    "Pendulum-v1": (20_000, range(5)),
    TF_AGENTS: (20_000, range(3)),
    LUNAR_LANDER: (60_000, range(3)),
}
ARMS = ("learned", "fixed", "normalised", "units")
TIMES = (1.0, 1000.0, 0.001)
TAKEN_BACK = {  # an arm's name -> lines of the example, and what takes their place
    "units, critics not scaled": {
        "last = rbs_tf.torch.UnitLinear if units else nn.Linear": "last = nn.Linear",
        "critic[-1].to_unit_(return_scaling.unit)": "pass",
        'errors if scaling == "off" else return_scaling(errors)': "errors",
    },
    "units, temperature not multiplied": {"alpha = alpha * size.float()": "pass"},
    "units, actor's loss not divided": {"return_scaling.unit[0].clamp(min=1e-30) if units else 1.0": "1.0"},
}


def arms(name: str) -> tuple[str, ...]:
    """The arms that play it, `units` last."""
    return ("learned", "units") if name == TF_AGENTS else ARMS


def environment(name: str, times: float, normalised: bool = False) -> gymnasium.Env:
    """With rewards multiplied, and returns recorded as they are without that."""
    options = {"continuous": True} if name.startswith("LunarLander") else {}
    env: gymnasium.Env = gymnasium.make(name, **options)
    env = gymnasium.wrappers.RecordEpisodeStatistics(env)
    env = gymnasium.wrappers.TransformReward(env, lambda reward: times * reward)
    return gymnasium.wrappers.NormalizeReward(env, gamma=0.99) if normalised else env


def score(name: str, arm: str, times: float, seed: int, steps: int) -> float:
    """Of a run: mean return of the episodes of the last fifth."""
    scaling = "units" if arm.startswith("units") else "off"
    if name == TF_AGENTS:
        options = [f"--scaling={scaling}", f"--reward-scale={times}", f"--seed={seed}", f"--steps={steps}"]
        return score_printed(run_example(".venv", "tf_agents_sac", options))
    import torch

    torch.set_num_threads(1)
    env = environment(name, times, arm == "normalised")
    temperature = 0.2 if arm == "fixed" else None
    at, returns = example("torch_sac", TAKEN_BACK.get(arm, {})).train(env, scaling, temperature, seed, steps)
    return float(np.mean(np.array(returns)[np.array(at) > 0.8 * steps]))


def make() -> None:
    """Makes the runs that the table lacks, seed by seed, so that what is there compares all arms."""
    runs = (
        {"environment": name, "arm": arm, "times": f"{times:g}", "seed": str(seed)}
        for name, (_, seeds) in ENVIRONMENTS.items()
        for seed, times in itertools.product(seeds, TIMES)
        for arm in (*arms(name), *(TAKEN_BACK if (name, times) == (LUNAR_LANDER, 1.0) else ()))
    )
    for run in missing(TABLE, runs):
        started = time.perf_counter()
        name, arm, times, seed = run.values()
        found = score(name, arm, float(times), int(seed), ENVIRONMENTS[name][0])
        add(TABLE, run | {"score": f"{found:.2f}", "seconds": f"{time.perf_counter() - started:.0f}"})


def cells() -> dict[tuple[str, str, float], np.ndarray]:
    """(environment, arm, times) -> scores of its seeds, of cells that are complete."""
    found: dict[tuple[str, str, float], list[float]] = {}
    for row in read(TABLE):
        found.setdefault((row["environment"], row["arm"], float(row["times"])), []).append(
            float(row["score"])
        )
    return {
        cell: np.array(scores)
        for cell, scores in found.items()
        if len(scores) == len(ENVIRONMENTS[cell[0]][1])
    }


def table() -> list[str]:
    """Markdown: every arm's score in each cell, what `units` has more than each other, and where it is below."""
    complete, lines, below = cells(), [], []
    for name in ENVIRONMENTS:
        if any((name, arm, times) not in complete for arm in arms(name) for times in TIMES):
            continue
        sizes = " | ".join(f"times {times:g}" for times in sorted(TIMES))
        lines += [f"| {name} | {sizes} |", "|---" * (1 + len(TIMES)) + "|"]
        for arm in arms(name):
            means = (shown(interval(complete[name, arm, times])) for times in sorted(TIMES))
            lines.append(f"| `{arm}` | {' | '.join(means)} |")
        for other in arms(name)[:-1]:
            texts = []
            for times in sorted(TIMES):
                difference = interval(complete[name, "units", times], complete[name, other, times])
                texts.append(shown(difference))
                if difference[2] < 0:
                    below.append(f"`{other}` in {name} times {times:g}")
            lines.append(f"| `units` less `{other}` | {' | '.join(texts)} |")
        lines.append("")
    if lines:
        lines.append(f"`units` is below {'; '.join(below) or 'no other arm in any cell'}.")
    units = [complete.get((LUNAR_LANDER, "units", times)) for times in TIMES]
    without = {arm: complete.get((LUNAR_LANDER, arm, 1.0)) for arm in TAKEN_BACK}
    if all(scores is not None for scores in (*units, *without.values())):
        lines += ["", f"| {LUNAR_LANDER} | times 1 | more than `units`, all sizes |", "|---|---|---|"]
        for arm, scores in without.items():
            more = interval(scores, np.concatenate(units))
            lines.append(f"| {arm} | {shown(interval(scores))} | {shown(more)} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="write the page's tables instead of making runs")
    options = parser.parse_args()
    if options.table:
        put_between(PAGE, BEGIN, END, "\n".join(table()))
        return
    make()


if __name__ == "__main__":
    main()
