"""Trained policies to play, film and export."""

import contextlib
from types import SimpleNamespace

import gin
import numpy as np
import pytest

from agents import Agent
from agents.commands import play
from agents.commands.train import main as train
from agents.running.embedded import EmbeddedRun
from tests.agents.commands.small_runs import ATARI, BINDINGS, FLAGS, write_slim_run
from tests.agents.quickstart import configured


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """The folder of a finished run, and what was offered as best and is newest: (update, mean return, weights)."""
    root = tmp_path_factory.mktemp("run")
    offered = []
    with configured(*BINDINGS):
        (root / "config.gin").write_text(gin.config_str())
        with EmbeddedRun(root) as embedded:
            offer = embedded.evaluations.best.offer

            def noted(update, returns, variables):
                offered.append((update, np.mean(returns), [v.numpy() for v in variables]))
                return offer(update, returns, variables)

            embedded.evaluations.best.offer = noted
            embedded.run()
            newest = [variable.numpy() for variable in embedded.agent.network.variables]
    assert [update for update, *_ in offered] == [5, 10, 15, 20, 25, 30]
    return SimpleNamespace(root=root, offered=offered, newest=newest)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The folder of a small run that has come to its end; copy it."""
    root = tmp_path_factory.mktemp("runs") / "run"
    assert train([*FLAGS, "--updates=25", f"--root_dir={root}"]) == 0
    gin.clear_config()
    return root


@pytest.fixture
def atari(tmp_path):
    """A folder of pretrained agents, with one in it."""
    write_slim_run(tmp_path / "pretrained" / "small_breakout", *ATARI)
    return tmp_path / "pretrained"


@pytest.fixture
def agent(run):
    return Agent.load(run.root)


@pytest.fixture
def played():
    """Plays as `play.moments` does, in environments that are closed in the end."""

    def moments(agent, episodes, *args, num_envs=1, seed=0, **options):
        with contextlib.closing(agent.make_environment(num_envs, seed)) as environment:
            return list(play.moments(agent, environment, episodes, *args, **options))

    return moments
