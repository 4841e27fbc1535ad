"""The capacity of one replay server: recorded frames written by many clients at once, with and without a reader.

    .venv/bin/python -m benchmarks.synthetic_collectors --collectors=1,2,4 --seconds=20

Every client writes windows of the paper's shape, real Pong frames of a random policy, into a real Reverb server in a
process of its own, as fast as it can; there is no emulator and no network to wait for. A reader draws batches of 32 as
fast as sequences arrive (replay ratio 1). Prints, for each number of clients, observations and sequences per second,
batches per second, and CPU seconds per second of server, clients and reader.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time

from agents.running.startup import quiet

quiet()  # before TensorFlow is imported

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tf_agents.trajectories.time_step import StepType  # noqa: E402

from agents.replay.reverb_replay import ReplayStopped, ReverbReplay  # noqa: E402
from agents.replay.windows import Rows, SequenceCutter, Window  # noqa: E402
from agents.targets import SequenceShape, Steps  # noqa: E402
from rbs_tf import environments  # noqa: E402

SHAPE, HEADS, UNITS, BATCH = SequenceShape(), 10, 512, 32
FRAMES = 600


def replay(**settings) -> ReverbReplay:
    """A replay of the paper's shape for 100,000 observations, at ratio 1."""
    state = (tf.TensorSpec((UNITS,), tf.float32),) * 2
    observation = tf.TensorSpec((210, 160, 3), tf.uint8)
    return ReverbReplay(SHAPE, observation, state, HEADS, capacity=100_000, min_sequences=BATCH, **settings)


def recorded() -> Rows:
    """A stream of real rows: Pong, random actions."""
    environment = environments.make("pong", num_envs=1, seed=0)
    random, time_step, steps = np.random.default_rng(0), environment.reset(), []
    for _ in range(FRAMES):
        action = random.integers(environment.num_actions, size=1, dtype=np.int32)
        row = (time_step.step_type, time_step.observation, action, time_step.reward, time_step.discount)
        steps.append([np.array(column[0]) for column in row])
        time_step = environment.step(action)
    environment.close()
    columns = [np.stack(column) for column in zip(*steps, strict=True)]
    columns[0][-1] = StepType.LAST
    states = tuple(np.zeros((FRAMES, UNITS), np.float32) for _ in range(2))
    return Rows(Steps(*columns), states, *(np.zeros((FRAMES, HEADS), np.float32) for _ in range(2)))


def serve(ready, stop, used) -> None:
    server = replay()
    ready.put(server.address)
    stop.wait()
    server.stop()
    used.put(("server", cpu_seconds(), {}))


def collect(address: str, rows: Rows, start, stop, used) -> None:
    client = replay(address=address)
    writer, cutter, written = client.writer(), SequenceCutter(SHAPE), 0
    start.wait()
    before = cpu_seconds()
    try:
        while not stop.is_set():
            for piece in cutter.cut(rows):
                if isinstance(piece, Window):
                    writer.insert(1.0)
                    writer.flush()
                else:
                    writer.append(piece)
            written += FRAMES
    except (ReplayStopped, TimeoutError):
        pass
    used.put(("clients", cpu_seconds() - before, {"observations": written}))


def read(address: str, start, stop, used) -> None:
    client, drawn = replay(address=address), 0
    batches = iter(client.dataset(BATCH))
    start.wait()
    before = cpu_seconds()
    while not stop.is_set():
        if client.updates_due(drawn, BATCH):
            next(batches)
            drawn += 1
        else:
            time.sleep(0.01)
    used.put(("reader", cpu_seconds() - before, {"batches": drawn, "sequences": client.inserted}))
    client.end_waits()


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(collectors: int, seconds: float) -> str:
    """One line of the table."""
    context = multiprocessing.get_context("spawn")
    ready, used = context.Queue(), context.Queue()
    start, stop, stop_server = context.Event(), context.Event(), context.Event()
    server = context.Process(target=serve, args=(ready, stop_server, used))
    server.start()
    address, rows = ready.get(), recorded()
    others = [context.Process(target=read, args=(address, start, stop, used))]
    others += [
        context.Process(target=collect, args=(address, rows, start, stop, used)) for _ in range(collectors)
    ]
    for process in others:
        process.start()
    time.sleep(20 + 5 * collectors)  # they import TensorFlow
    start.set()
    time.sleep(seconds)
    stop.set()
    reports = [used.get(timeout=600) for _ in others]
    stop_server.set()
    reports.append(used.get(timeout=60))
    for process in (*others, server):
        process.join()
    cpu, counts = dict.fromkeys(("server", "clients", "reader"), 0.0), {"observations": 0}
    for role, used_seconds, more in reports:
        cpu[role] += used_seconds / seconds
        counts |= {name: counts.get(name, 0) + number for name, number in more.items()}
    rates = "  ".join(f"{name}/s {number / seconds:8.1f}" for name, number in counts.items())
    return f"{collectors:2} clients  {rates}  CPU: " + "  ".join(f"{k} {v:.2f}" for k, v in cpu.items())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--collectors", default="1,2,4", help="numbers of clients, one line each (%(default)s)"
    )
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    for number in map(int, options.collectors.split(",")):
        print(measure(number, options.seconds), flush=True)


if __name__ == "__main__":
    main()
