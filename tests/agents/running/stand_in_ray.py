"""A stand-in for Ray's module: the processes of a run as generators, which do one step whenever the driver waits.

A cast says what each role does. A step yields; what it raises ends the process's work as Ray would say it, `Died` the
process itself. The clock is the stand-in's own: minutes of supervision take milliseconds, whatever else computes.
"""

import itertools
import math
import pickle
from types import SimpleNamespace

TOO_LONG = 50_000.0  # seconds after which nobody waits on purpose


class RayError(Exception):
    """As Ray's."""


class Died(RayError):
    """As Ray's RayActorError."""


class Unavailable(Died):
    """As Ray's ActorUnavailableError."""


class Failed(RayError):
    """As Ray's RayTaskError: what was raised, as it was there."""

    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class Task:
    """As Ray's reference to what a call returns."""

    done, value, error = False, None, None

    def end(self, value=None, error=None):
        self.done, self.value, self.error = True, value, error
        return self


class Process:
    """One process of the run, through its restarts: Ray's handle of it, and what its role's steps are given.

    Attributes:
      role, args: what it was told to work as, last.
      status: what it answers when it is asked; a role's steps set it.
      told: the methods that it was told to call, with their arguments, since it began to work.
      silent: whether it answers no more.
      starts: how often it has begun to work.
      options: what Ray was asked for.
    """

    _numbers = itertools.count(1001)

    def __init__(self, ray, options):
        self.ray, self.options = ray, options
        self.role, self.args, self.starts, self.silent = "", (), 0, False
        self.pid, self.status, self.told, self.cpu_seconds = next(self._numbers), {}, [], 0.0
        self._task = self._steps = None
        self._away, self._asked = 0, []

    def work(self, role, *args):
        """What Ray's caller calls, like the two methods below."""
        self._task = Task()
        if self._away:
            return self._task.end(error=Unavailable())
        self.role, self.args, self.told = role, args, []
        self._steps = self.ray.cast[role](self)
        self.starts += 1
        return self._task

    def answer(self):
        self._asked.append(Task())
        asked = self._asked[-1]
        self._answer_all()
        return asked

    def _answer_all(self):
        if not self.silent:
            for task in self._asked:
                if self._away:
                    task.end(error=Unavailable())
                else:
                    task.end({"pid": self.pid, "cpu_seconds": self.cpu_seconds} | self.status)
            self._asked.clear()

    def tell(self, method, *args):
        if not self._away:
            self.told.append((method, *args))

    def was_told(self, method):
        return any(told == method for told, *_ in self.told)

    def step(self):
        if self._away:
            self._away -= 1
        elif self._steps is not None:
            try:
                next(self._steps)
            except StopIteration as end:
                self._steps = None
                self._task.end(end.value)
            except Died as death:
                self.die(death)
            except Exception as error:
                self._steps = None
                self._task.end(error=Failed(error))
        self._answer_all()

    def die(self, death=None, no_restart=False):
        if self._steps is not None:
            self._task.end(error=death or Unavailable())
        self._steps, self.silent, self.status = None, False, {}
        self.pid, self._away = next(self._numbers), math.inf if no_restart else self.ray.restart

    @property
    def is_gone(self):
        return self._away == math.inf


class _Handle:
    """What Ray hands out for an actor."""

    def __init__(self, process):
        self.process = process
        self.work = SimpleNamespace(remote=process.work)
        self.status = SimpleNamespace(remote=process.answer)
        self.tell = SimpleNamespace(remote=process.tell)


