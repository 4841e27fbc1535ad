"""The programs of docs/examples that need no TensorFlow, and the study that one of them is for."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest

from benchmarks import sac_scales
from benchmarks.rows import example
from tests.pages import ROOT
from tests.scripted import Script

torch = pytest.importorskip("torch", reason="make test-adopting runs this in .venv-rivals")


@pytest.mark.parametrize(
    ("name", "scaling", "steps", "printed"),
    [
        ("torch_sac", "off", 1030, "step 1,000  return of the last 10 episodes -"),
        ("torch_sac", "sigma", 1030, "step 1,000  return of the last 10 episodes -"),
        ("torch_sac", "units", 1030, "step 1,000  return of the last 10 episodes -"),
        ("torch_ppo", "sigma", 4096, "step 4,096  return of the last 20 episodes "),
        ("torch_ppo", "units", 4096, "step 4,096  return of the last 20 episodes "),
        ("jax_ppo", "units", 4096, "step 4,096  return of the last 20 episodes "),
        ("sb3_ppo", "off", 4096, "Eval num_timesteps=4096, episode_reward="),
        ("sb3_ppo", "units", 4096, "Eval num_timesteps=4096, episode_reward="),
    ],
)
def test_it_runs_as_a_program_and_prints_returns(name, scaling, steps, printed):
    pytest.importorskip({"jax_ppo": "jax", "sb3_ppo": "stable_baselines3"}.get(name, "torch"))
    options = [f"--scaling={scaling}", f"--steps={steps}", "--reward-scale=1000"]
    command = [sys.executable, f"docs/examples/{name}.py", *options]
    environ = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert printed in done.stdout
    if printed.endswith(" "):  # CartPole's returns, without the rewards' factor
        assert 15.0 < float(done.stdout.split(printed)[1].split()[0]) < 200.0


def test_ppo_in_units_does_the_same_for_rewards_times_a_power_of_two():
    torch.set_num_threads(1)
    ppo, returns = example("torch_ppo"), {}
    for scaling in ("units", "off"):
        for times in (1.0, 1024.0):
            envs = ppo.make("CartPole-v1", 8, times)
            returns[scaling, times] = ppo.train(envs, scaling, steps=4096)
    assert len(returns["units", 1.0]) > 100
    assert returns["units", 1024.0] == returns["units", 1.0]
    assert returns["off", 1024.0] != returns["off", 1.0]


def test_ppo_counts_what_would_have_followed_a_time_out(monkeypatch):
    """Episodes of one step of reward 1: cut, terminal, or both, which is terminal."""

    class Ends(Script):
        def __init__(self, *ends):
            self._ends = ends

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.ones(1, np.float32), 1.0, *self._ends, {}

    def env(*ends):
        return lambda: gymnasium.wrappers.RecordEpisodeStatistics(Ends(*ends))

    ppo, seen = example("torch_ppo"), []
    losses = ppo.losses

    def spied(agent, divide, batch):
        value = agent(torch.ones(1, 1))[1].item()
        seen.append((value, batch[-1].unique().tolist()))
        return losses(agent, divide, batch)

    monkeypatch.setattr(ppo, "losses", spied)
    envs = gymnasium.vector.SyncVectorEnv(
        [env(False, True), env(True, False), env(True, True)],
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )
    assert ppo.train(envs, steps=2 * 128 * 3, rate=1e-2) == [1.0] * (2 * 128 * 3)
    assert seen[0][1] == [1.0]  # there was no unit yet
    value, targets = seen[ppo.EPOCHS * ppo.MINIBATCHES]  # the first of the second rollout, before its update
    assert abs(value) > 0.1
    np.testing.assert_allclose(sorted(targets), sorted([1.0, 1.0 + 0.99 * value]), rtol=1e-5)


def test_jax_ppo_in_units_does_the_same_for_rewards_times_a_power_of_two(monkeypatch):
    pytest.importorskip("jax")
    ppo = example("jax_ppo")
    returns = {times: ppo.train(times, steps=2048) for times in (1.0, 1024.0)}
    assert len(returns[1.0]) > 50 and returns[1024.0] == returns[1.0]
    monkeypatch.setattr(ppo, "LONGEST", 5)  # no pole falls within five steps
    assert {*ppo.train(1024.0, "sigma", steps=1024)} == {5.0}


def test_stable_baselines_ppo_records_returns_without_the_rewards_factor():
    pytest.importorskip("stable_baselines3")
    sb3 = example("sb3_ppo")
    returns = {times: sb3.train(reward_scale=times, steps=2048) for times in (1.0, 1024.0)}
    assert len(returns[1.0]) > 50 and returns[1024.0] == returns[1.0]


def test_sac_in_units_does_the_same_for_rewards_times_a_power_of_two():
    torch.set_num_threads(1)
    sac, returns = example("torch_sac"), {}
    for scaling in ("units", "off"):
        for times in (1.0, 1024.0, 2.0**-10):
            returns[scaling, times] = sac.train(sac.make("Pendulum-v1", times), scaling, steps=1200)[1]
    assert len(returns["units", 1.0]) == 6
    assert returns["units", 1024.0] == returns["units", 2.0**-10] == returns["units", 1.0]
    assert returns["off", 1024.0] != returns["off", 1.0]


def test_an_episode_that_is_cut_goes_on_in_its_target(monkeypatch):
    """The discounts that SAC learns from are 0.99 at Pendulum's time-outs, and its replay holds no other."""
    sac, seen = example("torch_sac"), []
    values = sac.values

    def spied(critics, observations, actions):
        frame = sys._getframe(1)
        if "discounts" in frame.f_locals:
            seen.append(frame.f_locals["discounts"].numpy().copy())
        return values(critics, observations, actions)

    monkeypatch.setattr(sac, "values", spied)
    sac.train(sac.make("Pendulum-v1", 1.0), steps=1010)
    assert len(seen) > 9 and (np.concatenate(seen) == np.float32(0.99)).all()


