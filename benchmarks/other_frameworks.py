"""The learner's update, ours against the same one in JAX and in PyTorch: same weights, same batch, same results.

    make rivals-venv
    .venv/bin/python -m benchmarks.other_frameworks

`make rivals-venv` puts JAX and PyTorch into .venv-rivals, apart from TensorFlow; without it nothing is measured. Each
works in a process of its own, on the same core with one thread, in float32, by turns with ours; all compute loss,
priorities, means per head and Adam's step. JAX's update is one jitted function. PyTorch's is eager (compiling its torso
did not make it quicker), with `nn.LSTM`, which knows no resets; where a window has one, it goes row by row. In
return it is spared them in the measured windows, and both compute the sigma of a batch in float32, not in float64.

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
import time  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from contextlib import ExitStack, contextmanager  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tf_agents.trajectories.time_step import StepType  # noqa: E402

from agents.agent import RecurrentMultiHeadAgent  # noqa: E402
from agents.targets import Sequence  # noqa: E402
from benchmarks import workloads  # noqa: E402
from benchmarks.rivals import Settings  # noqa: E402
from benchmarks.workloads import Work  # noqa: E402

ROOT = Path(__file__).parent.parent
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

# Makes so many updates with the batch of that name: {"cpu", "wall", "loss", "priorities"}, of one and of the last.
Way = Callable[[str, int], dict]


def checked_windows(work: Work) -> Sequence:
    """Windows in which everything happens: states, resets, ends, padding, unequal probabilities."""
    plain, random = workloads.windows(work, seed=1), np.random.default_rng(1)
    step_type, action, reward, discount = (
        np.array(column)
        for column in (
            plain.steps.step_type,
            plain.steps.previous_action,
            plain.steps.reward,
            plain.steps.discount,
        )
    )
    burn_in, rows = work.shape.burn_in, work.shape.rows
    for window, where in ((0, slice(burn_in)), (1, slice(rows - 8, rows)), (2, slice(2))):
        step_type[window, where], action[window, where] = StepType.LAST, -1
        reward[window, where], discount[window, where] = 0.0, 0.0
    for window, where in ((0, burn_in), (2, 2), (3, burn_in + 7)):
        step_type[window, where], action[window, where], reward[window, where] = StepType.FIRST, -1, 0.0
    for window, where in ((1, rows - 9), (3, burn_in + 6)):
        step_type[window, where], discount[window, where] = StepType.LAST, 0.0
    steps = plain.steps._replace(
        step_type=tf.constant(step_type),
        previous_action=tf.constant(action),
        reward=tf.constant(3.0 * reward),
        discount=tf.constant(discount),
    )
    state = tuple(
        tf.constant(random.normal(size=(work.batch, work.lstm_units)), tf.float32) for _ in range(2)
    )
    probability = tf.constant(random.uniform(0.001, 0.02, work.batch), tf.float32)
    return plain._replace(steps=steps, core_state=state, probability=probability)


def save(path: str, work: Work, agent: RecurrentMultiHeadAgent, batches: dict[str, Sequence]) -> None:
    """Saves a rival's starting point: weights, batches and settings."""
    torso = work.torso()
    strides = [stage.strides[0] for stage in torso._stages if isinstance(stage, tf.keras.layers.Conv2D)]
    names = [f"conv_{kind}{index}" for index in range(len(strides)) for kind in "wb"]
    names += ["torso_w", "torso_b", "W", "R", "b", "linear_w", "linear_b", "W1", "b1", "Wv", "bv", "Wa", "ba"]
    arrays = {}
    for group, network in (("online", agent.network), ("target", agent.target_network)):
        for name, variable in zip(names, network.trainable_variables, strict=True):
            arrays[f"{group}/{name}"] = variable.numpy()
    for group, batch in batches.items():
        columns = batch.steps._asdict() | dict(zip("hc", batch.core_state, strict=True))
        columns |= {"probability": batch.probability, "table_size": batch.table_size}
        arrays |= {f"{group}/{name}": np.array(column) for name, column in columns.items()}
    discounts, clips = zip(*agent.heads.pairs, strict=True)
    settings = Settings(
        work.shape.burn_in,
        work.shape.length,
        work.shape.n_step,
        work.observation[:2],
        not work.flags,
        strides,
        discounts,
        clips,
        agent.scaling.layer.sigma.numpy().tolist(),
        float(agent.scaling.layer.sigma_v[0]),
        **OPTIONS,
    )
    np.savez(path, settings=json.dumps(settings._asdict()), **arrays)


def ours(agent: RecurrentMultiHeadAgent, batches: dict[str, Sequence]) -> Way:
    step = tf.function(agent.train)

    def train(name: str, updates: int) -> dict:
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(updates):
            found = step(batches[name])
            loss, priorities = found.loss.numpy(), found.extra.priorities.numpy()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        return {"cpu": cpu / updates, "wall": wall / updates, "loss": loss, "priorities": priorities}

    return train


@contextmanager
def rival(name: str, path: str) -> Iterator[Way]:
    """The program of that name, until the end of the context."""
    command = [str(PYTHON), "-m", f"benchmarks.rivals.{name}", path]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:

        def train(batch: str, updates: int) -> dict:
            print(json.dumps({"batch": batch, "updates": updates}), file=process.stdin, flush=True)
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


def measure(work: Work, updates: int, plan: list[str], reach: str = "at most 1") -> None:
    agent = workloads.agent(work, **OPTIONS)
    for variable in agent.target_network.trainable_variables:
        variable.assign(0.9 * variable)  # mistaken for the online network it must show
    batches = {"checked": checked_windows(work), "measured": workloads.windows(work)}
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/work.npz"
        save(path, work, agent, batches)
        ways = {"ours": ours(agent, batches)}
        expected = [ways["ours"](batch, 1) for batch in plan]
        for name in RIVALS:
            ways[name] = stack.enter_context(rival(name, path))
            check(expected, name, ways[name], plan)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for turn in range(ROUNDS):
            for name in list(ways)[:: 1 if turn % 2 == 0 else -1]:
                answer = ways[name]("measured", updates)
                found[name].append((answer["cpu"], answer["wall"]))
    for name, words in RIVALS.items():
        publish(
            row(
                f"learner step, {work.name}, ten heads, float32",
                words,
                found["ours"],
                found[name],
                unit="cpu-ms per update",
                reach=reach,
            )
        )


def main() -> None:
    if not PYTHON.exists():
        print("JAX and PyTorch are compared with ours once `make rivals-venv` has installed them.")
        return
    measure(workloads.QUICKSTART, updates=48, plan=["checked", "measured"] * 3, reach="at most 0.75")
    measure(workloads.SMALL, updates=24, plan=["checked", "measured"] * 3)
    measure(workloads.PAPER, updates=1, plan=["checked", "measured"])


if __name__ == "__main__":
    main()
