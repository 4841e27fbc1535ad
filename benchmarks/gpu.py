"""What the paper's update and the learner cost on this machine's GPU: one page in ten minutes.

    make bench-gpu                                       # into runs/gpu.md
    .venv/bin/python -m benchmarks.gpu --part=losses     # one of its parts, printed

Each part runs in a process of its own with a time limit: one that hangs or crashes costs only its own rows. Without a
GPU all parts run on few frames, which shows that they work and nothing about speed.

Operations are those of matrix products and convolutions only; docs/accelerators.md has bounds. In bfloat16 the torso
computes, which is nearly all; what lies behind it stays in TF32, as TensorFlow multiplies float32 matrices on newer
cards unless it is told not to.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from agents.running.startup import quiet

quiet()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from agents import train  # noqa: E402
from agents.configuration import parse  # noqa: E402
from agents.replay.compression import compress, decompress_batch  # noqa: E402
from agents.running.embedded import EmbeddedRun  # noqa: E402
from agents.sequences import Sequence, SequenceShape  # noqa: E402
from agents.workers.collector import Collector  # noqa: E402
from agents.workers.learner import Learner  # noqa: E402
from benchmarks import workloads  # noqa: E402
from benchmarks.performance import ROOT, machine  # noqa: E402
from benchmarks.workloads import Work  # noqa: E402

ROUNDS = 10
LIMIT = 240.0  # seconds of a part: XLA compiles the paper's update for one to two minutes, and packed windows again
Row = tuple[str, str, str]  # what, figure with its unit, note


def on_gpu() -> bool:
    return bool(tf.config.list_physical_devices("GPU"))


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def device_rows() -> list[Row]:
    """Processor, cards, versions."""
    details = map(tf.config.experimental.get_device_details, tf.config.list_physical_devices("GPU"))
    names = [f"{d.get('device_name')}, compute capability {d.get('compute_capability')}" for d in details]
    built = tf.sysconfig.get_build_info()
    why = "" if names else "TF_CPP_MIN_LOG_LEVEL=0 makes TensorFlow say why; below are few frames"
    return [
        ("machine", machine(), ""),
        ("GPU", "; ".join(names) or "none", why),
        ("TensorFlow built for", f"CUDA {built.get('cuda_version')}, cuDNN {built.get('cudnn_version')}", ""),
    ]


def paper() -> Work:
    """The paper's update; its network on few frames without a GPU."""
    batch, shape = (32, SequenceShape(20, 80, 40, 5)) if on_gpu() else (1, SequenceShape(1, 2, 1, 1))
    return dataclasses.replace(workloads.PAPER, batch=batch, shape=shape)


def windows(work: Work, packed: bool) -> Sequence:
    """A batch whose blocks of rows show one frame each; packed as the replay hands it to a GPU.

    One piece in five is new, of raw Atari frames 1% to 25%.
    """
    whole, block = workloads.windows(work), work.shape.block
    frames = np.repeat(whole.steps.observation[:, ::block].numpy(), block, axis=1)
    observation = tf.constant(frames)
    if packed:
        starts = range(0, work.shape.rows, block)
        strings = [[compress(window[row : row + block], level=1) for row in starts] for window in frames]
        observation = decompress_batch(tf.constant(strings), block, work.observation_spec)
    return whole._replace(steps=whole.steps._replace(observation=observation))


def update_rows(dtype: str, compiled: bool) -> Iterator[Row]:
    """Updates of the paper's agent on windows that are on the device, from the host, and from there packed."""
    work = paper()
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


def loss_rows(updates: int = 10) -> Iterator[Row]:
    """The same updates on the first GPU and on the CPU, in float32.

    Adam divides by the size of a gradient, so rounding grows from update to update: the CPU is compared with itself,
    too, on the same windows in the opposite order.
    """
    work = workloads.PAPER if on_gpu() else paper()  # what a CPU makes ten times in some seconds
    tf.config.experimental.enable_tensor_float_32_execution(False)

    def losses(device: str, order: int) -> np.ndarray:
        with tf.device(device):
            agent = workloads.agent(work, jit_compile=False)
            sequence = tf.nest.map_structure(lambda column: column[::order], workloads.windows(work))
            step = tf.function(agent.train)
            return np.array([step(sequence).loss.numpy() for _ in range(updates)])

    cpu = losses("/CPU:0", 1)
    others = {"the GPU": ("/GPU:0", 1)} if on_gpu() else {}
    for name, of in (others | {"the CPU in the opposite order": ("/CPU:0", -1)}).items():
        errors = np.abs(losses(*of) / cpu - 1)
        kept = "yes" if errors[0] <= 1e-5 else "**no**"
        each = ", ".join(f"{error:.0e}" for error in errors)
        yield (
            f"losses of {updates} updates on {name}, relative to the CPU's",
            each,
            f"the first within 1e-5: {kept}",
        )