def test_the_study_scores_the_last_fifth_in_the_environments_own_units():
    """Five episodes of the warm-up, whose actions are random: the last alone ends after step 800."""
    returns = example("torch_sac").train(sac_scales.environment("Pendulum-v1", 1.0), "off", steps=1000)[1]
    assert len(set(returns)) == 5
    for arm, times in (("learned", 1.0), ("units", 1024.0), ("normalised", 2.0**-10)):
        assert sac_scales.score("Pendulum-v1", arm, times, 0, 1000) == returns[-1]


def test_the_study_names_where_units_are_below(tmp_path, monkeypatch):
    monkeypatch.setattr(sac_scales, "TABLE", tmp_path / "sac.csv")
    names = "Pendulum-v1", sac_scales.TF_AGENTS, sac_scales.LUNAR_LANDER
    monkeypatch.setattr(sac_scales, "ENVIRONMENTS", {name: (5000, range(3)) for name in names})
    asked = []

    def score(name, arm, times, seed, steps):
        asked.append((arm, times, seed, steps))
        levels = {"units": -400.0, "normalised": -399.0, "fixed": -100.0 if times == 1.0 else -500.0}
        pooled = (name, arm, times) == (sac_scales.LUNAR_LANDER, "units", 1000.0)
        return levels.get(arm, -100.0) + seed - 60.0 * pooled

    monkeypatch.setattr(sac_scales, "score", score)
    sac_scales.make()
    sac_scales.make()
    assert len(asked) == 3 * (3 * (4 + 2 + 4) + 3), "what is in the table is not run again"
    text = "\n".join(sac_scales.table())
    assert "| `units` | -399 [-401, -397] | -399 [-401, -397] | -399 [-401, -397] |" in text
    assert text.count("100 [98, 102]") == 3
    assert text.count("| `learned` | -99 ") == 3 and text.count("| `fixed` |") == 2
    for arm in sac_scales.TAKEN_BACK:
        assert f"| {arm} | -99 [-101, -97] | 320 [297, 343] |" in text, "less all nine runs of units"
    assert "below `learned` in Pendulum-v1 times 0.001" in text and "`fixed` in Pendulum-v1 times 1;" in text
    assert "`fixed` in Pendulum-v1 times 1000" not in text
    assert "-1 [-3, 1]" in text and "`normalised` in Pendulum-v1" not in text, "the interval holds 0"
    assert f"| {sac_scales.TF_AGENTS} |" in text
    lines = sac_scales.TABLE.read_text().splitlines(keepends=True)
    sac_scales.TABLE.write_text("".join(lines[:-1]))
    text = "\n".join(sac_scales.table())
    assert f"| {sac_scales.LUNAR_LANDER} |" not in text and "| Pendulum-v1 |" in text, "a run is missing"


def test_each_coupling_of_sac_that_is_taken_back_changes_it():
    def returns(arm):
        return sac_scales.score("Pendulum-v1", arm, 1.0, 0, 1200)

    assert len({returns(arm) for arm in ("units", "learned", *sac_scales.TAKEN_BACK)}) == 5
    with pytest.raises(ValueError, match="torch_sac.py must contain once: no such line"):
        example("torch_sac", {"no such line": ""})
