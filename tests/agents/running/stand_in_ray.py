"""A stand-in for Ray's module: the processes of a run as generators, which do one step whenever the driver waits.

A cast says what each role does. A step yields; what it raises ends the process's work as Ray would say it, `Died` the
process itself. The clock is the stand-in's own: minutes of supervision take milliseconds, whatever else computes.
"""

import functools
import itertools
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


class Process:
    """One process.

    Attributes:
      handle: Ray's.
      role, options, args: its class's name, what Ray was asked for, what it was constructed with.
      address, start: what `run` was called with; None before.
      status: what it answers when it is asked; a role's steps set it.
      told: the methods that were called otherwise, with their arguments.
      silent: whether it answers no more.
    """

    _numbers = itertools.count(1001)
    address = start = _task = _steps = None
    silent = is_gone = False

    def __init__(self, ray, role, options, args):
        self.ray, self.role, self.options, self.args = ray, role, options, args
        self.pid, self.status, self.told, self._asked = next(self._numbers), {}, [], []
        self.handle = Handle(self)

    def call(self, method, *args):
        task = Task()
        if self.is_gone:
            task.end(error=Died())
        elif method == "run":
            (self.address, self.start), self._task = args, task
            self._steps = self.ray.cast[self.role](self)
        elif method == "status":
            self._asked.append(task)
            self._answer_all()
        else:
            self.told.append((method, *args))
        return task

    def _answer_all(self):
        while self._asked and not self.silent:
            self._asked.pop().end(self._whole(self.status))

    def _whole(self, status):
        return {"pid": self.pid} | (status or {})

    def was_told(self, method):
        return any(told == method for told, *_ in self.told)

    @property
    def is_finishing(self):
        """Whether it is to play the last evaluation."""
        return any(what[0] == "note" and what[-1] is True for what in self.told)

    def step(self):
        if self._steps is not None:
            try:
                next(self._steps)
            except StopIteration as end:
                self._end(value=self._whole(end.value))
            except Died as death:
                self.die(death)
            except Exception as error:
                self._end(error=Failed(error))
        self._answer_all()

    def _end(self, **outcome):
        self._steps = None
        self._task.end(**outcome)

    def die(self, death=None):
        self.is_gone = True
        for task in filter(None, [self._task, *self._asked]):
            if not task.done:
                task.end(error=death or Died())
        self._steps, self._asked = None, []


class Handle:
    """Ray's of a process."""

    def __init__(self, process):
        self.process = process

    def __getattr__(self, method):
        return SimpleNamespace(remote=functools.partial(self.process.call, method))


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
        self._gpus = gpus
        affinity = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft))
        self.util = SimpleNamespace(scheduling_strategies=affinity, get_node_ip_address=lambda: "10.0.0.1")

    def of(self, role):
        """The processes that have had a role, the first one first."""
        return [process for process in self.processes if process.role == role]

    def nodes(self):
        gone = {"Alive": False, "Resources": {"GPU": 8.0}}
        return [gone, *({"Alive": True, "Resources": {"GPU": float(n)} if n else {}} for n in self._gpus)]

    def get_runtime_context(self):
        return SimpleNamespace(get_node_id=lambda: "here")

    def remote(self, **_):
        def start(role, options, *args):
            self.processes.append(Process(self, role.__name__, options, args))
            return self.processes[-1].handle

        return lambda role: SimpleNamespace(
            options=lambda **options: SimpleNamespace(remote=functools.partial(start, role, options))
        )

    def wait(self, tasks, timeout):
        if timeout:
            self.sleep(timeout)
        return [task for task in tasks if task.done], [task for task in tasks if not task.done]

    def get(self, task, *, timeout):
        assert 0 < timeout <= 300 and task.done, "the driver waits for what may never come"
        if task.error is not None:
            raise task.error
        return task.value

    def kill(self, handle, no_restart):
        assert no_restart
        handle.process.die()

    def sleep(self, seconds):
        self.now += seconds
        assert self.now < TOO_LONG, "the driver waits for ever"
        for process in self.processes:
            process.step()

    def clock(self):
        """In place of the module `time`."""
        return SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)


def replay(process):
    process.status = {"address": f"{process.address}:{8001 + process.start}", "memory": "Room for all."}
    yield from itertools.repeat(None)


def learner(process, updates=60):
    """One update a step, from the checkpoint on; a checkpoint at the end."""
    for done in range(process.ray.saved, updates + 1):
        process.status = learner_status(done)
        if done == updates or process.was_told("stop"):
            process.ray.saved = done
            return process.status
        yield


def learner_status(updates, **others):
    counts = {"updates": updates, "steps": 10 * updates, "returns": [], "waited": 0.0}
    words = {"frames_per_step": None, "note": "", "doing": "", "memory": "Room here."}
    return counts | words | {"loss_scales": f"scales {updates}"} | others


def evaluator(process):
    process.status = {"eval_return": None, "evaluated": "4 episodes, greedy", "head": "clipped_0.9"}
    while not (process.was_told("stop") or process.is_finishing):
        yield
    return process.status | {"eval_return": 7.0 if process.is_finishing else None}


def collector_status(steps=1234, activity="acting", seconds=0.0):
    return {"activity": activity, "seconds": seconds, "steps": steps, "waited": 0.0}


def collector(process):
    for steps in itertools.count(10, 10):
        process.status = collector_status(steps)
        yield
        if process.was_told("stop"):
            return


CAST = {
    "ReplayRole": replay,
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

    def __getattr__(self, method):
        return SimpleNamespace(
            options=lambda **_: SimpleNamespace(remote=functools.partial(self._call, method))
        )

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
