"""What the paper's update and the learner cost on this machine's GPU: one page in ten minutes.

    make bench-gpu                                       # into runs/gpu.md
    .venv/bin/python -m benchmarks.gpu --output=gpu.md   # the same elsewhere
    .venv/bin/python -m benchmarks.gpu --part=losses     # one of its parts, printed

Each part runs in a process of its own with a time limit: one that hangs or crashes costs its own rows, and the page
says how it ended. Without a GPU all parts run on few frames, which shows that they work and nothing about speed.

Operations are those of matrix products and convolutions only; docs/accelerators.md has bounds. In bfloat16 the torso
computes, which is nearly all; what lies behind it stays in TF32, as TensorFlow multiplies float32 matrices on newer
cards unless it is told not to.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agents.sequences import Sequence
    from benchmarks.workloads import Work

ROOT = Path(__file__).parents[1]
PAPERS_RATE = 4.6  # updates per second: 200,000 in 12 hours
ROUNDS = 10
LEAST = 10.0  # seconds that are worth starting a part for
LAST_LINES = 15  # shown of one that failed
NO_GPU = "none"
Row = tuple[str, str, str]  # what, figure with its unit, note


def on_gpu() -> bool:
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def device_rows(small: bool) -> list[Row]:
    """Processor, cards, versions."""
    import tensorflow as tf

    from benchmarks.performance import machine

    cards = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(card) for card in cards]
    names = [f"{d.get('device_name')}, compute capability {d.get('compute_capability')}" for d in details]
    built = tf.sysconfig.get_build_info()
    why = "" if names else "TF_CPP_MIN_LOG_LEVEL=0 makes TensorFlow say why"
    return [
        ("machine", machine(), ""),
        ("GPU", "; ".join(names) or NO_GPU, why),
        ("TensorFlow built for", f"CUDA {built.get('cuda_version')}, cuDNN {built.get('cudnn_version')}", ""),
    ]


def paper(small: bool) -> Work:
    """The paper's update, or its network on few frames."""
    from agents.sequences import SequenceShape
    from benchmarks.workloads import PAPER

    if small:
        return dataclasses.replace(PAPER, batch=1, shape=SequenceShape(1, 2, 1, 1))
    return dataclasses.replace(PAPER, batch=32, shape=SequenceShape(20, 80, 40, 5))


def windows(work: Work, packed: bool) -> Sequence:
    """A batch whose blocks of rows show one frame each; packed as the replay hands it to a GPU.

    One piece in five is new, of raw Atari frames 1% to 25%.
    """
    import numpy as np
    import tensorflow as tf

    from agents.replay.compression import compress, decompress_batch
    from benchmarks import workloads

    whole, block = workloads.windows(work), work.shape.block
    frames = np.repeat(whole.steps.observation[:, ::block].numpy(), block, axis=1)
    observation = tf.constant(frames)
    if packed:
        starts = range(0, work.shape.rows, block)
        strings = [[compress(window[row : row + block], level=1) for row in starts] for window in frames]
        observation = decompress_batch(tf.constant(strings), block, work.observation_spec)
    return whole._replace(steps=whole.steps._replace(observation=observation))


def update_rows(small: bool, dtype: str, compiled: bool) -> Iterator[Row]:
    """Updates of the paper's agent on windows that are on the device, from the host, and from there packed."""
    import tensorflow as tf

    from benchmarks import workloads

    work = paper(small)
    tf.config.experimental.enable_tensor_float_32_execution(dtype != "float32")
    compute_dtype = "bfloat16" if dtype == "bfloat16" else "float32"
    operations = workloads.operations(work)
    for packed in (False, True):
        agent = workloads.agent(work, compute_dtype=compute_dtype, jit_compile=compiled)
        step = tf.function(agent.train)
        for host in (True,) if packed else (False, True):
            with tf.device("/CPU:0" if host else None):
                sequence = windows(work, packed)
            update = partial(lambda step, sequence: step(sequence).loss.numpy(), step, sequence)
            first, *times = (seconds(update) for _ in range(1 + ROUNDS))
            median = statistics.median(times)
            how = "compiled with XLA" if compiled else "not compiled"
            yield (
                f"update, {dtype}, {how}{', packed' * packed}{', from the host' * host}",
                f"{1e3 * median:.1f} [{1e3 * min(times):.1f}, {1e3 * max(times):.1f}] ms, {1 / median:.3g} updates/s",
                f"{operations:.2e} operations, {operations / median / 1e12:.3g} TFLOP/s; the first took {first:.1f} s",
            )


