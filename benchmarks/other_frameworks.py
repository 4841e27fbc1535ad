"""The learner's update, ours against the same one in JAX and in PyTorch: same weights, same batch, same results.

    make rivals-venv
    .venv/bin/python -m benchmarks.other_frameworks

`make rivals-venv` puts JAX and PyTorch into .venv-rivals, apart from TensorFlow; without it nothing is measured. Each
works in a process of its own, on the same core with one thread, in float32, by turns with ours; all compute the loss
without scaling, priorities and Adam's step, and ours the means for TensorBoard, too. JAX's update is one jitted
function. PyTorch's is eager (compiling its torso did not make it quicker), with `nn.LSTM`, which knows no resets; where
a window has one, it goes row by row. In return it is spared them in the measured windows.

Before anything is measured each must follow our losses for six updates, of the paper's network for two, and our
priorities for two; every other update is of windows with padding and with ends and beginnings of episodes.
"""

from __future__ import annotations

from benchmarks.side_by_side import ROUNDS, one_core, publish, row

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import json  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from contextlib import ExitStack, contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tf_agents.trajectories.time_step import StepType  # noqa: E402

from agents.agent import RecurrentMultiHeadAgent  # noqa: E402
from agents.scalings import Scaling  # noqa: E402
from agents.sequences import Sequence  # noqa: E402
from benchmarks import workloads  # noqa: E402
from benchmarks.rivals import Settings, Way, way  # noqa: E402
from benchmarks.workloads import Work  # noqa: E402

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / ".venv-rivals/bin/python"
RIVALS = {"jax_step": "JAX, jitted", "torch_step": "PyTorch"}
TOLERANCE = 1e-3
OPTIONS = {
    "learning_rate": 2e-4,
    "adam_epsilon": 1e-6,
    "target_update_period": 400,
    "priority_eta": 0.9,
    "importance_exponent": 0.6,
}
# Their names of our network's variables behind the convolutions.
NAMES = ("torso_w", "torso_b", "W", "R", "b", "linear_w", "linear_b", "W1", "b1", "Wv", "bv", "Wa", "ba")


def checked_windows(work: Work) -> Sequence:
    """Windows in which everything happens: states, resets, ends, padding, unequal probabilities."""
    plain, random = workloads.windows(work, seed=1), np.random.default_rng(1)
    names = "step_type", "previous_action", "reward", "discount"
    columns = {name: np.array(getattr(plain.steps, name)) for name in names}
    step_type, action, reward, discount = columns.values()
    burn_in, rows = work.shape.burn_in, work.shape.rows
    for window, where in ((0, slice(burn_in)), (1, slice(rows - 8, rows)), (2, slice(2))):
        step_type[window, where], action[window, where] = StepType.LAST, -1
        reward[window, where], discount[window, where] = 0.0, 0.0
    for window, where in ((0, burn_in), (2, 2), (3, burn_in + 7)):
        step_type[window, where], action[window, where], reward[window, where] = StepType.FIRST, -1, 0.0
    for window, where in ((1, rows - 9), (3, burn_in + 6)):
        step_type[window, where], discount[window, where] = StepType.LAST, 0.0
    reward *= 3.0  # beyond clipping
    steps = plain.steps._replace(**{name: tf.constant(column) for name, column in columns.items()})
    state = tuple(tf.constant(random.normal(size=(work.batch, work.lstm_units)), tf.float32) for _ in "hc")
    probability = tf.constant(random.uniform(0.001, 0.02, work.batch), tf.float32)
    return plain._replace(steps=steps, core_state=state, probability=probability)


