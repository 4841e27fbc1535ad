"""The cost of publishing the paper's weights through Reverb, and of fetching them.

    .venv/bin/python -m benchmarks.weights_traffic

Random weights in the number of the paper's ten-head network, ten rounds; prints medians. The learner's own thread pays
for the copy alone.
"""

from __future__ import annotations

import subprocess
import sys
import time

from agents.running.startup import quiet

quiet()  # before TensorFlow is imported

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from agents.replay.reverb_replay import ReverbReplay  # noqa: E402
from agents.storage.weights import assign, packed  # noqa: E402
from agents.targets import SequenceShape  # noqa: E402

PARAMETERS = 13_218_174  # of the paper's network with ten heads and 18 actions
ROUNDS = 10


def replay(**connection) -> ReverbReplay:
    """A small replay, for its table of weights."""
    state = (tf.TensorSpec((8,), tf.float32), tf.TensorSpec((8,), tf.float32))
    return ReverbReplay(
        SequenceShape(),
        tf.TensorSpec((3,), tf.uint8),
        state,
        10,
        capacity=4000,
        min_sequences=1,
        **connection,
    )


def fetch(address: str) -> None:
    """The collector's side, in a process of its own: prints one line per round."""
    client, variable = replay(address=address), tf.Variable(tf.zeros(PARAMETERS))
    for line in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        step, data = client.weights()
        assign([variable], data)
        assert step == int(line)
        print(time.perf_counter() - wall, time.process_time() - cpu, flush=True)
    client.stop()


def main() -> None:
    server = replay()
    variable = tf.Variable(np.random.default_rng(0).normal(size=PARAMETERS).astype(np.float32))
    command = [sys.executable, "-m", "benchmarks.weights_traffic", server.address]
    figures = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        for step in range(ROUNDS):
            times = [time.perf_counter()]
            copy = tf.identity(variable)
            times.append(time.perf_counter())
            data = packed([copy])
            times.append(time.perf_counter())
            server.publish(step, data)
            times.append(time.perf_counter())
            reader.stdin.write(f"{step}\n")
            reader.stdin.flush()
            figures.append([*np.diff(times), *map(float, reader.stdout.readline().split())])
        reader.stdin.close()
    names = ("copy", "pack", "publish", "fetch (wall)", "fetch (cpu)")
    print(f"{data.nbytes / 1e6:.1f} MB; milliseconds, medians of {ROUNDS}:")
    for name, value in zip(names, 1000 * np.median(figures, axis=0), strict=True):
        print(f"  {name:14}{value:8.1f}")
    server.stop()


if __name__ == "__main__":
    fetch(sys.argv[1]) if len(sys.argv) > 1 else main()
