"""What train.py makes of flags, files and bindings; runs themselves are in tests/agents/running."""

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys

import gin
import pytest

from agents import run as program
from agents.commands.train import main, parse_flags
from agents.errors import EnvironmentFault, RunFolderError
from agents.options import TrainOptions
from agents.scalings import ReturnBasedScaling, Scaling
from agents.storage.run_folder import REPOSITORY
from agents.workers.results import Result
from tests.agents.commands.small_runs import instead_of_building


@pytest.fixture
def configs(tmp_path, monkeypatch):
    """A folder of configurations, seen from an empty folder."""
    configs = tmp_path / "repository" / "configs"
    (configs / "scaling").mkdir(parents=True)
    for name, text in {
        "base": "train.batch_size = 5\ntrain.updates = 100",
        "cartpole": 'train.env = "CartPole-v1"',
        "quickstart": "\n".join(
            f'include "configs/{part}.gin"' for part in ("base", "scaling/return", "cartpole")
        ),
        "atari": 'include "configs/base.gin"\nENV = "pong"\ntrain.env = %ENV',
        "scaling/none": "train.batch_size = 1\ntrain.scaling = @scalings.none",
        "scaling/return": "train.batch_size = 10\ntrain.scaling = @scalings.return_based",
    }.items():
        (configs / f"{name}.gin").write_text(text)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return configs


@pytest.fixture
def configured(configs):
    """Flags -> settings, and the name of the run's folder."""

    def configured(*argv):
        options = TrainOptions.from_flags(parse_flags(argv, configs))
        asked = program.configure(options, configs)
        return asked.train, program._root_dir(options, asked).removeprefix("runs/")

    return configured


@pytest.fixture
def refusal(configs, capsys, tmp_path):
    """Flags -> what is said of them, before anything is written."""

    def refusal(*argv):
        assert main(argv, configs) == 2, argv
        out, err = capsys.readouterr()
        assert out == "" and err.startswith("train.py: ") and "Traceback" not in err
        assert "In call to configurable" not in err
        assert list((tmp_path / "elsewhere").iterdir()) == []
        return err

    return refusal


@pytest.fixture
def command(configs, monkeypatch, capsys):
    """The command line around a stand-in for a run: what it returns or raises is set as `command.outcome`."""

    def command(*argv):
        code = main(argv, configs)
        return code, *capsys.readouterr()

    def run(folder, _):
        assert not (folder / "finished.json").exists()
        if isinstance(command.outcome, BaseException):
            raise command.outcome
        return command.outcome

    command.builds = program._built
    monkeypatch.setattr(program, "_built", instead_of_building(run))
    command.outcome = Result(10**9, 0, 0.0, None)
    return command


def test_bindings_win_over_flags_and_flags_over_files(configured):
    settings, folder = configured()
    assert (settings.env, settings.updates, settings.seed, settings.batch_size) == ("CartPole-v1", 100, 0, 10)
    assert folder == "quickstart-CartPole_v1-return-seed0"
    flags = ["--config=atari", "--scaling=none", "--updates=7", "--seed=3", "--strategy=mirrored"]
    settings, folder = configured(*flags, "--env=breakout")
    assert (settings.env, settings.updates, settings.seed, settings.batch_size) == ("breakout", 7, 3, 1)
    assert (folder, settings.strategy) == ("atari-breakout-none-seed3", "mirrored")
    own = ["ENV = 'minatar/breakout'", "train.seed = 5", "train.batch_size = 2"]
    settings, folder = configured(*flags, *(f"--gin_bindings={binding}" for binding in own))
    assert (settings.env, settings.updates, settings.seed, settings.batch_size) == (
        "minatar/breakout",
        7,
        5,
        2,
    )
    assert folder == "atari-minatar_breakout-none-seed5"


