"""The learner's update beside the newest TensorFlow against the same one beside 2.15: same weights, same batch.

    make test-newest            # makes .venv-newest
    .venv/bin/python -m benchmarks.newest_tensorflow

Each works in a process of its own, on the same core with one thread, by turns; their losses must agree.
"""

from __future__ import annotations

from benchmarks.side_by_side import ROUNDS, one_core, publish, row

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import json  # noqa: E402
import subprocess  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from contextlib import ExitStack  # noqa: E402
from pathlib import Path  # noqa: E402

ROOT = Path(__file__).parent.parent
PYTHONS = {"newest": ROOT / ".venv-newest/bin/python", "2.15": Path(sys.executable)}
TOLERANCE = 1e-3
UPDATES = {"SMALL": 24, "PAPER": 1}


def work_off(name: str) -> None:
    """The worker: as many updates as each line of its input asks for, and an answer in a line of its output."""
    import tensorflow as tf

    from benchmarks import workloads

    work = getattr(workloads, name)
    step, windows = tf.function(workloads.agent(work).train), workloads.windows(work)
    for line in sys.stdin:
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(int(line)):
            loss = float(step(windows).loss)
        spent = [(time.process_time() - cpu) / int(line), (time.perf_counter() - wall) / int(line)]
        print(
            json.dumps({"spent": spent, "loss": loss, "work": work.name, "version": tf.__version__}),
            flush=True,
        )


def measure(name: str, updates: int) -> None:
    """Publishes the row of a workload."""
    with ExitStack() as stack:
        workers = {
            stack_name: stack.enter_context(
                subprocess.Popen(
                    [python, "-m", "benchmarks.newest_tensorflow", name],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    bufsize=1,
                )
            )
            for stack_name, python in PYTHONS.items()
        }

        def asked(stack_name: str, updates: int) -> dict:
            worker = workers[stack_name]
            assert worker.stdin and worker.stdout
            print(updates, file=worker.stdin, flush=True)
            return json.loads(worker.stdout.readline())

        first = {stack_name: asked(stack_name, 1) for stack_name in workers}
        losses = {stack_name: answer["loss"] for stack_name, answer in first.items()}
        if abs(losses["newest"] - losses["2.15"]) > TOLERANCE * abs(losses["2.15"]):
            raise SystemExit(f"{name}: the losses differ: {losses}")
        found: dict[str, list[tuple[float, float]]] = {stack_name: [] for stack_name in workers}
        for turn in range(ROUNDS):
            for stack_name in list(workers)[:: 1 if turn % 2 == 0 else -1]:
                cpu, wall = asked(stack_name, updates)["spent"]
                found[stack_name].append((cpu, wall))
        for worker in workers.values():
            assert worker.stdin
            worker.stdin.close()
    versions = {stack_name: answer["version"] for stack_name, answer in first.items()}
    publish(
        row(
            f"learner step, {first['newest']['work']}, ten heads, TensorFlow {versions['newest']}",
            f"TensorFlow {versions['2.15']}",
            found["newest"],
            found["2.15"],
            unit="cpu-ms per update",
        )
    )


def main() -> None:
    if not PYTHONS["newest"].exists():
        print("The newest TensorFlow is compared with 2.15 once `make test-newest` has installed it.")
        return
    for name, updates in UPDATES.items():
        measure(name, updates)


if __name__ == "__main__":
    work_off(sys.argv[1]) if len(sys.argv) > 1 else main()
