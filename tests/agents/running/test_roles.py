"""What the roles of a distributed run hand to one another: the real ones, as threads of one process."""

import concurrent.futures
import contextlib
import os
import threading
import time

import numpy as np
import pytest

from agents.replay.backends import RAY, REVERB
from agents.replay.replay import ReplayStopped
from agents.running import roles
from agents.storage.checkpoint import find_newest
from agents.storage.weights import pack
from tests.agents.quickstart import configured, scalars
from tests.agents.running.stand_in_ray import Calls
from tests.agents.started import DISTRIBUTED, patience

UPDATES = 30
BINDINGS = (
    *DISTRIBUTED,
    f"train.updates = {UPDATES}",
    "train.weights_interval = 5",
    f"train.eval_interval = {UPDATES // 2}",
    "train.final_eval_rounds = 1",
)


class Cast:
    """Roles, their work in threads, and an end to both.

    Open the learner last: a new role sets TensorFlow's seed, which takes Reverb's client out of the process.
    """

    def __init__(self, root, backend):
        self.root, self._opened, self._backend = root, contextlib.ExitStack(), backend
        self.address = "localhost"
        self._threads = self._opened.enter_context(concurrent.futures.ThreadPoolExecutor())
        if backend == REVERB:
            self.address = self.open(roles.ReplayRole).address
        else:
            self.address = Calls(None)

    def open(self, kind):
        role = kind(f"Replay.backend = '{self._backend}'", str(self.root), roles.describe_versions())
        self._opened.enter_context(role.opened)
        role.build(self.address, start=0)
        self._opened.callback(role.stop)
        if kind is roles.LearnerRole and self._backend == RAY:
            self.address.called = role
        return role

    def work(self, role):
        """As `Role.run` does after `build`."""
        return self._threads.submit(lambda: (role.work(), role.figures())[1])

    def close(self):
        self._opened.close()


@pytest.fixture(params=[REVERB, RAY])
def cast(tmp_path, monkeypatch, request):
    pytest.importorskip(request.param)
    monkeypatch.setattr(os, "setpgid", lambda *_: None)
    if request.param == RAY:
        monkeypatch.setattr("agents.replay.ray_replay.ray", Calls(None))
    with configured(*BINDINGS), contextlib.closing(Cast(tmp_path / "run", request.param)) as cast:
        yield cast


def weights(role):
    agent = role._learner._agent if isinstance(role, roles.LearnerRole) else role._agent
    return [variable.numpy() for variable in agent.acting_variables]


def assert_same_weights(role, learner):
    for ours, theirs in zip(weights(role), weights(learner), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_run_of_all_roles(cast, monkeypatch):
    monkeypatch.setattr(roles, "_PUBLISH_EVERY", 5)
    collector = cast.open(roles.CollectorRole)
    evaluator = cast.open(roles.EvaluatorRole)
    learner = cast.open(roles.LearnerRole)
    first, published, saved, evaluated = weights(learner), [], [], []
    evaluate = evaluator._evaluate
    monkeypatch.setattr(
        evaluator, "_evaluate", lambda *asked: [evaluated.append(evaluator._weights_step), evaluate(*asked)]
    )
    publish, save = learner.replay.publish, learner._learner.save

    def publish_once(update, data):
        published.append(update)
        # Statistics may come between the last step's two.
        if published.count(update) == 2 or update < UPDATES:
            publish(update, data)

    monkeypatch.setattr(learner.replay, "publish", publish_once)
    monkeypatch.setattr(learner._learner, "save", lambda: [saved.append(learner._learner.updates), save()])
    end = time.monotonic() + patience() / 10
    while evaluator._weights_step < 0:
        assert time.monotonic() < end, "the learner publishes its first weights before it works"
        evaluator._pull()
    assert_same_weights(evaluator, learner)
    evaluating, collecting = cast.work(evaluator), cast.work(collector)
    result = cast.work(learner).result()

    assert published == [5, 10, 15, 20, 25, 30, 30] and saved == [20, 30]
    waits = scalars(cast.root / "train")["waits/learner"]
    assert len(waits) == UPDATES // learner.training.summary_interval
    assert (waits >= 0.0).all() and 0.0 < waits.max() <= 1.0
    assert result["steps"] > 0, "statistics come before the updates that they cause"
    assert result["updates"] == UPDATES and find_newest(cast.root)[0] == UPDATES
    assert any(not np.array_equal(now, then) for now, then in zip(weights(learner), first, strict=True))
    # Without newer weights than the first the collector cannot have collected for so many updates.
    assert collector.figures()["weights"] in range(5, UPDATES + 1)
    end = time.monotonic() + patience()
    while evaluator._weights_step < UPDATES:
        assert time.monotonic() < end
        time.sleep(0.01)
    evaluator.note(learner.figures()["loss_scales"], last=True)
    shown = evaluating.result()
    assert evaluated.count(UPDATES) == 1, "the last weights are evaluated at the end, and not before as well"
    # The evaluator lets the head act that a trial has found.
    tried = evaluator._agent.policy.head_probabilities
    assert tried.numpy().max() == 1.0 and shown["head"] == evaluator._agent.heads.names[int(np.argmax(tried))]
    tried.assign(learner._learner._agent.policy.head_probabilities)
    assert_same_weights(evaluator, learner)
    assert np.isfinite(shown["eval_return"]) and (cast.root / "best.npz").exists()

    collector.stop()
    with contextlib.suppress(ReplayStopped):  # the learner takes nothing out any more, so it waits to write
        collecting.result()
    collector._pull()
    assert_same_weights(collector, learner)
    learner._learner.drain_statistics()
    steps, collected = learner.figures()["steps"], collector.figures()["steps"]
    # The round that it was cut off in is not in both counts.
    assert abs(steps - collected) <= collector.training.steps_per_round * collector.training.num_envs
    assert learner._learner._agent.scaling.layer.moments.count.numpy()[0] == steps > 0


def test_an_evaluator_plays_when_weights_are_an_interval_newer_and_a_learner_that_waits_stops(
    cast, monkeypatch
):
    evaluator = cast.open(roles.EvaluatorRole)
    learner = cast.open(roles.LearnerRole)
    end = time.monotonic() + patience()

    def wait_until(condition):
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.01)

    step, during = evaluator.environment.step, []
    monkeypatch.setattr(
        evaluator.environment, "step", lambda action: [during.append(evaluator.status()), step(action)][1]
    )
    evaluating = cast.work(evaluator)
    evaluator._built = True
    wait_until(lambda: evaluator._weights_step >= 0)
    learner.replay.publish(evaluator.training.eval_interval, pack(learner._acting_variables))
    wait_until(lambda: evaluator.figures()["eval_return"] is not None)
    evaluator.stop()
    evaluating.result()
    # By which the driver notices one that hangs.
    assert all(status["stepping"] > 0 for status in during) and evaluator.status()["stepping"] == 0
    batch = evaluator.environment.batch_size
    assert [status["steps"] for status in during] == [batch * count for count in range(1, len(during) + 1)]

    gather, waited = learner.gather, threading.Event()
    monkeypatch.setattr(learner, "gather", lambda: [waited.set(), gather()])
    working = cast.work(learner)
    assert waited.wait(patience())
    update, inside = learner._learner.update, threading.Event()
    monkeypatch.setattr(learner._learner, "update", lambda: [inside.set(), update()])
    monkeypatch.setattr(learner.replay, "batch_due", lambda batch_size: True)  # of an empty table
    assert inside.wait(patience())
    learner.stop()
    assert working.result(patience())["updates"] == 0