def loss_rows(small: bool, updates: int = 10) -> list[Row]:
    """The same updates on the first GPU and on the CPU, in float32; and what rounding does without a GPU.

    Adam divides by the size of a gradient, so rounding grows from update to update: the CPU is compared with itself,
    too, on the same windows in the opposite order.
    """
    import tensorflow as tf

    from benchmarks import workloads

    work = paper(True) if small else workloads.PAPER  # what a CPU makes ten times in some seconds
    tf.config.experimental.enable_tensor_float_32_execution(False)

    def losses(device: str, order: int) -> list[float]:
        with tf.device(device):
            agent = workloads.agent(work, jit_compile=False)
            sequence = tf.nest.map_structure(lambda column: column[::order], workloads.windows(work))
            step = tf.function(agent.train)
            return [float(step(sequence).loss) for _ in range(updates)]

    device = "/GPU:0" if on_gpu() else "/CPU:0"
    cpu, ours, reversed_ = losses("/CPU:0", 1), losses(device, 1), losses("/CPU:0", -1)
    rows = []
    for what, others in ((device, ours), ("the CPU with its windows in the opposite order", reversed_)):
        errors = [abs(other - loss) / abs(loss) for loss, other in zip(cpu, others, strict=True)]
        each = ", ".join(f"{error:.0e}" for error in errors)
        kept = "yes" if errors[0] <= 1e-5 else "**no**"
        rows.append(
            (
                f"losses of {updates} updates on {what}, relative to the CPU's",
                each,
                f"the first at most 1e-5: {kept}",
            )
        )
    return rows


def learner_rows(small: bool) -> list[Row]:
    """Collecting, drawing, and whole updates of the learner, which draws, updates, and sets priorities."""
    from agents.commands.configuration import parse
    from agents.running.embedded import EmbeddedRun

    config, batch, steps = ("quickstart", 8, 40) if small else ("atari_ten_heads", 32, 145)
    # Neither side waits for the other.
    free = ["Replay.capacity = 20_000", "Replay.error_buffer = 1e9", "Replay.min_sequences = 1"]
    parse([ROOT / f"configs/{config}.gin"], free, ROOT)
    with tempfile.TemporaryDirectory() as folder, EmbeddedRun(folder) as run:
        collecting = seconds(lambda: run.collector.run(steps))
        batches = iter(run.replay.dataset(batch))
        next(batches)
        drawing = statistics.median(seconds(lambda: next(batches)) for _ in range(ROUNDS))
        run.learner.drain_statistics()
        run.learner.update()
        updating = statistics.median(seconds(run.learner.update) for _ in range(ROUNDS))
        collected = run.collector.environment_steps
    reached = (
        "" if small else f"the paper's {PAPERS_RATE}: " + ("yes" if updating * PAPERS_RATE <= 1 else "**no**")
    )
    return [
        (f"{config}: drawing a batch of {batch}", f"{1e3 * drawing:.1f} ms", ""),
        ("drawing, update, priorities", f"{1e3 * updating:.1f} ms, {1 / updating:.3g} updates/s", reached),
        ("collecting in the same process", f"{collected / collecting:.0f} steps/s", "first calls included"),
    ]


