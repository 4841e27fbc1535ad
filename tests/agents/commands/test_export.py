"""What a run has learned, exported."""

import json
import subprocess
import sys

import numpy as np

from agents import Agent
from agents.__main__ import main
from agents.commands.export import save
from tests.agents.commands.small_runs import NAMES

ALONE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("rbs_tf", "agents", "networks", "tf_agents", "tensorflow_probability", "gin"):
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
import collections

import numpy as np
import tensorflow as tf

TimeStep = collections.namedtuple("TimeStep", ["step_type", "reward", "discount", "observation"])
folder, steps = sys.argv[1:]
policy, steps = tf.saved_model.load(folder), dict(np.load(steps))
state, played = policy.get_initial_state(1), []
for index in range(len(steps["reward"])):
    step = policy.action(TimeStep(**{name: column[index : index + 1] for name, column in steps.items()}), state)
    state = step.state
    played.append((step.action[0], step.info.greedy_values[0]))
actions, values = zip(*played)
# The same, served: a batch of all the first steps.
first = {f"0/{name}": tf.constant(column[steps["step_type"] == 0]) for name, column in steps.items()}
size = tf.constant(len(first["0/reward"]))
state = policy.signatures["get_initial_state"](batch_size=size)
served = policy.signatures["action"](**first, **{f"1/{name}": part for name, part in state.items()})
np.savez("played.npz", actions=actions, values=values, served=served["info/greedy_values"])
"""


def test_an_exported_policy_plays_the_same_without_this_package(run, tmp_path, played):
    agent, rng = Agent.load(run.root, head=1), np.random.default_rng(0)
    for variable in agent.tf_agent.network.variables:  # after so few updates, heads agree
        variable.assign_add(rng.normal(0.0, 0.3, variable.shape))
    save(agent, tmp_path / "exported")
    moments = [moment for moment in played(agent, 2, 40) if not moment.ended]
    np.savez(
        tmp_path / "steps.npz",
        observation=[moment.observation for moment in moments],
        reward=np.array([moment.reward for moment in moments], np.float32),
        discount=np.ones(len(moments), np.float32),
        step_type=np.array([moment.step > 0 for moment in moments], np.int32),
    )
    alone = tmp_path / "alone"
    alone.mkdir()
    command = [sys.executable, "-c", ALONE, str(tmp_path / "exported"), str(tmp_path / "steps.npz")]
    done = subprocess.run(command, cwd=alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    played = np.load(alone / "played.npz")
    assert played["actions"].tolist() == [moment.action for moment in moments]
    values = [moment.values for moment in moments]
    assert np.any(np.diff(values, axis=1) != 0.0)
    np.testing.assert_allclose(agent.reward_values(played["values"]), values, rtol=1e-4, atol=1e-4)
    firsts = [moment.values for moment in moments if moment.step == 0]
    np.testing.assert_allclose(agent.reward_values(played["served"]), firsts, rtol=1e-4, atol=1e-4)
    described = json.loads((tmp_path / "exported" / "policy.json").read_text())
    assert described["heads"] == list(NAMES) and described["acting_head"] == NAMES[agent.head]


def test_an_export_takes_another_head_and_no_folder_that_exists_and_touches_nothing_beside_it(
    run, tmp_path, capsys
):
    (tmp_path / "exported.tmp").mkdir()
    (tmp_path / "exported.tmp" / "mine").write_text("precious")
    assert main(["export", str(run.root), "--head=0", str(tmp_path / "exported"), "--checkpoint=latest"]) == 0
    assert (tmp_path / "exported.tmp" / "mine").read_text() == "precious"
    exported, other = sorted(tmp_path.iterdir())
    assert exported.stat().st_mode == other.stat().st_mode
    assert "described in its policy.json" in capsys.readouterr().out
    described = json.loads((exported / "policy.json").read_text())
    assert (described["acting_head"], described["update"]) == (NAMES[0], 30)
    for out_dir, answer in (
        (exported, "exists already"),
        (tmp_path / "none" / "exported", "cannot be made"),
        (tmp_path / "a[b]", "loads no model from a path with brackets"),
    ):
        assert main(["export", str(run.root), str(out_dir)]) == 2
        assert answer in capsys.readouterr().err
