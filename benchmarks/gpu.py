"""What the paper's update, its batches and a run of Pong cost on this machine's GPU: one page in eight minutes.

    make bench-gpu                                       # into runs/gpu.md
    .venv/bin/python -m benchmarks.gpu --output=gpu.md   # the same elsewhere
    .venv/bin/python -m benchmarks.gpu --part=losses     # one of its parts, printed

Each part runs in a process of its own with a time limit: one that hangs or crashes costs its own rows, and the page
says how it ended. Without a GPU all parts run on few frames, which shows that they work and nothing about speed.

Operations are those of matrix products and convolutions alone. The peak beside them is that of one large matrix product
in the same process and arithmetic. In bfloat16 the torso computes, which is nearly all; what lies behind it stays in
TF32, as TensorFlow multiplies float32 matrices on newer cards unless it is told not to.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from benchmarks.workloads import Work

ROOT = Path(__file__).parents[1]
PAPERS_RATE = 4.6  # updates per second: 200,000 in 12 hours
ROUNDS = 10
LEAST = 10.0  # seconds that are worth starting a part for
LAST_LINES = 15  # shown of one that failed
MARK = "row: "  # before each row that a part prints
Row = tuple[str, str, str]  # what, figure with its unit, note


def device_rows(small: bool) -> list[Row]:
    """Processor, cards, driver, versions."""
    import tensorflow as tf

    from benchmarks.performance import machine

    cards = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(card) for card in cards]
    names = [f"{d.get('device_name')}, compute capability {d.get('compute_capability')}" for d in details]
    built = tf.sysconfig.get_build_info()
    version = Path("/proc/driver/nvidia/version")
    driver = re.search(r"Module\D*(\d[\d.]+)", version.read_text() if version.exists() else "")
    return [
        ("machine", machine(), ""),
        ("GPU", "; ".join(names) or "none", "" if names else _why_none()),
        ("driver", driver.group(1) if driver else "none", ""),
        ("TensorFlow built for", f"CUDA {built.get('cuda_version')}, cuDNN {built.get('cudnn_version')}", ""),
    ]


def _why_none() -> str:
    if not Path("/dev/nvidiactl").exists():
        return ""
    return "there is a card, but TensorFlow cannot use it: TF_CPP_MIN_LOG_LEVEL=0 makes it say why"


def update_rows(dtype: str, compiled: bool, work: Work) -> list[Row]:
    """Updates of the paper's agent on windows that are on the device."""
    import tensorflow as tf

    from benchmarks import workloads

    tf.config.experimental.enable_tensor_float_32_execution(dtype != "float32")
    agent = workloads.agent(
        work, compute_dtype="bfloat16" if dtype == "bfloat16" else "float32", jit_compile=compiled
    )
    sequence = workloads.windows(work)
    step = tf.function(agent.train)

    def update() -> None:
        step(sequence).loss.numpy()

    first = _seconds(update)
    times = sorted(_seconds(update) for _ in range(ROUNDS))
    median = statistics.median(times)
    operations = workloads.operations(work)
    peak = _peak(dtype)
    what = f"update, {dtype}, " + ("compiled with XLA" if compiled else "not compiled")
    memory = ""
    if tf.config.list_physical_devices("GPU"):
        most = tf.config.experimental.get_memory_info("GPU:0")["peak"]
        memory = f"; at most {most / 1e9:.1f} GB of the card's memory"
    return [
        (
            what,
            f"{1e3 * median:.1f} [{1e3 * times[0]:.1f}, {1e3 * times[-1]:.1f}] ms, {1 / median:.3g} updates/s",
            f"{operations:.2e} operations, {operations / median / 1e12:.3g} TFLOP/s, "
            f"{operations / median / peak:.0%} of the {peak / 1e12:.3g} of a matrix product; "
            f"the first took {first:.1f} s{memory}",
        )
    ]


