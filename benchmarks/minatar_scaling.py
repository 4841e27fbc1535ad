"""Scalings compared: MinAtar with rewards times 1 to 1000, the real recurrent agent, 50,000 environment steps.

    .venv/bin/python -m benchmarks.minatar_scaling --minutes=60

Works through a grid of games, reward multipliers, heads, scalings, learning rates and seeds, most telling part first,
in two processes of one thread each: `benchmarks.grid` tells how it goes on. Every finished run is one line of
docs/results/minatar_scaling.csv and one per head of docs/results/minatar_scaling_heads.csv.
"""

from __future__ import annotations

from agents.running.startup import quiet

quiet()  # before TensorFlow is imported

import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import NamedTuple  # noqa: E402

import gin  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import rbs_tf.scalings  # noqa: E402, F401  gin names
from agents.running.embedded import EmbeddedRun  # noqa: E402
from benchmarks import grid  # noqa: E402
from benchmarks.quickstart_curves import scalars  # noqa: E402
from rbs_tf import discounted_returns  # noqa: E402

TABLES = {
    name: grid.ROOT / f"docs/results/minatar_scaling{end}.csv"
    for name, end in (("heads", "_heads"), ("runs", ""))
}
STEPS = 50_000
ONE_PAIR = "Heads.pairs = ((0.997, False),)"
RATES = ("2e-4", "6e-4")
TEN_HEADS = [(10, name) for name in ("none", "return", "pop_art", "return_out")]
ONE_HEAD = [(1, name) for name in ("none", "return", "clip", "signed_hyperbolic", "pop_art", "return_out")]
# Where values outgrow Pop-Art's largest scale of 1e3, its clamp makes a smaller learning rate of it.
FREE_POP_ART = (10, "pop_art_free")
MEASURED_EPISODES = 4  # in each of the evaluator's environments, for value accuracies
MEASURED_STEPS = 2_000  # at most, of each environment


class Run(NamedTuple):
    """One cell of the grid, and the key of its lines in the results."""

    game: str
    multiplier: int
    heads: int
    scaling: str
    learning_rate: str
    seed: int


def every_part(seeds: range) -> tuple[tuple, ...]:
    """Games, multipliers, variants and seeds of the whole comparison, with these seeds."""
    return (
        ("space_invaders", (1, 1000), TEN_HEADS, seeds),
        ("space_invaders", (100,), ONE_HEAD, seeds),
        ("breakout", (100,), TEN_HEADS, seeds),
        ("space_invaders", (10,), TEN_HEADS, seeds),
        ("space_invaders", (1000,), [FREE_POP_ART], seeds),
        ("breakout", (100,), ONE_HEAD, seeds),
        ("breakout", (1, 1000, 10), TEN_HEADS, seeds),
        ("breakout", (1000,), [FREE_POP_ART], seeds),
    )


def every_run() -> list[Run]:
    """All runs, most telling first; then one seed of everything before the next seed."""
    parts = (
        ("space_invaders", (100,), TEN_HEADS, range(3)),
        *(part for seeds in (range(1), range(1, 3)) for part in every_part(seeds)),
        ("space_invaders", (100,), TEN_HEADS + ONE_HEAD, range(3, 5)),
    )
    runs = [
        Run(game, multiplier, heads, name, rate, seed)
        for game, multipliers, variants, seeds in parts
        for seed in seeds
        for rate in RATES
        for multiplier in multipliers
        for heads, name in variants
    ]
    return list(dict.fromkeys(runs))