def training_rows(small: bool) -> list[Row]:
    """Two minutes of training in Pong."""
    from agents import train

    length = 10 if small else 120
    with tempfile.TemporaryDirectory() as folder:
        threading.Timer(length, os.kill, (os.getpid(), signal.SIGTERM)).start()
        done = train("quickstart" if small else "atari_small", env=None if small else "pong", root_dir=folder)
    figure = f"{done.updates:,} updates, {done.environment_steps:,} steps"
    return [(f"{length} s of training, from the call on", figure, "")]


# name -> function of whether to run small, and seconds that it may take: XLA compiles the paper's update for one to two
# minutes, and for packed windows again, in less. What is needed most comes first.
PARTS: dict[str, tuple[Callable[[bool], Iterable[Row]], float]] = {
    "devices": (device_rows, 40.0),
    "training": (training_rows, 200.0),
    "tf32-xla": (partial(update_rows, dtype="tf32", compiled=True), 240.0),
    "losses": (loss_rows, 90.0),
    "tf32": (partial(update_rows, dtype="tf32", compiled=False), 90.0),
    "learner": (learner_rows, 240.0),
    **{
        dtype + "-xla" * compiled: (partial(update_rows, dtype=dtype, compiled=compiled), 240.0)
        for dtype in ("bfloat16", "float32")
        for compiled in (True, False)
    },
}


def run(command: list[str], limit: float) -> tuple[int | None, str]:
    """Runs a command from the clone and kills it after so many seconds.

    Returns:
      its exit code, None where its time was over, and what it said.
    """
    # The driver translates kernels at their first use, not all at once, and keeps them for the next process.
    settings = {"CUDA_MODULE_LOADING": "LAZY", "CUDA_CACHE_MAXSIZE": str(2**32 - 1)}
    settings |= {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        try:
            options = {"cwd": ROOT, "env": settings | os.environ, "stdout": said, "stderr": subprocess.STDOUT}
            code = subprocess.run(command, timeout=limit, **options).returncode
        except subprocess.TimeoutExpired:
            code = None
        said.seek(0)
        return code, said.read()


def page(minutes: float, small: bool) -> Iterator[str]:
    """Runs all parts and yields the lines of the page as they are known."""
    end = time.monotonic() + 60 * minutes
    yield from ("# On a GPU", "", "| what | measured | note |", "|---|---|---|")
    failures = {}
    for name, (_, limit) in PARTS.items():
        left = end - time.monotonic()
        if left < LEAST:
            yield f"| {name} | **not run** | {minutes:g} minutes were over |"
            continue
        command = [sys.executable, "-m", "benchmarks.gpu", f"--part={name}", *["--small"] * small]
        code, said = run(command, min(limit, left))
        lines = said.splitlines()
        yield from (line for line in lines if line.startswith("| "))  # those before it failed, too
        if code != 0:
            how = "stopped, its time was over" if code is None else f"ended with {code}"
            yield f"| {name} | **{how}** | see below |"
            failures[name] = "\n".join(lines[-LAST_LINES:])
        if name == "devices" and f"| GPU | {NO_GPU} |" in said:
            small = True
    yield ""
    if small:
        yield "No GPU was found, or --small was given: these are few frames, whose speed means nothing."
    for name, said in failures.items():
        yield from ("", f"## {name}: the end of what it said", "", "```", said, "```")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="the page; default: standard output only")
    parser.add_argument("--minutes", type=float, default=10.0, help="for all parts, default %(default)s")
    parser.add_argument("--small", action="store_true", help="few small windows, as where there is no GPU")
    parser.add_argument("--part", choices=PARTS, help="only this one, in this process")
    options = parser.parse_args()
    if options.part:
        from agents.running.startup import quiet

        quiet()
        for row in PARTS[options.part][0](options.small):
            print("| {} | {} | {} |".format(*row), flush=True)
        return
    lines = []
    for line in page(options.minutes, options.small):
        print(line, flush=True)
        lines.append(line)
        if options.output:  # after each: what is stopped keeps what it has
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