def _peak(dtype: str) -> float:
    """Operations per second of a large matrix product."""
    import tensorflow as tf

    on_gpu = bool(tf.config.list_physical_devices("GPU"))
    side, products = (8192, 10) if on_gpu else (256, 2)
    # Of this size the values stay what they are from one product to the next.
    square = tf.random.normal((side, side), stddev=side**-0.5)
    square = tf.cast(square, "bfloat16" if dtype == "bfloat16" else "float32")

    @tf.function(autograph=False)
    def multiply() -> tf.Tensor:
        result = square
        for _ in range(products):
            result = tf.matmul(result, square)
        return tf.cast(result[0, 0], tf.float32)

    multiply().numpy()
    return products * 2.0 * side**3 / min(_seconds(lambda: multiply().numpy()) for _ in range(3))


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def loss_rows(work: Work, updates: int = 10) -> list[Row]:
    """The same updates on the first GPU and on the CPU, in float32; and what rounding alone makes of them.

    Adam divides by the size of a gradient, so rounding grows from update to update: the CPU is compared with itself,
    too, on the same windows in the opposite order.
    """
    import tensorflow as tf

    from benchmarks import workloads

    tf.config.experimental.enable_tensor_float_32_execution(False)

    def losses(device: str, order: int) -> list[float]:
        with tf.device(device):
            agent = workloads.agent(work, jit_compile=False)
            sequence = tf.nest.map_structure(lambda column: column[::order], workloads.windows(work))
            step = tf.function(agent.train)
            return [float(step(sequence).loss) for _ in range(updates)]

    device = "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"
    cpu, ours, reversed_ = losses("/CPU:0", 1), losses(device, 1), losses("/CPU:0", -1)
    rows = []
    for what, others in ((device, ours), ("the CPU with its windows in the opposite order", reversed_)):
        errors = [abs(other - loss) / abs(loss) for loss, other in zip(cpu, others, strict=True)]
        each = ", ".join(f"{error:.0e}" for error in errors)
        kept = "yes" if max(errors) <= 1e-4 else "**no**"
        rows.append(
            (f"losses of {updates} updates on {what}, relative to the CPU's", each, f"at most 1e-4: {kept}")
        )
    return rows


def learner_rows(small: bool) -> list[Row]:
    """Drawing, copying and whole updates of the learner, which draws, updates, and sets priorities."""
    import gin
    import tensorflow as tf

    from agents.commands.configuration import parse
    from agents.targets import SequenceShape
    from agents.workers.collector import Collector
    from agents.workers.learner import Learner
    from agents.workers.parts import Training

    config = "quickstart" if small else "atari_ten_heads"
    # Neither side waits for the other.
    free = ["Replay.capacity = 20_000", "Replay.error_buffer = 1e9", "Replay.min_sequences = 1"]
    parse([ROOT / f"configs/{config}.gin"], free, ROOT)
    training = Training()
    environment = training.environment(training.num_envs, 0)
    agent, replay = training.agent(environment), training.replay(environment)
    collector = Collector(
        environment, agent.collect_policy, agent.heads, replay, SequenceShape(), agent.initial_priorities
    )
    steps = SequenceShape().rows + SequenceShape().period
    collecting = _seconds(lambda: collector.run(steps))
    batches = iter(replay.dataset(training.batch_size))
    next(batches)
    drawing = statistics.median(_seconds(lambda: next(batches)) for _ in range(ROUNDS))
    # Drawn batches lie in the memory of the host.
    with tf.device("/CPU:0"):
        observation = tf.identity(next(batches)[0].steps.observation)
    device = "/GPU:0" if tf.config.list_physical_devices("GPU") else "/CPU:0"

    def copy() -> None:
        with tf.device(device):
            tf.identity(observation)[0, 0, 0, 0, 0].numpy()

    copy()
    copying = statistics.median(_seconds(copy) for _ in range(ROUNDS))
    with tempfile.TemporaryDirectory() as folder:
        learner = Learner(folder, agent, replay, training.batch_size, 0)
        learner.drain_statistics()
        learner.update()
        updating = statistics.median(_seconds(learner.update) for _ in range(ROUNDS))
    replay.stop()
    gin.clear_config()
    size, rate = observation.shape.num_elements() / 1e6, 1 / updating
    reached = "" if small else f"; the paper's {PAPERS_RATE}: " + ("yes" if rate >= PAPERS_RATE else "**no**")
    return [
        (
            "drawing a batch",
            f"{1e3 * drawing:.1f} ms",
            f"{config}, {training.batch_size} windows, {size:.3g} MB",
        ),
        (
            "copying its observations to the device",
            f"{1e3 * copying:.1f} ms",
            f"{size / copying / 1e3:.3g} GB/s",
        ),
        (
            "the learner's update: drawing, update, priorities",
            f"{1e3 * updating:.1f} ms, {rate:.3g} updates/s",
            f"nothing read ahead{reached}",
        ),
        (
            f"collecting with {training.num_envs} environments in the same process",
            f"{training.num_envs * steps / collecting:.0f} steps/s",
            "first calls included",
        ),
    ]


def pong_rows(small: bool) -> list[Row]:
    """`train.py` itself on Pong with 16 environments, killed after a while."""
    seconds, fewest = (100, 20) if small else (120, 500)
    bindings = (f"Replay.min_sequences = {fewest}", "train.eval_interval = 0")
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "train.py",
            "--config=atari_small",
            "--env=pong",
            f"--root_dir={folder}/run",
        ]
        command += [f"--gin_bindings={binding}" for binding in bindings]
        try:
            said = subprocess.run(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=seconds
            ).stdout
        except subprocess.TimeoutExpired as ended:
            said = ended.stdout or b""
    return [("train.py --config=atari_small --env=pong, 16 environments", *rates(said.decode()))]


