"""Run folders for what is done with trained policies: a small run, and an Atari agent that has learned nothing."""

import contextlib
from types import SimpleNamespace

import gin
import numpy as np

from agents.__main__ import main
from agents.commands.train import main as train
from agents.settings import Settings
from agents.storage.best import Best
from agents.workers import build
from tests.agents.quickstart import TINY, configured

# Outputs in units of their own, rewards times a quarter (the network clips what it is told of them at 1), a clipped
# head and one that is not.
BINDINGS = (
    "train.scaling = @scalings.return_out",
    "Heads.pairs = ((0.9, True), (0.99, False))",
    "train.updates = 30",
    "train.eval_interval = 5",
    "environments.make.max_episode_steps = 60",
    "Heads.reward_multiplier = 0.25",
)
NAMES = ("clipped_0.9", "unclipped_0.99")
CARTPOLE = ("train.env = 'CartPole-v1'", "RecurrentQNetwork.torso = @networks.MlpTorso")
# Of train.py, for a run of seconds.
_TRAINED = (
    *TINY,
    "RecurrentQNetwork.torso = @networks.MlpTorso",
    "RecurrentQNetwork.post_lstm_units = 8",
    "Heads.pairs = ((0.9, True), (0.99, False))",
    "train.checkpoint_interval = 10",
    "train.final_eval_rounds = 1",
)
FLAGS = ("--env=CartPole-v1", *(f"--gin_bindings={binding}" for binding in _TRAINED))
# Small grey frames in stacks of two.
ATARI = (
    "train.env = 'breakout'",
    "side = 84",
    "environments.make.img_height = %side",
    "environments.make.img_width = %side",
    "environments.make.grayscale = True",
    "environments.make.stack_num = 2",
    "environments.make.max_episode_steps = 80",
    "Heads.reward_multiplier = 0.25",
    "RecurrentQNetwork.torso = @networks.ConvTorso",
    "ConvTorso.channels = (4,)",
    "ConvTorso.kernel_sizes = (8,)",
    "ConvTorso.strides = (8,)",
    "ConvTorso.units = 16",
    "Heads.pairs = ((0.9, True), (0.99, False))",
    "RecurrentMultiHeadAgent.evaluation_epsilon = 0.05",
    "train.updates = 1",
)


def write_slim_run(folder, *bindings):
    """A run folder with nothing but what playing needs: a configuration, and the weights of an untrained agent."""
    folder.mkdir(parents=True)
    with configured(*bindings):
        (folder / "config.gin").write_text(gin.config_str())
        settings = Settings.from_gin()
        environment = build.build_eval_environment(settings)
        agent = build.build_agent(settings, environment)
        assert Best(folder).offer(7, np.array([1.0, 2.0]), agent.acting_variables)
        environment.close()
    return folder


def instead_of_building(run):
    """What `agents.run._built` can be replaced by: a run that calls this with its folder and its callback."""

    @contextlib.contextmanager
    def built(options, asked, folder, on_evaluation):
        yield contextlib.nullcontext(SimpleNamespace(run=lambda: run(folder, on_evaluation)))

    return built


def refusal(capsys, *argv):
    """What `python -m agents play` says when it refuses these arguments."""
    assert main(["play", *map(str, argv)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("python -m agents play: ") and "Traceback" not in err
    return err


def on_folder(command, root):
    """Gives one of the commands a run's folder; returns its exit code."""
    out = root.parent / "out"
    call, *argv = {
        "resume": (train, *FLAGS, "--updates=27", f"--root_dir={root}"),
        "play": (main, "play", str(root), "--episodes=1", "--max_steps=5"),
        "export": (main, "export", str(root), str(out)),
        "report": (main, "report", str(root), f"--output={out}.html"),
    }[command]
    try:
        return call(argv)
    finally:
        gin.clear_config()