def save(path: str, work: Work, agent: RecurrentMultiHeadAgent, batches: dict[str, Sequence]) -> None:
    """Saves a rival's starting point: weights, batches and settings."""
    stages = work.torso()._stages
    strides = [stage.strides[0] for stage in stages if isinstance(stage, tf.keras.layers.Conv2D)]
    names = [f"conv_{kind}{index}" for index in range(len(strides)) for kind in "wb"]
    arrays = {}
    for group, network in (("online", agent.network), ("target", agent.target_network)):
        for name, variable in zip((*names, *NAMES), network.trainable_variables, strict=True):
            arrays[f"{group}/{name}"] = variable.numpy()
    for group, batch in batches.items():
        columns = batch.steps._asdict() | dict(zip("hc", batch.core_state, strict=True))
        columns |= {"probability": batch.probability, "table_size": batch.table_size}
        arrays |= {f"{group}/{name}": np.array(column) for name, column in columns.items()}
    discounts, clips = zip(*agent.heads.pairs, strict=True)
    shape = work.shape.burn_in, work.shape.length, work.shape.n_step
    settings = Settings(*shape, work.observation[:2], not work.flags, strides, discounts, clips, **OPTIONS)
    np.savez(path, settings=json.dumps(settings._asdict()), **arrays)


@contextmanager
def rival(name: str, path: str) -> Iterator[Way]:
    """The program of that name, until the end of the context."""
    with subprocess.Popen(
        [str(PYTHON), "-m", f"benchmarks.rivals.{name}", path],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as process:

        def train(batch: str, updates: int) -> dict:
            print(json.dumps([batch, updates]), file=process.stdin, flush=True)
            if not (answer := process.stdout.readline()):
                raise RuntimeError(f"{name} ended without an answer")
            return json.loads(answer)

        yield train
        process.stdin.close()


def check(expected: list[dict], name: str, way: Way, plan: list[str]) -> None:
    """Says whether a rival follows our losses and priorities.

    Raises:
      SystemExit: it does not: what it computes is something else.
    """
    for update, (batch, ours) in enumerate(zip(plan, expected, strict=True)):
        found = way(batch, 1)
        # Rounding errors, which Adam's division makes larger, show in priorities before they show in losses.
        for key in ("loss", "priorities") if update < len(set(plan)) else ("loss",):
            if not np.allclose(found[key], ours[key], rtol=TOLERANCE):
                raise SystemExit(f"{name}, update {update + 1}: {key} {found[key]} instead of {ours[key]}")


def measure(work: Work, updates: int, plan: list[str], at_most: float = 1.0) -> None:
    agent = workloads.agent(work, scaling=Scaling, **OPTIONS)
    for variable in agent.target_network.trainable_variables:
        variable.assign(0.9 * variable)  # mistaken for the online network it must show
    batches = {"checked": checked_windows(work), "measured": workloads.windows(work)}
    step = tf.function(agent.train)
    ours = way(
        lambda batch: step(batches[batch]), lambda found: (float(found.loss), found.extra.priorities.numpy())
    )
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/work.npz"
        save(path, work, agent, batches)
        expected = [ours(batch, 1) for batch in plan]
        ways = {"ours": ours} | {name: stack.enter_context(rival(name, path)) for name in RIVALS}
        for name in RIVALS:
            check(expected, name, ways[name], plan)
        found: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(ROUNDS):
            for name in list(ways)[:: 1 if turn % 2 == 0 else -1]:
                found[name].append(ways[name]("measured", updates)["cpu"])
    what, unit = f"learner step, {work.name}, ten heads, float32, no scaling", "cpu-ms per update"
    for name, words in RIVALS.items():
        publish(row(what, words, found["ours"], found[name], unit=unit, at_most=at_most))


def main() -> None:
    if not PYTHON.exists():
        print("JAX and PyTorch are compared with ours once `make rivals-venv` has installed them.")
        return
    measure(workloads.QUICKSTART, updates=48, plan=["checked", "measured"] * 3, at_most=0.75)
    measure(workloads.SMALL, updates=24, plan=["checked", "measured"] * 3)
    measure(workloads.PAPER, updates=1, plan=["checked", "measured"])


if __name__ == "__main__":
    main()