def test_scalings_are_found_by_name_or_file(configured, tmp_path):
    @gin.configurable(module="my_module")
    def my_scaling(num_heads=1): ...

    (tmp_path / "elsewhere" / "mine.gin").write_text("train.scaling = @scalings.clip\ntrain.batch_size = 7")
    pop_art, none, bind = "--scaling=pop_art", "--scaling=none", "--gin_bindings=train.scaling = "
    for name, bound, batch_size, *arguments in (
        ("pop_art", "@scalings.pop_art", 10, pop_art),
        ("error", "@scalings.error_based", 10, "--scaling=error"),
        ("error", "@scalings.error_based", 10, "--scaling=error_based"),
        ("mine", "@scalings.clip", 7, "--scaling=mine.gin"),
        ("two_hot", "@scalings.two_hot", 10, f"{bind}@scalings.two_hot"),
        ("my_scaling", "@my_module.my_scaling", 1, none, f"{bind}@my_module.my_scaling"),
        ("my_scaling", "%S", 1, none, f"{bind}%S", "--gin_bindings=S = @my_scaling"),
        ("clip", "@scalings.clip", 10, pop_art, f"{bind}@scalings.clip"),
        ("pop_art", "@scalings.pop_art", 2, pop_art, "--gin_bindings=train.batch_size = 2"),
    ):
        settings, folder = configured(*arguments)
        assert folder == f"quickstart-CartPole_v1-{name}-seed0", arguments
        found = str(gin.query_parameter("train.scaling"))
        assert (found, settings.batch_size) == (bound, batch_size), arguments


def test_a_scaling_of_ones_own_has_a_folder_of_its_own_whatever_it_is_derived_from(configured):
    for base in (Scaling, ReturnBasedScaling):
        name = f"Mine{base.__name__}"
        gin.configurable(name, module="scalings")(type(name, (base,), {}))
        _, folder = configured(f"--gin_bindings=train.scaling = @scalings.{name}")
        assert folder == f"quickstart-CartPole_v1-{name}-seed0"


def test_includes_mean_this_repository_even_from_within_another_one(configured, tmp_path):
    other = tmp_path / "elsewhere" / "configs"
    other.mkdir()
    (other / "base.gin").write_text("train.seed = 13")
    assert configured()[0].seed == 0


