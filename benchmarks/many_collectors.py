"""How many collectors Ray's replay and the driver can serve, by collectors that cost next to nothing.

    .venv/bin/python -m benchmarks.many_collectors     # some five minutes on two idle cores

Each collector hands over the same round of Pong, which a real one has collected, again and again. The learner's process
takes them in, and draws the paper's batch of 32 windows 4.6 times a second. The rows say what a second took of it: on
two cores all of them share, CPU seconds tell more than rates.
"""

from __future__ import annotations

from agents.running.startup import quiet

quiet()

import dataclasses  # noqa: E402
import math  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
import types  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402

from agents.replay.backends import CALLS  # noqa: E402
from agents.replay.ray_replay import RayClient, RayTable  # noqa: E402
from agents.running import ray_connection  # noqa: E402
from agents.running.cluster import Member  # noqa: E402
from agents.sequences import SequenceShape  # noqa: E402
from benchmarks import workloads  # noqa: E402
from benchmarks.replay import collector  # noqa: E402

SHAPE, STEPS = SequenceShape(20, 80, 40, 5), 40
PAPERS_RATE, BATCH = 4.6, 32
SECONDS = 20.0
FREE = {"capacity": 40_000, "error_buffer": math.inf}


class Learner:
    """The process that has the table; draws are all that it does beside."""

    def __init__(self, parts: tuple):
        self._table = RayTable(*parts, min_sequences=BATCH, **FREE)
        threading.Thread(target=self._draw, daemon=True).start()

    def write(self, *args: Any) -> tuple[int, int, int]:
        return self._table.write(*args)

    def used(self) -> tuple[float, int]:
        """CPU seconds, and batches drawn."""
        return time.process_time(), self._table.sampled // BATCH

    def _draw(self) -> None:
        batches = iter(self._table.dataset(BATCH, packed=True))
        while True:
            begin = time.monotonic()
            next(batches)
            time.sleep(max(begin + 1 / PAPERS_RATE - time.monotonic(), 0.0))


class Collecting:
    """A process that hands over a round until it is told to end."""

    def __init__(self, index: int, round_: dict[str, np.ndarray], report: dict[str, np.ndarray]):
        self._index, self._round, self._report = index, round_, report
        self.rounds = 0

    def work(self, seconds: float, pause: float, learner: Any) -> int:
        """Returns how many rounds went over."""
        import ray

        writer, end = 2**40 + self._index, time.monotonic() + seconds
        begin = self._round | {"priority": np.full_like(self._round["priority"], np.nan)}
        while time.monotonic() < end:
            call = self._index, writer, self.rounds
            whole = self._round if self.rounds >= 3 else begin  # windows need three rounds' blocks
            ray.get(learner.write.remote(*call, self._report, whole))
            self.rounds += 1
            time.sleep(pause)
        return self.rounds

    def status(self) -> dict[str, Any]:
        return {"steps": self.rounds, "activity": "acting", "seconds": 0.0}


class Recorder(RayClient):
    """Keeps the last round in place of handing it over."""

    def _ask(self, method: Any, *args: Any) -> Any:
        *_, self.report, self.columns = args
        return 0, 0, 0


def measure(ray: Any, collectors: int, rate: float = math.inf) -> None:
    """Prints what some seconds of so many collectors took, which offer `rate` observations a second together."""
    work = dataclasses.replace(workloads.PAPER, shape=SHAPE)
    parts = SHAPE, work.observation_spec, workloads.network(work).state_spec, 10
    groups: dict[str, Any] = {"concurrency_groups": {CALLS: 16}, "num_cpus": 0}
    layout = RayTable(*parts, min_sequences=BATCH, **FREE)._layout

    recorder = Recorder(layout, types.SimpleNamespace(write=None), 0, 60.0)
    real = collector("pong", work, SHAPE, recorder)
    for _ in range(4):
        real.run(STEPS)
    round_ = recorder.columns, recorder.report
    observations = len(round_[0]["stream"]) * SHAPE.block
    pause = collectors * observations / rate
    learner = ray.remote(**groups)(Learner).remote(parts)
    actors = [
        ray.remote(num_cpus=0, max_concurrency=2)(Collecting).remote(i, *round_) for i in range(collectors)
    ]
    members = [Member(ray, f"collector {i}", lambda actor=actor: actor) for i, actor in enumerate(actors)]

    def work(seconds: float) -> list[Any]:
        return [actor.work.remote(seconds, pause, learner) for actor in actors]

    ray.get([*work(0.0), learner.used.remote()])  # all of them are there
    before = ray.get(learner.used.remote())
    began, spent = time.monotonic(), time.process_time()
    tasks = work(SECONDS)
    looks = 0
    while time.monotonic() < began + SECONDS:  # as the driver does, twice a second
        for member in members:
            member.look()
        looks += 1
        ray.wait(tasks, timeout=0.5)
    driver = time.process_time() - spent
    rounds, seconds = sum(ray.get(tasks)), max(SECONDS, time.monotonic() - began - pause)
    used, batches = np.subtract(ray.get(learner.used.remote()), before)
    taken = rounds * observations
    print(
        f"{collectors} collectors: {taken / seconds:,.0f} observations a second, "
        f"{batches / seconds:.2f} batches a second; cores: learner {used / seconds:.2f}, "
        f"driver {driver / seconds:.3f}, {1e3 * driver / looks / collectors:.2f} ms a look; "
        f"{1e6 * used / taken:.0f} us of the learner's per observation, draws included",
        flush=True,
    )
    for actor in (*actors, learner):
        ray.kill(actor)


def main() -> None:
    with ray_connection.opened(None, slots=4) as ray:
        measure(ray, 2)
        measure(ray, 2, rate=12_000)
        for collectors in (4, 16):  # with the steps of the paper's 4.6 updates
            measure(ray, collectors, rate=5_900)


if __name__ == "__main__":
    main()
