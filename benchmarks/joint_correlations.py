"""Correlations that the joint scaling whitens: those of the paper's ten heads on real episodes of a random policy.

    .venv/bin/python -m benchmarks.joint_correlations space_invaders minatar/space_invaders

For each game: the eigenvalues of the correlation matrix P, and, for 5-step errors of values of zero, the share of heads
whose gradient points against their own error and the size of gradients relative to return-based scaling, at several
lower bounds of the eigenvalues. One seed, some thousand steps.
"""

from __future__ import annotations

import argparse

from agents.running.startup import quiet

quiet()  # before TensorFlow is imported

import numpy as np  # noqa: E402

from agents.heads import Heads  # noqa: E402
from rbs_tf import discounted_returns  # noqa: E402
from rbs_tf.returns import n_step_sums  # noqa: E402
from rbs_tf.scalings.joint_moments import JointMoments  # noqa: E402
from studies.episodes import random_episodes  # noqa: E402

SIGMA_V, N_STEP = 1e-2, 5
BOUNDS = (1e-2, 0.1, 0.3, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("games", nargs="+", metavar="GAME")
    parser.add_argument("--episodes", type=int, default=16)
    options = parser.parse_args()
    heads = Heads()
    for game in options.games:
        joint, errors = JointMoments.empty(len(heads)), []
        for episode in random_episodes(game, options.episodes, seed=0):
            going_on = np.ones(len(episode.rewards))
            going_on[-1] = 0.0 if episode.terminal else 1.0
            steps = heads.rewards(episode.rewards), heads.discounts(going_on)
            returns = discounted_returns(*steps)
            for moments in (JointMoments.from_steps(*steps), JointMoments.from_returns(returns)):
                joint = JointMoments.merge(joint, moments)
            errors.append(n_step_sums(*steps, N_STEP)[0])
        covariance, errors = joint.sigma_squared, np.concatenate(errors)
        scale = np.maximum(np.sqrt(np.diag(covariance)), SIGMA_V)
        correlations = covariance / np.outer(scale, scale)
        np.fill_diagonal(correlations, 1.0)
        eigenvalues, vectors = np.linalg.eigh(correlations)
        shown = " ".join(f"{value:.2g}" for value in eigenvalues[::-1])
        print(f"{game}, {len(errors)} steps: eigenvalues {shown}")
        scaled = errors / scale
        for bound in BOUNDS:
            whitened = scaled @ (vectors / np.maximum(eigenvalues, bound)) @ vectors.T
            some = scaled != 0.0
            against = np.mean((whitened * scaled < 0.0)[some])
            size = np.sqrt(np.mean(np.square(whitened / scale)) / np.mean(np.square(scaled / scale)))
            print(
                f"  bound {bound:<5g} against their own error {against:.0%}, gradients {size:.2g} times as large"
            )


if __name__ == "__main__":
    main()