def test_a_file_is_included_from_beside_the_one_that_names_it(configured, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/part.gin").write_text("train.seed = 17")
    (tmp_path / "mine/mine.gin").write_text("include 'configs/quickstart.gin'\ninclude 'part.gin'")
    assert configured(f"--config={tmp_path / 'mine/mine.gin'}")[0].seed == 17


def test_what_there_is_not_is_refused_with_what_there_is(refusal):
    for argument, answer in (
        ("--config=quikstart", "There is no config 'quikstart'. Did you mean quickstart?"),
        ("--config=nothing_like_it", "There is: atari, base, cartpole, quickstart."),
        ("--scaling=Retrun", "There is no scaling 'Retrun'. Did you mean return"),
        ("--env=pnog", "did you mean 'pong'"),
        ("--env=Pendulum-v1", "expected a Discrete action space"),
        ("--config=base", "expected the name of an environment (--env=NAME). Write for example: train.env"),
        (
            "--gin_bindings=train.num_envs=0",
            "train.num_envs = 0: expected a whole number from 1 to 100,000 (env",
        ),
        ("--gin_bindings=train.scaling=@networks.MlpTorso", "train.scaling = @scalings.return_based"),
        ("--gin_bindings=scalings.return_based.half_life=0", "of at least 1 (environment steps), or None"),
        ("--gin_bindings=MlpTorso.units=64", "MlpTorso.units = 64: expected a tuple of whole numbers"),
        (
            "--gin_bindings=train.eval_repeat_action_probability = 0.25",
            "train.eval_repeat_action_probability: for Atari and MinAtar, not for 'CartPole-v1'; take one",
        ),
        ("--gin_bindings=updates = 5", "no binding refers to %updates. Write NAME.PARAMETER = VALUE"),
        ("--gin_bindings=reward_input = 'rms'", "Did you mean RecurrentQNetwork.reward_input?"),
        ("--updtes=5", "There is no flag --updtes. Did you mean --updates?"),
        ("stray", "'stray' is no flag. Did you mean --config=stray?"),
        ("--scaling=", "scaling is empty"),
        ("--env_kwargs=map_name=8x8", "8x8. Write for example: --env_kwargs="),
        ("--env_kwargs=1, 2", "expected NAME=VALUE"),
        ("--env=FrozenLake-v1 --env_kwargs=slippery=True", "argument 'slippery'; it takes"),
        ("--replay=ring", "expected one of 'local', 'ray', 'reverb', or None"),
        ("--replay=ray", "is of several processes"),
        ("--replay=local --collectors=2", "is of one process:"),
        ("--collectors=2 --gin_bindings=train.steps_per_update=4", "paces a run in one process"),
        ("--updates=0", "argument --updates: must be a whole number of at least 1, not '0'."),
        ("--seed", "argument --seed: expected one argument"),
        ("--root_dir=gs://b/x", "argument --root_dir: gs://b/x is an address"),
        ("--root_dir=/dev/null/x", "/dev/null/x"),
        (
            "--gin_bindings=train.baatch_size=1",
            "Did you mean train.batch_size",
        ),
        ("--gin_bindings=trian.seed=1", "No configurable matching 'trian'"),
        ("--gin_bindings=Replays.capacity=3", "Did you mean Replay?"),
        ("--gin_bindings=train.seed = @trian", "No configurable matching reference '@trian'"),
        (
            "--gin_bindings=train.seed = %SEED",
            "The macro %SEED has no value. Add --gin_bindings='SEED = ...'",
        ),
        ("--gin_bindings=train.seed =", "This is not gin: train.seed ="),
        ("--gin_bindings=train.seed = abc", "This is not gin: train.seed = abc"),
        ("--gin_bindings=train.seed = [1,", "EOF in multi-line statement"),
        ("--gin_bindings=include 'configs/bse.gin'", "configs/bse.gin cannot be read: No such file"),
        ("--gin_bindings=import nowhere", "No module named 'nowhere'"),
        ("--gin_bindings=Replay.capacity = 90_000_000_000", "Lower Replay.capacity: "),
    ):
        assert answer in refusal(*(argument.split() if " --" in argument else [argument])), argument


def test_what_a_users_module_raises_is_said(refusal, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for text, answer in (
        ("import nothing_there", "No module named 'nothing_there'"),
        ("def f(:", "invalid syntax"),
        ("unknown", "name 'unknown' is not defined"),
        ("raise SystemExit(0)", "SystemExit: 0"),
    ):
        (tmp_path / "its_module.py").write_text(text)
        importlib.invalidate_caches()
        assert answer in refusal("--gin_bindings=import its_module"), text


def test_a_mistake_in_a_file_is_refused_with_the_file(refusal, tmp_path):
    mine = tmp_path / "mine.gin"
    for text, answer in (
        ("train.seed = 1\n\ntrain.seed = = 3", f"{mine}: Unable to parse value. (line 3)"),
        (
            "train.seed = 1\ninclude 'configs/base.gin'\n\ntrain.seed = = 3",
            f"{mine}: Unable to parse value. (line 4)",
        ),
        ("train.seed = 1\ntrain.seed = (1,", f"{mine}: ('EOF in multi-line"),
        ("include 'nothing.gin'", "nothing.gin cannot be read"),
        (f"include '{mine}'", f"{mine} includes itself."),
        ("train.sead = 3", f"{mine}: "),
    ):
        mine.write_text(text)
        assert answer in refusal(f"--config={mine}"), text
    mine.write_bytes(b"\xff\xfe\x00")
    assert "mine.gin cannot be read" in refusal(f"--config={mine}")


RMS = ("--gin_bindings=RecurrentQNetwork.reward_input = 'rms'", "--gin_bindings=Heads.pairs = [(0.9, True)]")


def test_what_cannot_be_built_leaves_no_folder_and_anew_the_old_one(command, tmp_path, monkeypatch):
    run = tmp_path / "elsewhere" / "run"
    assert command("--root_dir=run")[0] == 0
    with monkeypatch.context() as context, socket.socket() as taken:
        context.setattr(program, "_built", command.builds)
        taken.bind(("", 0))
        port = f"--gin_bindings=Replay.port = {taken.getsockname()[1]}"
        for why, *flags in (
            ("expected a Discrete action space", "--env=Pendulum-v1"),
            ("TensorFlow sees no TPU", "--strategy=tpu"),
            ("takes its statistics from a head of unclipped rewards", *RMS),
            ("takes its statistics from a head of unclipped rewards", *RMS, "--collectors=1"),
            ("without a token", "--cluster=127.0.0.1:9"),
            ("cannot be had", "--replay=reverb", port),
            ("cannot be had", "--replay=reverb", "--collectors=1", port),
        ):
            if not importlib.util.find_spec("reverb" if "--replay=reverb" in flags else "ray"):
                continue
            for folder in (["--root_dir=run", "--anew"], ["--root_dir=new"]):
                code, out, err = command(*folder, *flags)
                assert (code, out) == (2, "") and why in err, (flags, err)
                assert list(run.parent.iterdir()) == [run]
    code, out, _ = command("--root_dir=run", "--anew", "--seed=3")
    assert code == 0 and out.startswith(f"What was in run is now in {run}.1")


def test_where_the_run_lies_is_said(command, tmp_path):
    code, printed, _ = command()
    folder = tmp_path / "elsewhere/runs/quickstart-CartPole_v1-return-seed0"
    assert code == 0 and (folder / "config.gin").exists()
    assert printed.startswith(f"Run folder: {folder}\nTo watch it: ")
    assert printed.endswith(
        f"tensorboard --logdir {folder}\nThen open:   http://localhost:6006/#custom_scalars\n"
    )


def test_a_signal_shows_in_the_exit_code_and_what_the_next_start_does_is_said(command, tmp_path):
    begins = "There is no checkpoint yet: the same command starts from the beginning.\n"
    command.outcome = Result(5, 0, 0.0, signal.SIGUSR1)
    code, _, err = command("--root_dir=run")
    assert code == 128 + signal.SIGUSR1 and err == f"Stopped by SIGUSR1, exit code 138. {begins}"
    command.outcome = KeyboardInterrupt()
    code, out, err = command("--root_dir=run")
    assert code == 130 and err == f"Stopped by SIGINT, exit code 130. {begins}"
    assert out.startswith("run holds no checkpoint: the run starts from the beginning\nRun folder: ")
    (tmp_path / "elsewhere/run/checkpoints/5").mkdir(parents=True)
    (tmp_path / "elsewhere/run/checkpoints/5/extra.json").touch()
    assert command("--root_dir=run")[2].endswith("The same command goes on from the last checkpoint.\n")


def test_a_run_that_has_made_what_is_asked_for_is_done(command, tmp_path):
    run = tmp_path / "elsewhere" / "run"
    assert command("--root_dir=run", "--updates=12")[0] == 0
    assert json.loads((run / "finished.json").read_text()) == {"updates": 12, "head": ""}
    command.outcome = AssertionError("it has begun")
    for asked in (8, 12):
        code, out, _ = command("--root_dir=run", f"--updates={asked}")
        assert (code, out.partition(" updates")[0]) == (0, f"Already done: run has made {asked}")
    code, _, err = command("--root_dir=run", "--updates=8", "--seed=2")
    assert code == 2 and "another configuration" in err
    # Ended by its environment steps: more updates would not be made.
    command.outcome = Result(5, 0, 0.0, None)
    assert command("--root_dir=steps", "--updates=7")[0] == 0
    (tmp_path / "elsewhere/steps/checkpoints/5").mkdir(parents=True)
    (tmp_path / "elsewhere/steps/checkpoints/5/extra.json").touch()
    command.outcome = AssertionError("it has begun")
    code, out, _ = command("--root_dir=steps", "--updates=9")
    assert code == 0 and "train.environment_steps" in out and "--updates" not in out
    # Stopped: its last evaluation is missing.
    command.outcome = Result(5, 0, 0.0, signal.SIGTERM)
    assert command("--root_dir=run", "--updates=13")[0] == 128 + signal.SIGTERM
    assert not (run / "finished.json").exists()


def test_a_start_that_its_damaged_checkpoints_refuse_leaves_the_folder_as_it_is(
    command, tmp_path, monkeypatch
):
    run = tmp_path / "elsewhere" / "run"
    assert command("--root_dir=run", "--updates=12")[0] == 0
    (run / "checkpoints/12").mkdir(parents=True)
    (run / "checkpoints/12/extra.json").write_text("{}")

    def contents():
        return {path: path.read_bytes() for path in run.rglob("*") if path.is_file() and path.name != "lock"}

    before = contents()
    assert run / "finished.json" in before
    monkeypatch.setattr(program, "_built", command.builds)
    for flags in ([], ["--collectors=1"]) if importlib.util.find_spec("ray") else ([],):
        code, out, err = command("--root_dir=run", "--updates=20", *flags)
        assert (
            code == 2
            and out == ""
            and err.startswith(f"train.py: The checkpoint {run}/checkpoints/12 cannot")
        )
        assert contents() == before


def test_a_run_is_synced_where_it_is_asked_for(command, tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(program.weights_and_biases, "require_wandb", lambda: None)
    monkeypatch.setattr(
        program.weights_and_biases,
        "synced",
        lambda folder, settings: contextlib.nullcontext(synced.append(folder)),
    )
    assert command("--root_dir=plain")[0] == command("--root_dir=shown", "--wandb")[0] == 0
    assert synced == [tmp_path / "elsewhere" / "shown"]


def test_only_a_bug_keeps_its_traceback(command, monkeypatch):
    monkeypatch.setenv("RBS_TF_VERBOSE", "")
    command.outcome = ValueError("a mistake")
    code, _, said = command()
    assert code == 1 and "raise command.outcome" in said and "this is a bug of rbs_tf" in said
    for error in (EnvironmentFault("it is broken"), RunFolderError("it is broken")):
        for verbose in (False, True):  # for those who ask
            command.outcome = error
            code, _, said = command(*["--verbose"] * verbose)
            assert code == 1 and ("Traceback" in said) == verbose
            assert said.endswith("train.py: it is broken\n")


def test_the_environments_are_listed_by_family(command):
    code, out, _ = command("--list_envs")
    assert code == 0
    assert "Atari (57 games):\n  alien, amidar" in out and "minatar/space_invaders" in out
    assert max(map(len, out.splitlines())) <= 100


def test_a_reader_that_goes_away_is_no_mistake(tmp_path):
    reads, writes = os.pipe()
    os.close(reads)
    program = [sys.executable, str(REPOSITORY / "train.py"), "--list_envs"]
    done = subprocess.run(program, cwd=tmp_path, stdout=writes, stderr=subprocess.PIPE)
    os.close(writes)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


WITHOUT_TENSORFLOW = """
import contextlib, io, runpy, sys
program, repository = sys.argv[1:3]
sys.path.insert(0, repository)
for argument, code, answer in (
    ("--help", 0, "python train.py --config=atari_ten_heads --env=pong --updates=20"),
    ("--list_envs", 0, "zaxxon"),
    ("--updates=many", 2, "whole number"),
    ("--env=pnog", 2, "did you mean 'pong'"),
    ("--env=in_this_folder:Mine-v1", 2, "did you mean 'in_this_folder:Mine-v0'"),
):
    sys.argv, said = ["train.py", argument], io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            runpy.run_path(program, run_name="__main__")
        except SystemExit as end:
            assert (end.code or 0) == code, (argument, end.code)
    assert answer in said.getvalue() and "Traceback" not in said.getvalue(), (argument, said.getvalue())
    assert "tensorflow" not in sys.modules, argument
"""


def test_refusals_do_not_wait_for_tensorflow(tmp_path):
    (tmp_path / "in_this_folder.py").write_text("import gymnasium; gymnasium.register('Mine-v0', 'x:X')")
    program = [sys.executable, "-c", WITHOUT_TENSORFLOW, str(REPOSITORY / "train.py"), str(REPOSITORY)]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
