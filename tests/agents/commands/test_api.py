"""The agent in Python programs: what acts, and what trains."""

import concurrent.futures
import contextlib
import re
import shlex
import shutil
import signal
from pathlib import Path

import gin
import gymnasium
import numpy as np
import pytest
import tensorflow as tf

import agents.api
from agents import Agent, UsageError, configuration, train
from agents.__main__ import main
from agents.commands.export import save
from agents.errors import RunFolderError
from agents.running.embedded import EmbeddedRun
from agents.storage.run_folder import REPOSITORY
from agents.workers.results import Evaluated, Result
from tests.agents.commands.small_runs import BINDINGS, CARTPOLE, NAMES, instead_of_building, write_slim_run
from tests.agents.quickstart import TINY


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An agent for CartPole that has learned nothing; outputs are values, of which `return_out` would make zeros."""
    bindings = (*BINDINGS, *CARTPOLE, "train.scaling = @scalings.return_based")
    return write_slim_run(tmp_path_factory.mktemp("runs") / "run", *bindings)


def instead_of_a_training(monkeypatch, run):
    """Lets `train` call this with its `on_evaluation`, once all is configured."""
    built = instead_of_building(lambda folder, on_evaluation: run(on_evaluation))
    monkeypatch.setattr("agents.run._built", built)
    monkeypatch.setattr("agents.run.check_built", lambda *_: None)


def test_keras_3_is_refused(folder, monkeypatch):
    monkeypatch.setattr(tf.keras, "__version__", "3.12.0", raising=False)
    for call in (lambda: Agent.load(folder), train):
        with pytest.raises(UsageError, match="needs Keras 2, and TensorFlow has loaded Keras 3: pip install"):
            call()


def test_an_agent_keeps_the_state_of_every_environment_and_forgets_it_where_an_episode_begins(folder):
    rng, agent, steps = np.random.default_rng(0), Agent.load(folder, head=1), 7
    for variable in agent.tf_agent.network.variables:
        variable.assign_add(rng.normal(0.0, 0.05, variable.shape))  # not so much that gates are shut
    seen = rng.normal(size=(2, steps, 4)).astype(np.float32)
    rewards = rng.choice([-1.0, 1.0], (2, steps))
    begins = np.zeros((2, steps), bool)
    begins[:, 0] = begins[1, 3] = True
    batch, actions, values = Agent.load(folder, head=NAMES[1]), [], []
    for variable, value in zip(
        batch.tf_agent.network.variables, agent.tf_agent.network.variables, strict=True
    ):
        variable.assign(value)
    for step in range(steps):
        batch.reset(begins[:, step])
        actions.append(batch.act(seen[:, step], rewards[:, step]))
        values.append(batch.values)
    assert actions[0].shape == (2,) and values[0].shape == (2, 2)
    for row in (0, 1):
        agent.reset()
        alone, of_these = [], []
        for step in range(steps):
            if begins[row, step]:
                agent.reset()
            alone.append(agent.act(seen[row, step].tolist(), rewards[row, step]))
            of_these.append(agent.values)
        assert isinstance(alone[0], int) and alone == [int(action[row]) for action in actions]
        np.testing.assert_allclose(of_these, [value[row] for value in values], rtol=1e-3, atol=1e-5)
        # The whole at once: each step's state, previous action and reward must have been these.
        previous = np.where(begins[row], -1, np.r_[-1, alone[:-1]]).astype(np.int32)
        told = np.where(begins[row], 0, rewards[row]).astype(np.float32)
        step_type = np.where(begins[row], 0, 1).astype(np.int32)
        outputs, _ = agent.tf_agent.network(
            (seen[row][None], previous[None], told[None]), step_type[None], ()
        )
        assert alone == np.argmax(outputs[0, :, 1], axis=-1).tolist()
        expected = tf.reduce_max(outputs[0], -1) / [
            1.0,
            0.25,
        ]  # of a clipped head, and in the environment's units
        np.testing.assert_allclose(of_these, expected, rtol=1e-3, atol=1e-5)


def test_what_does_not_fit_is_refused_in_a_sentence_and_changes_nothing(folder):
    agent = Agent.load(folder)
    one, two = np.zeros(4), np.zeros((2, 4))
    agent.act(two, [0, 1])
    for call, answer in (
        (lambda: agent.act(one), "CartPole-v1: 1 observations follow 2: call reset()"),
        (
            lambda: agent.act(np.zeros(3)),
            r"is \[\(3,\)\]: expected \[\(4,\)\], or such ones of N.* agent.make_environment\(\) makes",
        ),
        (lambda: agent.act(np.zeros((2, 8))), r"is \[\(2, 8\)\]"),
        (lambda: agent.act(np.zeros(4, complex)), "from dtype.*complex128.* to dtype.*float32"),
        (lambda: agent.act(two, 1.0), "size 1 into shape"),
        (lambda: agent.reset([0, 1]), r"reset\(\) got int64 \(2,\), not bool \(2,\)"),
        (lambda: agent.reset([True]), r"reset\(\) got bool \(1,\), not bool \(2,\)"),
    ):
        with pytest.raises((ValueError, TypeError), match=answer) as refused:
            call()
        assert "\n" not in str(refused.value)
    agent.act(two)
    agent.reset()
    assert agent.act(one) in (0, 1)


def test_no_agent_is_loaded_from_what_is_none(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    damaged = shutil.copytree(folder, tmp_path / "damaged")
    (damaged / "config.gin").write_bytes(b"\xff\x00 = =")
    edited = shutil.copytree(folder, tmp_path / "edited")
    (edited / "config.gin").write_text((folder / "config.gin").read_text().replace("CartPole", "Acrobot"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for arguments, answer in (
        (("pnog",), "There is no folder pnog. There is no pretrained agent 'pnog'. Did you mean pong?"),
        (("empty",), "empty is not the folder of a run"),
        (("file",), "There is no folder file."),
        ((folder, "latest"), "holds no checkpoint yet"),
        ((folder, "newest"), "There is no checkpoint 'newest'. Write one of best, latest."),
        ((folder, "best", 2), "There is no head '2'. There is: clipped_0.9, unclipped_0.99."),
        ((folder, "best", "unclipped"), "Did you mean unclipped_0.99"),
        ((damaged,), "The run cannot be built from"),
        ((edited,), "best.npz does not fit config.gin, which was edited, or"),
    ):
        with pytest.raises(UsageError) as refused:
            Agent.load(*arguments)
        assert answer in str(refused.value), arguments


@contextlib.contextmanager
def nothing_left_behind():
    """A configuration and handlers that have to be there afterwards."""
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1
    handlers = [signal.getsignal(number) for number in numbers]
    gin.clear_config()
    gin.parse_config("environments.make.max_episode_steps = 3")
    gin.finalize()
    before = gin.config_str()
    yield
    assert gin.config_is_locked() and gin.config_str() == before
    assert handlers == [signal.getsignal(number) for number in numbers]


def test_a_callback_stops_training_with_a_checkpoint_and_the_next_call_goes_on(tmp_path):
    config, found = tmp_path / "tiny.gin", []
    config.write_text("\n".join(("include 'configs/quickstart.gin'", *TINY)))
    settings = {"RecurrentQNetwork.torso": "@networks.MlpTorso", "train.eval_interval": np.int64(4)}
    settings |= {"train.final_eval_rounds": 1, "train.summary_interval": 0, "Heads.pairs": ((0.9, True),)}

    def stop_at_8(result):
        found.append(result)
        return np.bool_(result.update < 8)

    def stop_at_the_end(result):
        found.append(result)
        return result.update < 10

    arguments = dict(env="CartPole-v1", updates=np.int64(10), root_dir=tmp_path / "run", settings=settings)
    with nothing_left_behind():
        result = train(config, on_evaluation=stop_at_8, **arguments)
    assert (result.updates, result.stopped_by, result.root_dir) == (8, 0, str(tmp_path / "run"))
    assert [each.update for each in found] == [4, 8]
    assert found[-1].environment_steps == result.environment_steps
    for each in found:
        assert each.mean_return == np.mean(each.returns) == np.mean(each.lengths)  # a reward of 1 a step
    assert (tmp_path / "run/checkpoints/8").is_dir() and not (tmp_path / "run/finished.json").exists()
    with nothing_left_behind():
        result = train(config, on_evaluation=stop_at_the_end, **arguments)
        agent = Agent.load(result.root_dir, "latest")
        with contextlib.closing(agent.make_environment(2)) as environment:
            assert environment.reset().observation.shape == (2, 4)
    assert [each.update for each in found] == [4, 8, 10] and found[-1].mean_return == result.final_return
    assert (result.updates, result.stopped_by, agent.update) == (10, None, 10)
    assert (tmp_path / "run" / "finished.json").exists()
    with nothing_left_behind():
        assert train(config, on_evaluation=found.append, **arguments) == result, "already done"
    assert len(found) == 3


def test_flags_settings_and_what_a_callback_raises_are_passed_on(tmp_path, monkeypatch):
    evaluated = Evaluated(3, 100, 1.5, np.array([1.0, 2.0]), np.array([4, 5]))
    outcome, stops = [], []

    def run(on_evaluation):
        if not configured:
            configured.update({name: gin.query_parameter(name) for name in asked})
        if outcome:
            raise outcome[0]
        stops.append(on_evaluation is not None and on_evaluation(evaluated) is False)
        return Result(3, 100, 1.5, 0 if stops[-1] else None)

    instead_of_a_training(monkeypatch, run)
    monkeypatch.chdir(tmp_path)
    configured, asked = {}, ("train.seed", "train.env", "train.updates", "MlpTorso.units", "train.num_envs")
    result = train(
        REPOSITORY / "configs" / "quickstart.gin",
        {"MlpTorso.units": (np.int32(8), 4)[1:], "train.num_envs": np.int32(3)},
        env="CartPole-v1",
        seed=7,
        env_kwargs={"sutton_barto_reward": True},
        anew=True,
        wandb=False,
        scaling=None,
    )
    assert configured == dict(zip(asked, (7, "CartPole-v1", 4000, (4,), 3), strict=True))
    assert result == Result(3, 100, 1.5, None, str(tmp_path / "runs" / "quickstart-CartPole_v1-return-seed7"))
    _, command = shlex.split(Path(result.root_dir, "command.txt").read_text())
    assert re.match(
        r"agents.train\('.*quickstart.gin', {'MlpTorso.units': \(4,\), .*\*\*{'env': 'CartPole-v1'", command
    )

    def raising(result):
        raise LookupError("mine")

    with nothing_left_behind(), pytest.raises(LookupError, match="mine"):
        train(on_evaluation=raising, env="CartPole-v1", anew=True)
    assert stops == [False, True]
    assert train(on_evaluation=lambda result: False, env="CartPole-v1", anew=True).stopped_by == 0
    for told in (0, None):  # of what counts as false, only False itself
        result = train(on_evaluation=lambda result, told=told: told, env="CartPole-v1", anew=True)
        assert result.stopped_by is None
    for error in (RunFolderError("disk full"), FloatingPointError("NaN"), KeyboardInterrupt()):
        outcome[:] = [error]
        with nothing_left_behind(), pytest.raises(type(error)):
            train(env="CartPole-v1", anew=True)


@pytest.mark.parametrize(
    ("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_an_interrupted_training_ends_a_loop_over_seeds(number, raised, tmp_path, monkeypatch):
    instead_of_a_training(monkeypatch, lambda on_evaluation: Result(3, 100, 1.5, number))
    monkeypatch.chdir(tmp_path)
    begun = []
    with nothing_left_behind(), pytest.raises(raised):
        for seed in range(2):
            begun.append(seed)
            train(env="CartPole-v1", seed=seed)
    assert begun == [0]


def test_one_thread_trains_at_a_time_and_the_others_are_told_so(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(configuration, "PATIENCE", 0.1)

    def run(on_evaluation):
        assert Agent.load(folder).name == "CartPole-v1"  # a callback may
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            for call in (lambda: train(env="CartPole-v1"), lambda: Agent.load(folder)):
                with pytest.raises(UsageError, match="Another thread of this process is training"):
                    threads.submit(call).result()
        assert gin.query_parameter("train.env") == "Acrobot-v1"
        return Result(3, 100, 1.5, None)

    instead_of_a_training(monkeypatch, run)
    train(env="Acrobot-v1")
    assert Agent.load(folder).name == "CartPole-v1"


def test_what_cannot_be_trained_is_refused_as_an_exception_and_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments, answer in (
        (dict(config="quikstart"), "There is no config 'quikstart'. Did you mean quickstart?"),
        (dict(updtes=5), "unexpected keyword argument 'updtes'"),
        (dict(updates=1e6), "train.updates = 1000000.0: expected a whole number of at least 0"),
        (dict(root_dir="/dev/null/x"), "'/dev/null/x' cannot be used: Not a directory"),
        (dict(collectors=0), "collectors must be a whole number of at least 1"),
        (dict(settings={"train.batch_size": EmbeddedRun}), "This is not gin: train.batch_size = <class"),
        (dict(settings={"batch size": 4}), "This is not gin"),
        (dict(gin_bindings=["train.batch_size = 4"]), "multiple values for keyword argument 'gin_bindings'"),
    ):
        with nothing_left_behind(), pytest.raises((UsageError, TypeError)) as refused:
            train(**arguments)
        assert answer in str(refused.value), arguments
    assert list(tmp_path.iterdir()) == []


def test_an_agent_builds_its_own_environments_whatever_is_configured(folder):
    lengths = []
    with nothing_left_behind():
        agent = Agent.load(folder)
        for options in ({}, {"max_episode_steps": 2}):
            with contextlib.closing(agent.make_environment(**options)) as environment:
                environment.reset()
                steps = (environment.step(np.array([step % 2])).is_last()[0] for step in range(60))
                lengths.append(1 + list(steps).index(True))
        with pytest.raises(UsageError, match="cannot be built from .*/config.gin: img_height: for Atari's"):
            agent.make_environment(img_height=84)
    assert lengths[0] > 3 and lengths[1] == 2


def test_what_the_documentation_shows_runs(folder, tmp_path, monkeypatch):
    """Its `train` asks for what can be asked for; what it would make of it takes minutes."""
    page = (REPOSITORY / "docs" / "playing.md").read_text()
    played, batch, exported, in_tf_agents = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    asked = []

    def run(on_evaluation):
        asked.extend(map(gin.query_parameter, ("train.updates", "train.eval_interval")))
        return Result(20, 200, 9.0, None, head="unclipped_0.997")

    instead_of_a_training(monkeypatch, run)
    monkeypatch.setattr(
        agents.api, "train", lambda *args, **flags: train(*args, **flags)._replace(root_dir=folder)
    )
    monkeypatch.chdir(tmp_path)
    names = {"np": np, "tf": tf}
    exec(played, names)
    assert asked == [20, 10] and names["agent"].values.shape == (2,)
    exec(batch, names)
    assert names["time_step"].is_last() and names["agent"].values.shape == (1, 2)
    save(names["agent"], tmp_path / "exported")
    exec(exported, names)
    assert names["values"].shape == (1, 2) and names["action"].shape == (1,)
    with contextlib.closing(names["agent"].make_environment()) as names["environment"]:
        exec(in_tf_agents, names)
    assert names["state"].core_state and names["time_step"].observation.shape == (1, 4)


class From10(gymnasium.Env):
    """Two steps; actions are 10, 11 and 12, and each is the reward."""

    action_space = gymnasium.spaces.Discrete(3, start=10)
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.made = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.made += 1
        return np.full(2, 0.5, np.float32), float(action), self.made == 2, False, {}


def test_actions_count_from_0_whatever_the_environments_own_space(tmp_path, monkeypatch):
    monkeypatch.setitem(
        gymnasium.registry, "From10-v0", gymnasium.envs.registration.EnvSpec("From10-v0", From10)
    )
    bindings = "train.env = 'From10-v0'", "RecurrentQNetwork.torso = @networks.MlpTorso", "train.updates = 1"
    agent, environment = Agent.load(write_slim_run(tmp_path / "run", *bindings)), From10()
    assert (agent.first_action, agent.num_actions) == (10, 3)
    environment.reset()
    action = agent.act(np.zeros(2))
    assert environment.step(action + agent.first_action)[1] == action + 10
    with contextlib.closing(agent.make_environment(2)) as batch:
        time_step = batch.reset()
        agent.reset()
        action = agent.act(time_step.observation)
        assert batch.step(action).reward.tolist() == (action + 10).tolist()


def test_observations_of_several_arrays_are_taken_by_name(tmp_path, capsys):
    agent = Agent.load(
        write_slim_run(
            tmp_path / "run", "train.env = 'tests.agents.environments:Counts-v0'", "train.updates = 1"
        )
    )
    with contextlib.closing(agent.make_environment(2)) as environment:
        seen = environment.reset().observation
    assert agent.act(seen).shape == (2,)
    one = {name: part[0] for name, part in seen.items()}
    first, *_ = one
    agent.reset()
    assert isinstance(agent.act(one), int)
    for wrong, error in (
        ({first: one[first]}, KeyError),
        ({**one, first: seen[first]}, ValueError),
        ({**one, first: one[first][:-1]}, ValueError),
    ):
        with pytest.raises(error):
            agent.act(wrong)
    assert main(["play", str(tmp_path / "run"), "--episodes=2", "--max_steps=4"]) == 0
    assert "2 episodes" in capsys.readouterr().out
