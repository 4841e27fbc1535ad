"""kill -9 of every role, again and again, at random moments: `make chaos`.

    make chaos                      20 kills of each, about an hour for each replay on two idle cores
    make chaos KILLS=3 ARGS="-k ray"

One run with each replay, its driver started again with the same command whenever it was the one to die. Prints a table
at its end.
"""

import contextlib
import itertools
import os
import random
import re
import signal
import statistics
import time

import numpy as np
import pytest
import tensorflow as tf

from agents.replay.backends import RAY, REVERB
from agents.storage.checkpoint import find_newest
from agents.storage.run_folder import checkpoints
from rbs_tf import ReturnMoments
from tests.agents.quickstart import scalars
from tests.agents.started import DISTRIBUTED, Started

pytest.importorskip("ray")

KILLS = int(os.environ.get("KILLS", 20))
COLLECTORS = 2
AT_ONCE, CHECKPOINT = "driver, repeated at once", "who has the replay or writes it, in a checkpoint"
ROLES = (
    *("a collector", "all collectors", "evaluator", "learner", "replay", "driver", "a slow collector"),
    *(AT_ONCE, CHECKPOINT),
)
INTERVAL = int(re.search(r"checkpoint_interval = (\d+)", " ".join(DISTRIBUTED))[1])
# Close to the ratio, so that a departure shows.
RATIO = ("Replay.replay_ratio = 1.0", "Replay.error_buffer = 16.0")


def counted_steps(root):
    """Steps in the newest checkpoint: the learner's counter, and those behind the rewards' moments."""
    _, counters = find_newest(root)
    folder, *_ = checkpoints(root)
    variables = tf.train.load_checkpoint(str(folder / "variables"))
    moments = variables.get_tensor("agent/scaling/layer/statistics/.ATTRIBUTES/VARIABLE_VALUE")
    return counters.environment_steps, ReturnMoments.from_array(moments).count


def strike(run, role, replay, draws):
    """Does it to one role of a run that goes on."""
    collectors = [f"collector {i}" for i in range(COLLECTORS)]
    match role:
        case "a collector":
            run.signal(signal.SIGKILL, draws.choice(collectors))
        case "all collectors":
            run.signal(signal.SIGKILL, *collectors)
        case "a slow collector":
            (stopped,) = run.signal(signal.SIGSTOP, draws.choice(collectors)).values()
            time.sleep(draws.uniform(0, 10))
            with contextlib.suppress(ProcessLookupError):  # struck while it stood still
                os.kill(stopped, signal.SIGCONT)
        case _ if role == CHECKPOINT:
            end = time.monotonic() + 120
            while not any(run.root.glob("checkpoints/*.new")) and time.monotonic() < end:
                time.sleep(0.01)
            run.signal(
                signal.SIGKILL, draws.choice(["learner", "replay"] if replay == REVERB else ["learner"])
            )
        case _:
            run.signal(signal.SIGKILL, role)


def begin(root, replay):
    return Started(root, f"--replay={replay}", collectors=COLLECTORS, bindings=RATIO)


@pytest.mark.chaos
@pytest.mark.timeout(0)
@pytest.mark.parametrize("replay", [REVERB, RAY])
def test_a_run_survives_everybodys_death_again_and_again(tmp_path, capsys, replay):
    pytest.importorskip(replay)

    def say(text):
        with capsys.disabled():
            print(text, flush=True)

    draws = random.Random(0)
    roles = [role for role in ROLES if role != "replay" or replay == REVERB]
    order = [role for role in roles for _ in range(KILLS)]
    draws.shuffle(order)
    seconds = {role: [] for role in roles}  # until the updates are past those at the kill
    repeated = []  # updates that were made twice, of each time that some were
    steps, root = 0, tmp_path / "run"
    run, since, struck = begin(root, replay), 0, []
    try:
        run.wait_for_more_updates(20)
        for number, role in enumerate(order, 1):
            updates = run.updates
            struck.append((role, time.monotonic()))
            if role in ("driver", AT_ONCE):
                run.process.kill()
                steps = max([steps, *run.counts("steps")])
                if role == "driver":
                    run.assert_nothing_left(agents=False)
                died, run, since = run, begin(root, replay), 0
                run.wait_for_resumption()
                died.assert_nothing_left(agents=False)
                died.__exit__()
                repeated.append(max(0, updates - run.resumed))
            else:
                strike(run, role, replay, draws)
            # Half of the time the next one follows before this one's end has been noticed, or mended.
            time.sleep(draws.uniform(0, 3))
            if number < len(order) and draws.random() < 0.5:
                continue
            run.wait_for_more_updates(5, before=updates)
            now = time.monotonic()
            for name, start in struck:
                seconds[name].append(now - start)
            counts = run.counts("updates", since)
            repeated += [a - b for a, b in itertools.pairwise(counts) if b < a]
            # Statistics that an update has used are never lost: the count of steps behind them does not fall.
            shown = run.counts("steps", since)
            assert shown == sorted(shown) and shown[0] >= steps
            steps, since = shown[-1], len(run.output)
            say(f"{number}/{len(order)} {', '.join(name for name, _ in struck)}: {now - struck[0][1]:.0f} s")
            struck = []
        run.wait_for_more_updates(5 * INTERVAL)  # nobody is on its way back: the end is in a checkpoint
        run.process.send_signal(signal.SIGINT)
        assert run.finish() == 128 + signal.SIGINT
        run.assert_nothing_left()
    finally:
        run.__exit__()
    assert "Traceback" not in run.output and "(raylet)" not in run.output
    counter, counts = counted_steps(root)
    assert counter >= steps
    np.testing.assert_array_equal(counts, counter)
    ratio = scalars(root / "train")["replay/ratio"]
    say(f"\n{run.updates} updates; at most {max(repeated)} were made again at a time.")
    say(
        f"Replay ratio over the last half: {ratio[len(ratio) // 2 :].min():.3f} to {ratio.max():.3f} (to be 1)."
    )
    say("| killed | times | seconds until further than before: median, most |\n|---|---|---|")
    for role, of_role in seconds.items():
        say(f"| {role} | {len(of_role)} | {statistics.median(of_role):.0f}, {max(of_role):.0f} |")
    assert max(repeated) <= INTERVAL
    assert np.abs(ratio[len(ratio) // 2 :] - 1.0).max() < 0.05
