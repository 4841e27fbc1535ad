"""How far Adam's first steps move the sums of the torso's last layer, and how far states are apart.

    python -m benchmarks.first_steps --env=pong

A line per setting of `RecurrentQNetwork.normalise_torso` and update, over 1,024 frames of the replay: how much a unit's
sum deviates over states, how far its mean has moved since the start (medians over units), and the share of dead units.
"""

from __future__ import annotations

import argparse
import tempfile

import gin
import numpy as np
import tensorflow as tf

from agents.running.embedded import EmbeddedRun
from agents.storage.run_folder import REPOSITORY
from networks.torsos import NORMALISATIONS

UPDATES = (0, 1, 2, 5, 10, 20)


def measure(env: str, how: str, seed: int) -> None:
    bindings = [
        f"train.env = '{env}'",
        f"train.seed = {seed}",
        "Replay.backend = 'local'",
        f"RecurrentQNetwork.normalise_torso = '{how}'",
    ]
    gin.clear_config()
    gin.parse_config_files_and_bindings([str(REPOSITORY / "configs/atari_small.gin")], bindings)
    with tempfile.TemporaryDirectory() as folder, EmbeddedRun(folder) as run:
        while run.replay.size < run.replay.min_sequences + 200:
            run.collector.run(20)
        run.learner.drain_statistics()
        network = run.agent.network
        draws = iter(run.replay.dataset(16))
        batches = [next(draws)[0] for _ in range(4)]
        frames = run.agent.real_observations(batches)[:1024]
        if network.torso_is_set_from_data:
            run.agent.set_torso_from(batches)

        def sums() -> np.ndarray:
            torso = network._torso
            before = torso.activations(frames)[-2]
            inputs = tf.reshape(before, (len(frames), -1))
            inputs = torso._centres[-1](inputs) if torso._centres else inputs
            return torso._stages[-1](inputs).numpy().astype(np.float64)

        start = sums()
        for update in range(max(UPDATES) + 1):
            if update in UPDATES:
                now = sums()
                moved, apart = np.abs(now.mean(axis=0) - start.mean(axis=0)), now.std(axis=0)
                dead = np.mean((now <= 0.0).all(axis=0))
                found = f"{np.median(apart):.2g} | {np.median(moved):.2g} | {dead:.0%}"
                print(f"| {how} | {update} | {found} |", flush=True)
            run.learner.update()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--env", default="pong")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print("| setting | updates | deviation over states | moved in all states | dead |\n|---|---|---|---|---|")
    for how in NORMALISATIONS:
        measure(options.env, how, options.seed)


if __name__ == "__main__":
    main()
