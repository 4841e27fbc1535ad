"""What an observation of Atari in colour costs in the replay: its memory, writing it, drawing it, sending it to a GPU.

    .venv/bin/python -m benchmarks.replay_bytes

The same windows of the paper's shape, cut and written as collectors do it, go to three `Replay`s in processes of their
own: one as it comes, one whose blocks of rows are zlib streams and no more (the codec before there were pieces, kept
here), and one with `compression=0`. Their resident memory is read before and after each round; Reverb's tables report
no bytes. A script that follows the ball, with one action in ten at random, plays Pong: ball and paddle move and both
sides make points, as when an agent has learned something; one that has not loses points at once. Scalars, core states
and bookkeeping count as memory; padding, and rows that no window in the table holds yet, do not count as observations.
Drawing is the learner's process alone, which unpacks; the servers' share is alike and small. Steps are those of the
same environments, without whoever acts.
"""

from __future__ import annotations

from benchmarks.side_by_side import Row, one_core, publish, row, times

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import collections  # noqa: E402
import contextlib  # noqa: E402
import multiprocessing  # noqa: E402
import statistics  # noqa: E402
import zlib  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from multiprocessing.synchronize import Event  # noqa: E402
from unittest import mock  # noqa: E402

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tf_agents.environments.py_environment import PyEnvironment  # noqa: E402
from tf_agents.trajectories.time_step import StepType  # noqa: E402

from agents.replay import reverb_replay, writer  # noqa: E402
from agents.replay.compression import compress  # noqa: E402
from agents.replay.reverb_replay import ReverbReplay  # noqa: E402
from agents.replay.windows import Rows, SequenceCutter, Window  # noqa: E402
from agents.targets import SequenceShape, Steps  # noqa: E402
from benchmarks import workloads  # noqa: E402
from benchmarks.memory import resident  # noqa: E402
from rbs_tf import environments  # noqa: E402

SHAPE, BATCH, HEADS = SequenceShape(20, 80, 40, 5), 32, 10  # the paper's
NUM_ENVS, STEPS, ROUNDS = 16, 400, 5
COMPRESSIONS = (None, None, 0)  # as it comes, zlib alone, and Reverb's own alone
LEVEL, PACKED = 3, 500  # zlib's level as it comes; observations that are packed in one measurement
REVERB, BOUND_KB = "Reverb's own compression", 5.2
FRAME_KB = np.prod(workloads.PAPER.observation) / 1e3
NOTHING, UP, DOWN = 0, 3, 4  # of all 18 actions; the console calls the last two right and left
# Where Pong's screen has the field between the walls, our paddle, and the ball without a paddle; and their reds.
FIELD, PADDLE, BALL, PADDLE_RED, BALL_RED = slice(34, 194), slice(140, 144), slice(20, 140), 92, 236
SLACK, RANDOM = 3, 0.1  # pixels that the paddle may be off; the share of random actions


def replay(**settings) -> ReverbReplay:
    """A replay of the paper's shape and core state, with room for all rounds and nobody to wait for."""
    work = workloads.PAPER
    state = workloads.network(work).state_spec
    settings |= {"capacity": 200_000, "min_sequences": BATCH, "error_buffer": 1e9, "read_ahead": 0}
    return ReverbReplay(SHAPE, work.observation_spec, state, HEADS, **settings)


def zipped(rows: np.ndarray, level: int) -> np.ndarray:
    """Rows as one zlib stream."""
    return np.array(zlib.compress(np.ascontiguousarray(rows).data, level), dtype=object)


def unzipped(strings: tf.Tensor, rows: int, spec: tf.TensorSpec) -> tf.Tensor:
    """The inverse for a batch of windows: strings [B, N] -> [B, N rows, ...]."""
    size = rows * spec.shape.num_elements()
    windows = tf.map_fn(
        lambda window: tf.io.decode_raw(tf.io.decode_compressed(window, "ZLIB"), spec.dtype),
        strings,
        fn_output_signature=tf.TensorSpec((strings.shape[1], size), spec.dtype),
        parallel_iterations=32,
    )
    return tf.reshape(windows, (-1, strings.shape[1] * rows, *spec.shape))


@contextlib.contextmanager
def zlib_alone() -> Iterator[None]:
    """Writers that write, and datasets that are made, know no pieces meanwhile."""
    with (
        mock.patch.object(writer, "compress", zipped),
        mock.patch.object(reverb_replay, "decompress_batch", unzipped),
    ):
        yield


CODECS = (contextlib.nullcontext, zlib_alone, contextlib.nullcontext)


def serve(addresses: multiprocessing.Queue, stop: Event, compression: int | None) -> None:
    server = replay(compression=compression)
    addresses.put(server.address)
    stop.wait()
    server.stop()


