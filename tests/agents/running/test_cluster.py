"""The distributed mode with real processes: it trains, goes on when any of them is killed, and leaves nothing behind.

What the driver does in each case, test_supervision.py asks without them.
"""

import re
import signal
import time

import numpy as np
import pytest

from agents.replay.backends import RAY, REVERB
from agents.running.signals import TOGETHER
from tests.agents.quickstart import scalars
from tests.agents.started import Started

pytest.importorskip("ray")

# So near to the ratio that a departure from it shows; evaluations; and one head, as tracing takes most of the time.
BINDINGS = (
    "Heads.pairs = ((0.99, False),)",
    "Replay.replay_ratio = 1.0",
    "Replay.error_buffer = 8.0",
    "train.eval_interval = 20",
    "train.final_eval_rounds = 1",
)


def saved(root):
    """Steps of the checkpoints in a run folder."""
    return [int(path.name) for path in root.glob("checkpoints/*") if path.name.isdecimal()]


@pytest.fixture(scope="module", params=[REVERB, RAY])
def survivor(tmp_path_factory, request):
    """A run in which a collector and the learner are killed, and which a signal ends; see also `make chaos`."""
    pytest.importorskip(request.param)
    with Started(
        tmp_path_factory.mktemp("runs") / "run", f"--replay={request.param}", bindings=BINDINGS
    ) as run:
        run.backend = request.param
        run.wait_for(lambda: run.updates > 5)
        for name in ("collector 0", "learner"):
            run.kill(name)
            run.wait_for_more_updates()
        run.listens = run.listening()
        run.process.send_signal(signal.SIGINT)
        run.code = run.finish()
        run.assert_nothing_left()
        yield run


def test_a_run_goes_on_when_processes_are_killed_and_a_signal_ends_it(survivor):
    said = survivor.said()
    assert "collector 0: its process died; it starts again." in said, survivor.story()
    then = "everything goes on from the last checkpoint" if survivor.backend == RAY else "it starts again"
    assert f"learner: its process died; {then}." in said, survivor.story()
    assert survivor.code == 128 + signal.SIGINT
    assert any("Stopped by SIGINT, exit code 130. The same command goes on" in line for line in said)
    assert max(saved(survivor.root)) >= survivor.counts("updates")[-1] - 1
    for noise in ("Traceback", "(raylet)", "Warning"):
        assert noise not in survivor.output


def test_a_run_on_one_machine_listens_on_the_loopback_only_but_for_reverbs_server(survivor):
    """`docs/scaling.md`, who may reach it: of driver, roles, Ray's own processes, and Reverb's."""
    assert len(survivor.listens) >= 6
    open_to_all = {port for address, port in survivor.listens if not address.is_loopback}
    said = re.search(r"Reverb's port (\d+)", survivor.output)
    assert open_to_all == ({int(said[1])} if survivor.backend == REVERB else set())


@pytest.mark.parametrize(
    "survivor", [pytest.param(REVERB, marks=pytest.mark.slow), RAY], indirect=True, scope="module"
)
def test_the_same_command_goes_on_from_its_checkpoint_to_the_end(survivor):
    root, before = survivor.root, max(saved(survivor.root))
    with Started(root, f"--replay={survivor.backend}", updates=before + 40, bindings=BINDINGS) as run:
        assert run.finish() == 0, run.story()
        run.assert_nothing_left()
    assert run.resumed == before and max(saved(root)) == before + 40
    assert f"{before + 40:,} updates from" in run.output and "Last evaluation" in run.output
    training, evaluation = scalars(root / "train"), scalars(root / "eval")
    assert np.isfinite(training["loss"]).all() and np.isfinite(training["episode/return"]).all()
    # While collectors, the learner and the replay came and went.
    np.testing.assert_allclose(training["replay/ratio"][-5:], 1.0, atol=0.05)
    best = np.load(root / "best.npz")["mean_return"]
    assert best == pytest.approx(max(evaluation["episode/return"]))


@pytest.mark.slow
@pytest.mark.parametrize(("replay", "holder"), [(REVERB, "replay"), (RAY, "learner")])
def test_a_run_goes_on_after_the_death_of_evaluator_replay_and_driver(tmp_path, replay, holder):
    pytest.importorskip(replay)
    bindings = (*BINDINGS, f"Replay.backend = '{replay}'")
    with Started(tmp_path / "run", collectors=2, bindings=bindings) as run:
        run.wait_for(lambda: run.updates > 25)
        for name in ("evaluator", holder):
            run.kill(name)
            run.wait_for_more_updates()
        assert "evaluator: its process died; it starts again." in run.said(), run.story()
        assert f"{holder}: its process died; everything goes on from the last checkpoint." in run.said()
        run.process.kill()
        before = run.updates
        # Ray's own idle agents look after their node every now and then, and end about a minute later.
        run.assert_nothing_left(agents=False)
    with Started(tmp_path / "run", collectors=2, bindings=bindings) as run:
        run.wait_for_resumption()
        # At most the updates since a checkpoint are lost, and what the terminal had not shown yet may be there.
        assert before - 20 <= run.resumed
        run.wait_for_more_updates(before=run.resumed)
        run.process.send_signal(signal.SIGTERM)
        assert run.finish() == 128 + signal.SIGTERM
        run.assert_nothing_left()
    assert max(saved(tmp_path / "run")) > run.resumed


@pytest.mark.slow
def test_a_second_signal_ends_a_run_at_once_that_does_not_end_and_leaves_nothing(tmp_path):
    with Started(tmp_path / "run", bindings=BINDINGS) as run:
        run.wait_for(lambda: run.updates > 5)
        run.signal(signal.SIGSTOP, "learner")  # which therefore never stops in order
        run.process.send_signal(signal.SIGINT)
        time.sleep(TOGETHER + 0.5)
        run.process.send_signal(signal.SIGINT)
        assert run.finish() == -signal.SIGINT, run.story()
        run.assert_nothing_left(agents=False)