def measure(run: Run, folder: Path) -> grid.Lines:
    """Trains once in this process; returns the lines for both tables, the keys left out."""
    scaling = run.scaling.removesuffix("_free")
    bindings = [
        f'train.env = "minatar/{run.game}"',
        f"train.seed = {run.seed}",
        f"Heads.reward_multiplier = {run.multiplier}.0",
        f"RecurrentMultiHeadAgent.learning_rate = {run.learning_rate}",
        f"train.environment_steps = {STEPS}",
        "train.updates = 1000000",
        "train.eval_interval = 0",
        "train.checkpoint_interval = 1000000",
        "RecurrentMultiHeadAgent.jit_compile = True",  # a network this small is all overhead: 15 ms in place of 26
        *([ONE_PAIR] if run.heads == 1 else []),
        *(["scalings.pop_art.max_scale = 1e12"] if run.scaling == "pop_art_free" else []),
    ]
    start = time.monotonic()
    gin.parse_config_files_and_bindings(["configs/minatar.gin", f"configs/scaling/{scaling}.gin"], bindings)
    with EmbeddedRun(folder) as embedded:
        result = embedded.run()
        if result.stopped_by is not None:
            raise SystemExit(128 + result.stopped_by)
        heads = embedded.agent.heads.names
        gradients = grid.torso_gradients(embedded)
        accuracies = relative_value_errors(embedded)
    training = scalars(folder / "train")
    returns = training["episode/return"][:, 1]

    def over_time(tag: str) -> np.ndarray:
        """A tag's mean over the run for every head."""
        return np.array([training[f"{tag}/{head}"][:, 1].mean() for head in heads])

    scaled, losses = over_time("td_error/scaled"), over_time("loss")
    per_head = {
        "error": over_time("td_error/unscaled"),
        "scaled_error": scaled,
        "loss_share": losses / losses.sum(),
        "gradient_share": gradients / gradients.sum(),
        "relative_value_error": accuracies,
    }
    line = {
        "mean_return": f"{returns.mean():.4g}",
        "last_fifth": f"{returns[-len(returns) // 5 :].mean():.4g}",
        "greedy": f"{result.final_return:.4g}",
        "updates": str(result.updates),
        "span": f"{scaled.max() / scaled.min():.3g}",
        "minutes": f"{(time.monotonic() - start) / 60:.1f}",
    }
    head_lines = [
        {"head": head} | {name: f"{values[index]:.4g}" for name, values in per_head.items()}
        for index, head in enumerate(heads)
    ]
    return {"runs": [line], "heads": head_lines}


def relative_value_errors(embedded: EmbeddedRun) -> np.ndarray:
    """RMSE of each head's values against the returns that followed, over the standard deviation of these: [H].

    Greedy episodes of the best-rated head at the end; Q(s, a) of the actions that were taken. A head's values are those
    of its own greedy policy, so another policy's returns are off for all but the acting head, as in the paper.
    """
    agent, environment = embedded.agent, embedded.eval_environment
    act = tf.function(agent.policy.action, autograph=False)
    time_step, state = environment.reset(), agent.policy.get_initial_state(environment.batch_size)
    rows, ends = [], np.zeros(environment.batch_size, int)
    for _ in range(MEASURED_STEPS):
        result = act(tf.nest.map_structure(tf.convert_to_tensor, time_step), state)
        values = agent.scaling.values(result.info.taken_values).numpy()
        rows.append((time_step.step_type, time_step.reward, time_step.discount, values))
        ends += time_step.step_type == 2
        if ends.min() >= MEASURED_EPISODES:
            break
        state, time_step = result.state, environment.step(result.action.numpy())
    step_type, reward, discount, values = (np.stack(column) for column in zip(*rows, strict=True))
    pairs = []
    for index in range(environment.batch_size):
        ends = np.flatnonzero(step_type[:, index] == 2)[:MEASURED_EPISODES]
        for first, last in zip([0, *ends[:-1] + 1], ends, strict=True):
            arrived = slice(first + 1, last + 1)
            returns = discounted_returns(
                agent.heads.rewards(reward[arrived, index]), agent.heads.discounts(discount[arrived, index])
            )
            pairs.append((values[first:last, index], returns))
    values, returns = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return np.sqrt(np.mean(np.square(values - returns), axis=0)) / np.std(returns, axis=0)


def main(command_line: Sequence[str] | None = None) -> None:
    grid.main("benchmarks.minatar_scaling", __doc__, every_run(), measure, TABLES, command_line)


if __name__ == "__main__":
    main()