def follow_ball(screens: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Actions [N] for screens [N, 210, 160, 3]: towards the ball where it is seen, one in ten at random."""

    def middle(columns: slice, red: int) -> np.ndarray:
        rows = (screens[:, FIELD, columns, 0] == red).any(axis=2)
        return (rows @ np.arange(rows.shape[1])) / np.where(rows.any(axis=1), rows.sum(axis=1), np.nan)

    lower = middle(BALL, BALL_RED) - middle(PADDLE, PADDLE_RED)  # NaN without a ball
    actions = np.where(lower < -SLACK, UP, np.where(lower > SLACK, DOWN, NOTHING))
    wild = random.random(len(actions)) < RANDOM
    return np.where(wild, random.integers(18, size=len(actions)), actions).astype(np.int32)


def player(
    clients: list[ReverbReplay], environment: PyEnvironment, blocks: collections.deque[np.ndarray]
) -> Callable[[], tuple[int, int, int]]:
    """Plays on for a round and stores it everywhere, blocks of observations in `blocks`, too; gives the observations
    that are in the table now and were not before, and the points won and lost meanwhile."""
    random, cutters = np.random.default_rng(0), [SequenceCutter(SHAPE) for _ in range(NUM_ENVS)]
    writers, waiting = [[client.writer() for client in clients] for _ in range(NUM_ENVS)], [0] * NUM_ENVS
    units, values = workloads.PAPER.lstm_units, np.zeros((SHAPE.period, HEADS), np.float32)
    time_step, previous = environment.reset(), np.full(NUM_ENVS, -1, np.int32)

    def rows() -> list[np.ndarray]:
        nonlocal time_step, previous
        found = []
        for _ in range(SHAPE.period):
            step_type, reward, discount, screens = time_step
            found.append((step_type, screens.copy(), previous, reward, discount))
            actions = follow_ball(screens, random)
            time_step = environment.step(actions)
            previous = np.where(time_step.step_type == StepType.FIRST, -1, actions).astype(np.int32)
        return [np.stack(column) for column in zip(*found, strict=True)]

    def play() -> tuple[int, int, int]:
        stored, won, lost = 0, 0, 0
        for _ in range(STEPS // SHAPE.period):
            columns = rows()
            won, lost = won + np.sum(columns[3] > 0), lost + np.sum(columns[3] < 0)
            for index, (cutter, everywhere) in enumerate(zip(cutters, writers, strict=True)):
                # Core states compress as little as those of a trained network.
                states = tuple(np.tanh(random.normal(size=(2, SHAPE.period, units))).astype(np.float32))
                steps = Steps(*(column[:, index] for column in columns))
                for piece in cutter.cut(Rows(steps, states, values, values)):
                    if isinstance(piece, Window):
                        for writer in everywhere:
                            writer.insert(1.0)
                        stored, waiting[index] = stored + waiting[index], 0
                    else:
                        for codec, writer in zip(CODECS, everywhere, strict=True):
                            with codec():
                                writer.append(piece)
                        blocks.append(piece.steps.observation)
                        padding = (piece.steps.step_type == StepType.LAST) & (
                            piece.steps.previous_action == -1
                        )
                        waiting[index] += np.count_nonzero(~padding)
                for writer in everywhere:
                    writer.flush()
        return stored, won, lost

    return play


def main() -> None:
    context = multiprocessing.get_context("spawn")
    stop, clients, servers = context.Event(), [], []
    for compression in COMPRESSIONS:
        addresses = context.Queue()
        servers.append(context.Process(target=serve, args=(addresses, stop, compression)))
        servers[-1].start()
        clients.append(replay(address=addresses.get(), compression=compression))
    environment = environments.make("pong", num_envs=NUM_ENVS, seed=0)
    blocks: collections.deque[np.ndarray] = collections.deque(maxlen=PACKED // SHAPE.block)
    play, growth, observations, points = player(clients, environment, blocks), [], [], np.zeros(2, int)
    play()  # grows what a server has but once
    for _ in range(ROUNDS):
        before = [resident(server.pid) for server in servers]
        stored, *more = play()
        # MB to kB per observation
        growth.append([1e3 * (resident(s.pid) - b) / stored for s, b in zip(servers, before, strict=True)])
        observations.append(stored)
        points += more
    draws = []
    for codec, client in zip(CODECS, clients, strict=True):
        with codec():
            draws.append(iter(client.dataset(BATCH)))
    drawing, rivals = f"drawing {BATCH} windows of {SHAPE.rows} such observations", ("zlib alone", REVERB)
    ours, *others = times(*(lambda draw=draw: next(draw) for draw in draws))
    for rival, theirs, reach in zip(rivals, others, ("at most 0.45", ""), strict=True):
        publish(row(drawing, rival, ours, theirs, unit="cpu-ms per batch", reach=reach))
    packing = f"packing {PACKED} such observations"
    actions = np.zeros(NUM_ENVS, np.int32)
    pack, zip_, steps = times(
        lambda: [compress(block, LEVEL) for block in blocks],
        lambda: [zipped(block, LEVEL) for block in blocks],
        lambda: [environment.step(actions) for _ in range(PACKED // NUM_ENVS)],
    )
    for rival, theirs, reach in (("zlib alone", zip_, "at most 1"), ("their steps", steps, "at most 0.15")):
        publish(row(packing, rival, pack, theirs, reach=reach))
    packed = iter(clients[0].dataset(BATCH, packed=True))
    pixels = BATCH * SHAPE.rows * FRAME_KB / 1e3
    sent = [
        sum(part.numpy().nbytes for part in next(packed)[0].steps.observation) / 1e6 for _ in range(ROUNDS)
    ]
    share = [each / pixels for each in sent]
    to_device = "bytes of such a batch to a GPU", "pixels", "MB", statistics.median(sent), pixels
    publish(Row(*to_device, statistics.median(share), min(share), max(share), reach="at most 0.333"))
    stop.set()
    for server in servers:
        server.join()
    ours, zlibs, alone = zip(*growth, strict=True)
    raw = f"{FRAME_KB:.1f} kB of raw pixels; {ROUNDS} rounds of {min(observations)} observations and more, "
    score = f"{points[0]} points won and {points[1]} lost"
    for against, theirs, reach, note in (
        (REVERB, alone, "", raw + score),
        ("zlib alone", zlibs, "at most 1", ""),
        ("a bound of 5.2 kB", [BOUND_KB] * ROUNDS, "at most 1", ""),
    ):
        ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
        kilobytes = statistics.median(ours), statistics.median(theirs)
        spread = statistics.median(ratios), min(ratios), max(ratios)
        memory = "replay memory per observation of Pong in colour", against, "kB"
        publish(Row(*memory, *kilobytes, *spread, reach=reach, note=note))


if __name__ == "__main__":
    main()
