"""Counts how often sigma_batch exceeds sigma in finished runs, and by how much, head by head.

    .venv/bin/python -m benchmarks.batch_sigma runs/quickstart-minatar_space_invaders-return-seed*

Draws batches by priority from the replay of each run's newest checkpoint, as the learner would, but makes no update.
For each head it prints the share of batches whose sigma_batch is the larger one, with a 95% interval over runs
(Student's t), and the median and the largest of sigma_batch / sigma over all batches. To tell what priorities do to
it, the rewards' standard deviation in the batches over that of the stream follows, as drawn and weighted back to a
uniform draw: means over runs and their extremes. The run folders stay as they are.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agents.running.startup import quiet

quiet()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from scipy import stats  # noqa: E402

from agents.commands.loading import load  # noqa: E402
from agents.storage.checkpoint import Checkpointer  # noqa: E402
from agents.workers.parts import Training  # noqa: E402
from rbs_tf import batch_sigma  # noqa: E402


def ratios(run: Path, batches: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names of the heads, and what their batches hold in units of all-time statistics.

    Args:
      run: the folder of a run with return-based scaling.
      batches: how many to draw.

    Returns:
      names [H]; sigma_batch / sigma, float64 [batches, H]; the rewards' standard deviation over all batches, as drawn
      and weighted back to a uniform draw, over that of the stream, float64 [2, H].
    """
    trained = load(run, "latest")
    agent, training = trained.agent, Training()
    burn_in = agent.shape.burn_in
    found, sums, odds = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copytree(run / "checkpoints", Path(folder, "checkpoints")).parent
        replay = training.replay(
            trained.environment, checkpointer=Checkpointer(copy, {}).replay_checkpointer()
        )
        for sequence, _ in replay.dataset(training.batch_size).take(batches):
            steps = sequence.steps
            rewards = agent.heads.rewards(tf.transpose(steps.reward)[burn_in + 1 :])
            discounts = agent.heads.discounts(tf.transpose(steps.discount)[burn_in + 1 :])
            mask = tf.transpose(steps.step_type)[burn_in:-1] != 2  # of LAST rows no transition leads on
            found.append(batch_sigma(rewards, discounts, mask) / agent.scaling.layer.sigma)
            real = tf.cast(mask, tf.float64)[..., None]
            rewards = tf.cast(rewards, tf.float64)
            sums.append(
                tf.reduce_sum(real * tf.stack([rewards**0, rewards, rewards**2]), axis=1)
            )  # [3, B, H]
            odds.append(sequence.probability)
        replay.stop()
    trained.environment.close()
    sums, odds = np.concatenate(sums, axis=1), np.concatenate(odds)
    deviations = []
    for weights in (np.ones_like(odds), 1.0 / odds):
        count, total, squares = np.einsum("sbh,b->sh", sums, weights)
        deviations.append(np.sqrt(squares / count - np.square(total / count)))
    stream = np.sqrt(agent.scaling.layer.moments.reward_variance)
    return list(agent.heads.names), np.array(found), np.array(deviations) / stream


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN_DIR")
    parser.add_argument("--batches", type=int, default=1_000, help="of each run; default: %(default)s")
    options = parser.parse_args(command_line)
    names, found, deviations = [], [], []
    for run in options.runs:
        names, values, of_rewards = ratios(run, options.batches)
        found.append(values)
        deviations.append(of_rewards)
    shares = np.array([(values > 1.0).mean(axis=0) for values in found])
    half = np.full(len(names), np.nan)
    if len(found) > 1:
        half = stats.t.ppf(0.975, len(found) - 1) * stats.sem(shares)
    everything, deviations = np.concatenate(found), np.array(deviations)  # [runs, 2, H]
    print(f"{len(found)} runs, {options.batches} batches of each")
    for head, name in enumerate(names):
        values = everything[:, head]
        print(
            f"{name}: sigma_batch is larger in {shares[:, head].mean():.0%} +- {half[head]:.0%} of batches; "
            f"sigma_batch / sigma: median {np.median(values):.2f}, at most {values.max():.2f}; rewards vary by "
            + ", ".join(
                f"{x.mean():.2f} ({x.min():.2f} to {x.max():.2f}) {how}"
                for x, how in zip(deviations[..., head].T, ("as drawn", "weighted back"), strict=True)
            )
        )


if __name__ == "__main__":
    main()