def rates(said: str) -> tuple[str, str]:
    """Figure and note from the last line of progress.

    Raises:
      ValueError: there is no line with both rates.
    """
    lines = [line for line in said.splitlines() if line.startswith("updates ") and " updates/s" in line]
    if not lines:
        raise ValueError(f"train.py showed no progress: {said[-500:]}")
    fields = lines[-1].split("  ")
    figure = ", ".join(field for field in fields if field.endswith("/s"))
    return figure, f"in the last minute; {fields[0]}, {fields[1]}, {fields[-2]}"


def paper(small: bool) -> Work:
    """The paper's update, or its network on few frames."""
    from agents.targets import SequenceShape
    from benchmarks.workloads import PAPER

    if small:
        return dataclasses.replace(PAPER, batch=1, shape=SequenceShape(1, 2, 1, 1))
    return dataclasses.replace(PAPER, batch=32, shape=SequenceShape(20, 80, 40, 5))


def shorter(small: bool) -> Work:
    """One that a CPU makes ten times in some seconds."""
    from benchmarks.workloads import PAPER

    return paper(small) if small else PAPER


def _update(dtype: str, compiled: bool) -> tuple[Callable[[bool], list[Row]], float]:
    return lambda small: update_rows(dtype, compiled, paper(small)), 60.0


# name -> function of whether to run small, and seconds that it may take. What is needed most comes first; the first
# update waits until the driver has translated TensorFlow's kernels for the card, and the next ones find them on disk.
PARTS: dict[str, tuple[Callable[[bool], list[Row]], float]] = {
    "devices": (device_rows, 40.0),
    "tf32": (_update("tf32", False)[0], 120.0),
    "losses": (lambda small: loss_rows(shorter(small)), 90.0),
    "learner": (learner_rows, 60.0),
    "pong": (pong_rows, 150.0),
    "tf32-xla": _update("tf32", True),
    "bfloat16": _update("bfloat16", False),
    "bfloat16-xla": _update("bfloat16", True),
    "float32": _update("float32", False),
    "float32-xla": _update("float32", True),
}


class Ended(NamedTuple):
    """How a process ended: its exit code, None where its time was over, and what it said."""

    code: int | None
    said: str


def run(command: Sequence[str], seconds: float, environment: Mapping[str, str]) -> Ended:
    """Runs a command from the clone; kills it, and what it has started, after so many seconds."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        return Ended(code, said.read())


def part(name: str, seconds: float, small: bool) -> tuple[list[Row], str]:
    """Rows of a part, those before it failed too; and the end of what it said if it did."""
    # The driver translates kernels at their first use, not all at once, and keeps them for the next process.
    settings = {"CUDA_MODULE_LOADING": "LAZY", "CUDA_CACHE_MAXSIZE": str(2**32 - 1)}
    settings |= {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    command = [sys.executable, "-m", "benchmarks.gpu", f"--part={name}", *(["--small"] if small else [])]
    start = time.monotonic()
    ended = run(command, seconds, settings | os.environ)
    took = time.monotonic() - start
    found = [json.loads(line[len(MARK) :]) for line in ended.said.splitlines() if line.startswith(MARK)]
    rows: list[Row] = [(what, figure, note) for what, figure, note in found]
    if ended.code == 0:
        return rows, ""
    how = (
        f"stopped after {took:.0f} s" if ended.code is None else f"ended with {ended.code} after {took:.0f} s"
    )
    return [*rows, (name, f"**{how}**", "see below")], "\n".join(ended.said.splitlines()[-LAST_LINES:])


def page(minutes: float, small: bool) -> Iterator[str]:
    """Runs all parts and yields the lines of the page as they are known."""
    end = time.monotonic() + 60 * minutes
    yield from ("# On a GPU", "", "| what | measured | note |", "|---|---|---|")
    failures = {}
    for name, (_, seconds) in PARTS.items():
        left = end - time.monotonic()
        if left < LEAST:
            yield f"| {name} | **not run** | {minutes:g} minutes were over |"
            continue
        rows, failures[name] = part(name, min(seconds, left), small)
        for row in rows:
            yield "| {} | {} | {} |".format(*row)
        if name == "devices" and not small and ("GPU", "none") in [row[:2] for row in rows]:
            small = True
    yield ""
    if small:
        yield "No GPU was found, or --small was given: these are few frames, whose speed means nothing."
    for name, said in failures.items():
        if said:
            yield from ("", f"## {name}: the end of what it said", "", "```", said, "```")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="the page; default: standard output alone")
    parser.add_argument("--minutes", type=float, default=8.0, help="for all parts, default %(default)s")
    parser.add_argument("--small", action="store_true", help="few small windows, as where there is no GPU")
    parser.add_argument("--part", choices=PARTS, help="this one alone, in this process")
    options = parser.parse_args()
    if options.part:
        from agents.running.startup import quiet

        quiet()
        for row in PARTS[options.part][0](options.small):
            print(MARK + json.dumps(row), flush=True)
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