class Ray:
    """The module.

    Args:
      gpus: of each machine.
      **cast: what roles do, instead of what `CAST` says.
    """

    exceptions = SimpleNamespace(
        RayError=RayError, RayActorError=Died, ActorUnavailableError=Unavailable, RayTaskError=Failed
    )

    def __init__(self, gpus=(0,), **cast):
        self.cast, self.processes, self.now = CAST | cast, [], 0.0
        self.saved = 0  # the update of the checkpoint
        self.restart = 30  # steps in which a process that has died is not there; calls fail meanwhile
        self._gpus = gpus
        affinity = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft))
        self.util = SimpleNamespace(scheduling_strategies=affinity, get_node_ip_address=lambda: "10.0.0.1")

    def of(self, role):
        """The processes that play a role."""
        return [process for process in self.processes if process.role == role]

    def nodes(self):
        gone = {"Alive": False, "Resources": {"GPU": 8.0}}
        return [gone, *({"Alive": True, "Resources": {"GPU": float(n)} if n else {}} for n in self._gpus)]

    def get_runtime_context(self):
        return SimpleNamespace(get_node_id=lambda: "here")

    def remote(self, **_):
        return self._actors

    def _actors(self, _):
        def options(**options):
            def start(*args):
                self.processes.append(Process(self, options | {"args": args}))
                return _Handle(self.processes[-1])

            return SimpleNamespace(remote=start)

        return SimpleNamespace(options=options)

    def wait(self, tasks, timeout):
        if timeout:
            self.sleep(timeout)
        ready = [task for task in tasks if task.done]
        return ready, [task for task in tasks if not task.done]

    def get(self, task, *, timeout):
        assert 0 < timeout <= 300 and task.done, "the driver waits for what may never come"
        if task.error is not None:
            raise task.error
        return task.value

    def kill(self, handle, no_restart):
        handle.process.die(no_restart=no_restart)

    def sleep(self, seconds):
        self.now += seconds
        assert self.now < TOO_LONG, "the driver waits for ever"
        for process in self.processes:
            process.step()

    def clock(self):
        """In place of the module `time`."""
        return SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)


def replay(process):
    address = f"{process.args[1]}:{8000 + process.starts}"
    while True:
        process.status = {"address": address, "memory": "Room for all."}
        yield


def learner(process, updates=60):
    """One update a step, from the checkpoint on; a checkpoint at the end."""
    done = process.ray.saved
    while done < updates and not process.was_told("stop"):
        process.status = learner_status(done)
        yield
        done += 1
    process.ray.saved = done
    return learner_status(done)


def learner_status(updates, **others):
    counts = {
        "updates": updates,
        "steps": 10 * updates,
        "returns": [],
        "waited": 0.0,
        "frames_per_step": None,
    }
    words = {"loss_scales": f"scales {updates}", "note": "", "doing": "", "memory": "Room here."}
    return counts | words | others


def evaluator(process):
    process.status = {
        "eval_return": None,
        "evaluated": "4 episodes, greedy",
        "best": "",
        "head": "clipped_0.9",
        "game": None,
    }
    while not (process.was_told("stop") or process.was_told("finish")):
        yield
    return process.status | {"eval_return": 7.0 if process.was_told("finish") else None}


def collector(process):
    for steps in itertools.count(10, 10):
        process.status = {"activity": "acting", "seconds": 0.0, "steps": steps, "waited": 0.0}
        yield
        if process.was_told("stop"):
            return


CAST = {
    "ReplayServer": replay,
    "LearnerRole": learner,
    "EvaluatorRole": evaluator,
    "CollectorRole": collector,
}


class Calls:
    """Ray's module and its handle of an actor in one: calls of an object's methods, made at once.

    Args:
      called: the object; what it gets and answers is pickled, as Ray does.
      losses: for each call to come "call" or "answer" if the network loses that, or None.
    """

    exceptions = Ray.exceptions

    def __init__(self, called, losses=()):
        self.called, self.losses = called, iter(losses)
        self.ask = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=self._call))

    def _call(self, method, *args):
        loss = next(self.losses, None)
        if loss == "call":
            return Unavailable()
        answer = getattr(self.called, method)(*pickle.loads(pickle.dumps(args)))
        return Unavailable() if loss == "answer" else answer

    def put(self, value):
        return value

    def wait(self, answers, timeout):
        return answers, []

    def get(self, answer):
        if isinstance(answer, Exception):
            raise answer
        return pickle.loads(pickle.dumps(answer))