def learner_rows() -> list[Row]:
    """Collecting, drawing, and whole updates of the learner, which draws, updates, and sets priorities."""
    config, batch, steps = ("atari_ten_heads", 32, 145) if on_gpu() else ("quickstart", 8, 40)
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
    return [
        (f"{config}: drawing a batch of {batch}", f"{1e3 * drawing:.1f} ms", ""),
        ("drawing, update, priorities", f"{1e3 * updating:.1f} ms, {1 / updating:.3g} updates/s", ""),
        ("collecting in the same process", f"{collected / collecting:.0f} steps/s", "first calls included"),
    ]


def training_rows() -> Iterator[Row]:
    """Two minutes of training in Pong, and what an update and its steps take of them."""
    spent, begun = Counter[str](), list[int]()

    def timed(owner: type, name: str) -> Any:
        method = getattr(owner, name)

        def measured(self: Any, *args: Any) -> Any:
            start = time.perf_counter()
            result = method(self, *args)
            spent[name] += time.perf_counter() - start
            if owner is Learner and not begun:  # it is compiled now
                begun.append(self.environment_steps)
                spent.clear()
            return result

        return mock.patch.object(owner, name, measured)

    length, config, env = (120, "atari_small", "pong") if on_gpu() else (60, "quickstart", None)
    threading.Timer(length, os.kill, (os.getpid(), signal.SIGTERM)).start()
    patches = [timed(Collector, name) for name in ("run", "_collect", "_step_environment")]
    with contextlib.ExitStack() as stack:
        for patch in (timed(Learner, "update"), *patches):
            stack.enter_context(patch)
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        done = train(config, env=env, root_dir=folder)
    yield (
        f"{length} s of training",
        f"{done.updates:,} updates, {done.environment_steps:,} steps",
        "from the call on",
    )
    if done.updates < 2:
        return
    yield "an update in them", f"{1e3 * spent['update'] / (done.updates - 1):.1f} ms", "the first left out"
    collecting, stepping, games = (spent[name] for name in ("run", "_collect", "_step_environment"))
    parts = stepping - games, games, collecting - stepping
    each = 1e6 / (done.environment_steps - begun[0])
    figures = ", ".join(f"{each * part:.0f}" for part in parts)
    yield "1,000 steps: acting, games, writing", f"{figures} ms", "likewise"


PARTS: dict[str, Callable[[], Iterable[Row]]] = {  # what is needed most comes first
    "devices": device_rows,
    "training": training_rows,
    "tf32-xla": partial(update_rows, "tf32", True),
    "losses": loss_rows,
    "tf32": partial(update_rows, "tf32", False),
    "learner": learner_rows,
    "bfloat16-xla": partial(update_rows, "bfloat16", True),
    "float32-xla": partial(update_rows, "float32", True),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/gpu.md", help="the page")
    parser.add_argument("--part", choices=PARTS, help="only this one, in this process")
    options = parser.parse_args()
    if options.part:
        for row in PARTS[options.part]():
            print("| {} | {} | {} |".format(*row), flush=True)
        return
    # The driver translates kernels at their first use, not all at once, and keeps them for the next process.
    settings = {"CUDA_MODULE_LOADING": "LAZY", "CUDA_CACHE_MAXSIZE": str(2**32 - 1)}
    environment = settings | {"TF_FORCE_GPU_ALLOW_GROWTH": "true"} | os.environ
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with options.output.open("w") as page:
        print("# On a GPU\n\n| what | measured | note |\n|---|---|---|", file=page, flush=True)
        for name in PARTS:
            command = [sys.executable, "-m", "benchmarks.gpu", f"--part={name}"]
            try:
                code = subprocess.run(
                    command, cwd=ROOT, env=environment, stdout=page, timeout=LIMIT
                ).returncode
                ended = f"ended with {code}"
            except subprocess.TimeoutExpired:
                code, ended = None, f"stopped after {LIMIT:g} s"
            if code != 0:
                print(f"| {name} | **{ended}** | |", file=page, flush=True)
    print(options.output.read_text())


if __name__ == "__main__":
    main()
