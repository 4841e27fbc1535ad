"""A stand-in for Ray's module: the processes of a run as generators, which do one step whenever the driver waits.

A cast says what each role does. A step yields; what it raises ends the process's work as Ray would say it, `Died` the
process itself. The clock is the stand-in's own: minutes of supervision take milliseconds, whatever else computes.
"""

import functools
import itertools
import pickle
from concurrent.futures import Future
from types import SimpleNamespace

TOO_LONG = 50_000.0  # seconds after which nobody waits on purpose
RayError = type("RayError", (Exception,), {})
Died = type("RayActorError", (RayError,), {})
Unavailable = type("ActorUnavailableError", (Died,), {})


class Failed(RayError):
    """As Ray's RayTaskError: what was raised, as it was there."""

    def __init__(self, cause):
        super().__init__(str(cause))
        self.cause = cause


class Process:
    """One process, and Ray's handle of it.

    Attributes:
      role, options, args: its class's name, what Ray was asked for, what it was constructed with.
      address, start: what `run` was called with; None before.
      figures: what it answers when it is asked for its status; a role's steps set them.
      told: the other methods that were called, with their arguments.
      silent: whether it answers no more.
    """

    _numbers = itertools.count(1001)
    address = start = _task = _steps = None
    silent = is_gone = False

    def __init__(self, ray, role, options, *args):
        self.ray, self.role, self.options, self.args = ray, role.__name__, options, args
        self.pid, self.figures, self.told, self._asked = next(self._numbers), {}, [], []
        ray.processes.append(self)

    def __getattr__(self, method):
        return SimpleNamespace(remote=functools.partial(self._call, method))

    def _call(self, method, *args):
        task = Future()
        if self.is_gone:
            task.set_exception(Died())
        elif method == "run":
            (self.address, self.start), self._task = args, task
            self._steps = self.ray.cast[self.role](self)
        elif method == "status":
            self._asked.append(task)
            self._answer()
        else:
            self.told.append((method, *args))
        return task

    def _answer(self):
        while self._asked and not self.silent:
            self._asked.pop().set_result({"pid": self.pid, "began": "7"} | self.figures)

    def was_told(self, *what):
        return what in self.told

    @property
    def is_finishing(self):
        """Whether it is to play the last evaluation."""
        return any(what[0] == "note" and what[-1] is True for what in self.told)

    def step(self):
        try:
            if self._steps is not None:
                next(self._steps)
        except StopIteration:
            self._steps = None
            self._task.set_result({"pid": self.pid, "began": "7"} | self.figures)
        except Died as death:
            self.die(death)
        except Exception as error:
            self._steps = None
            self._task.set_exception(Failed(error))
        self._answer()

    def die(self, death=None):
        self.is_gone = True
        for task in filter(None, [self._task, *self._asked]):
            if not task.done():
                task.set_exception(death or Died())
        self._steps, self._asked = None, []


class Ray:
    """The module.

    Args:
      gpus: of each machine.
      **cast: what roles do, instead of what `CAST` says.
    """

    exceptions = SimpleNamespace(RayError=RayError, RayActorError=Died, ActorUnavailableError=Unavailable)

    def __init__(self, gpus=(0,), **cast):
        self.cast, self.processes, self.now = CAST | cast, [], 0.0
        self.saved = 0  # the update of the checkpoint
        affinity = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: (node, soft))
        self.util = SimpleNamespace(scheduling_strategies=affinity, get_node_ip_address=lambda: "10.0.0.1")
        gone = {"Alive": False, "Resources": {"GPU": 8.0}}
        alive = ({"Alive": True, "Resources": {"GPU": float(n)} if n else {}} for n in gpus)
        self.nodes = lambda nodes=(gone, *alive): nodes
        self.get_runtime_context = lambda: SimpleNamespace(get_node_id=lambda: "here")

    def of(self, role):
        """The processes that have had a role, the first one first."""
        return [process for process in self.processes if process.role == role]

    def remote(self, **_):
        def options(role, **options):
            return SimpleNamespace(remote=functools.partial(Process, self, role, options))

        return lambda role: SimpleNamespace(options=functools.partial(options, role))

    def wait(self, tasks, timeout):
        if timeout:
            self.sleep(timeout)
        return [task for task in tasks if task.done()], [task for task in tasks if not task.done()]

    def get(self, task, *, timeout):
        assert 0 < timeout <= 300 and task.done(), "the driver waits for what may never come"
        return task.result()

    def kill(self, process, no_restart):
        assert no_restart
        process.die()

    def sleep(self, seconds):
        self.now += seconds
        assert self.now < TOO_LONG, "the driver waits for ever"
        for process in self.processes:
            process.step()

    def clock(self):
        """In place of the module `time`."""
        return SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)


def replay(process):
    process.figures = {"address": f"{process.address}:{8001 + process.start}", "memory": "Room for all."}
    yield from itertools.repeat(None)


def learner(process, updates=60):
    """One update a step, from the checkpoint on; a checkpoint at the end."""
    for done in range(process.ray.saved, updates + 1):
        process.figures = learner_figures(done)
        if done < updates and not process.was_told("stop"):
            yield
        else:
            process.ray.saved = done
            return


def learner_figures(updates):
    counts = {"updates": updates, "steps": 10 * updates, "returns": []}
    words = {"note": "", "doing": "", "memory": "Room here."}
    return counts | words | {"loss_scales": f"scales {updates}"}


def evaluator(process):
    process.figures = {"eval_return": None, "evaluated": "4 episodes, greedy", "head": "clipped_0.9"}
    while not process.is_finishing:
        yield
    process.figures["eval_return"] = 7.0


def collector_figures(steps=1234, stepping=0.0):
    return {"stepping": stepping, "steps": steps}


def collector(process):
    while not process.was_told("stop"):
        process.figures = collector_figures()
        yield


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
        remote = functools.partial(self._call, method)
        return SimpleNamespace(options=lambda **_: SimpleNamespace(remote=remote))

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
