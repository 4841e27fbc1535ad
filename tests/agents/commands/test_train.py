import importlib
import json
import os
import signal
import subprocess
import sys
from typing import NamedTuple

import gin
import pytest

import rbs_tf.scalings  # noqa: F401  registers what is named here
from agents.commands.train import main
from agents.errors import EnvironmentFault, RunFolderError
from agents.storage.run_folder import REPOSITORY


class Call(NamedTuple):
    root_dir: str
    env: str
    updates: int
    seed: int
    rate: float
    strategy: str = "default"


class Result(NamedTuple):
    stopped_by: int | None = None
    updates: int = 10**9
    head: str = ""


class Command:
    """The command line around a stand-in for the training loop, started from an empty folder."""

    def __init__(self, run, configs, capsys):
        self.run, self._configs, self._capsys = run, configs, capsys
        self.calls: list[Call] = []

    def __call__(self, *argv: str) -> int:
        return main(argv, self.run, self._configs)

    def refusal(self, *argv: str) -> str:
        """Runs what has to be refused before anything is started, and returns the message."""
        self._capsys.readouterr()
        assert self(*argv) == 2
        assert self.calls == []
        out, err = self._capsys.readouterr()
        assert out == "" and err.startswith("train.py: ")
        assert "Traceback" not in err and "In call to configurable" not in err
        return err


@pytest.fixture
def command(no_train, tmp_path, monkeypatch, capsys):
    configs = tmp_path / "repository" / "configs"
    (configs / "scaling").mkdir(parents=True)
    for name, text in {
        "base": "train.rate = 0.5",
        "cartpole": 'train.env = "CartPole-v1"',
        "quickstart": "\n".join(
            f'include "configs/{part}.gin"' for part in ("base", "scaling/return", "cartpole")
        ),
        "atari": 'include "configs/base.gin"\nENV = "pong"\ntrain.env = %ENV',
        "scaling/none": "train.rate = 0.0",
        "scaling/return": "train.rate = 1.0\ntrain.scaling = @scalings.return_based",
    }.items():
        (configs / f"{name}.gin").write_text(text)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    @gin.configurable(module="command_line_test")
    def train(
        root_dir, env=gin.REQUIRED, updates=100, seed=0, rate=0.1, strategy="default", scaling=None,
        eval_repeat_action_probability=None,
    ):  # fmt: skip
        started.calls.append(Call(root_dir, env, updates, seed, rate, strategy))
        return Result()

    started = Command(train, configs, capsys)
    return started


def test_without_arguments_the_quickstart_runs(command, tmp_path, capsys):
    assert command() == 0
    folder = str(tmp_path / "elsewhere" / "runs" / "quickstart-CartPole_v1-return-seed0")
    assert command.calls == [Call(folder, "CartPole-v1", 100, 0, 1.0)]
    printed = capsys.readouterr().out
    assert printed.startswith(f"Run folder: {folder}\nTo watch it: ")
    assert printed.endswith(
        f"tensorboard --logdir {folder}\nThen open:   http://localhost:6006/#custom_scalars\n"
    )


def test_flags_are_shorthands_for_bindings_and_name_the_folder(command):
    """Bindings win over flags, and flags over files; what gin says names the folder, whoever has said it."""
    flags = ["--config=atari", "--scaling=none", "--updates=7", "--seed=3", "--strategy=mirrored"]
    assert command(*flags, "--env=breakout") == 0
    own = ["ENV = 'minatar/breakout'", "train.seed = 5", "train.rate = 0.25"]
    assert command(*flags, *(f"--gin_bindings={binding}" for binding in own)) == 0
    first, second = command.calls
    assert first.root_dir.endswith("/runs/atari-breakout-none-seed3")
    assert first[1:] == ("breakout", 7, 3, 0.0, "mirrored")
    assert second.root_dir.endswith("/runs/atari-minatar_breakout-none-seed5")
    assert second[1:] == ("minatar/breakout", 7, 5, 0.25, "mirrored")


def test_a_scaling_is_found_by_its_name_or_file_and_names_the_folder_if_it_runs(command, tmp_path):
    """One without settings too, a file anywhere, and a user's own."""

    @gin.configurable(module="my_module")
    def my_scaling(num_heads=1): ...

    (tmp_path / "elsewhere" / "mine.gin").write_text("train.scaling = @scalings.clip\ntrain.rate = 7.0")
    pop_art, none, bind = "--scaling=pop_art", "--scaling=none", "--gin_bindings=train.scaling = "
    for name, bound, rate, *arguments in (
        ("pop_art", "@scalings.pop_art", 1.0, pop_art),
        ("error", "@scalings.error_based", 1.0, "--scaling=error"),
        ("error", "@scalings.error_based", 1.0, "--scaling=error_based"),
        ("mine", "@scalings.clip", 7.0, "--scaling=mine.gin"),
        ("two_hot", "@scalings.two_hot", 1.0, f"{bind}@scalings.two_hot"),
        ("my_scaling", "@my_module.my_scaling", 1.0, f"{bind}@my_module.my_scaling"),
        ("my_scaling", "@my_module.my_scaling", 0.0, none, f"{bind}@my_module.my_scaling"),
        ("my_scaling", "@my_scaling()", 0.0, none, f"{bind}@my_scaling()"),
        ("my_scaling", "%S", 0.0, none, f"{bind}%S", "--gin_bindings=S = @my_scaling"),
        ("clip", "@scalings.clip", 1.0, pop_art, f"{bind}@scalings.clip"),
        ("pop_art", "@scalings.pop_art", 2.0, pop_art, "--gin_bindings=train.rate = 2.0"),
    ):
        assert command("--anew", *arguments) == 0
        call, found = command.calls.pop(), str(gin.query_parameter("train.scaling"))
        assert call.root_dir.endswith(f"/runs/quickstart-CartPole_v1-{name}-seed0"), arguments
        assert (found, call.rate) == (bound, rate), arguments


def test_includes_mean_this_repository_even_from_within_another_one(command, tmp_path):
    other = tmp_path / "elsewhere" / "configs"
    other.mkdir()
    (other / "base.gin").write_text("train.seed = 13")
    assert command() == 0
    assert command.calls[0].seed == 0


def test_what_there_is_not_is_refused_and_the_answer_says_what_there_is(command, tmp_path):
    for argument, answer in (
        ("--config=quikstart", "There is no config 'quikstart'. Did you mean quickstart?"),
        ("--config=nothing_like_it", "There is: atari, base, cartpole, quickstart."),
        ("--scaling=Retrun", "There is no scaling 'Retrun'. Did you mean return"),
        ("--scaling=pop_arts", "There is no scaling 'pop_arts'. Did you mean pop_art"),
        ("--env=pnog", "did you mean 'pong'"),
        ("--env=Pendulum-v1", "expected a Discrete action space"),
        ("--config=base", "Add --env=..."),
        (
            "--gin_bindings=train.eval_repeat_action_probability = 0.25",
            "train.eval_repeat_action_probability=0.25 works with the plain names of Atari and MinAtar",
        ),
        ("--gin_bindings=train.env = 'breakuot'", "did you mean 'breakout'"),
        ("--updtes=5", "There is no flag --updtes. Did you mean --updates?"),
        ("stray", "'stray' is no flag. Did you mean --config=stray?"),
        ("--updates=0", "argument --updates: must be a whole number of at least 1, not '0'."),
        ("--seed=-1", "argument --seed: must be a whole number of at least 0, not '-1'."),
        ("--seed", "argument --seed: expected one argument"),
        ("--root_dir=gs://b/x", "argument --root_dir: gs://b/x is an address"),
        ("--gin_bindings=train.raet = 1", "doesn't have a parameter named 'raet'"),
        ("--gin_bindings=train.raet = 1", "Did you mean rate?"),
        ("--gin_bindings=trian.rate = 1", "No configurable matching 'trian'.\n"),
        ("--gin_bindings=trian.rate = 1", "Did you mean train"),
        ("--gin_bindings=train.rate = @trian", "Did you mean train"),
        ("--gin_bindings=train.rate = %RATE", "has no value. Add --gin_bindings='RATE = ...'"),
        ("--gin_bindings=train.rate =", "This is not gin: train.rate =\n"),
        ("--gin_bindings=include 'configs/bse.gin'", "Unable to open file: configs/bse.gin"),
        ("--gin_bindings=import nowhere", f"Put nowhere.py into {REPOSITORY}, beside train.py, or"),
        ("--gin_bindings=from no.where import a", "Put no.py into"),
        ("--gin_bindings=from agents import bandits", "Put agents/bandits.py into"),
        ("--gin_bindings=train.rate = abc", "'abc' is no value. Write NAME.PARAMETER = VALUE,"),
        ("--gin_bindings=train.rate = [1, -x.y]", "\n'-x' is no value."),
        ("--gin_bindings=train.rate = 2*3", "train.rate = 2*3\nSomething follows the value. Write"),
        ("--gin_bindings=train.rate = [1,", "train.rate = [1,\nA bracket or a quote is never closed. Write"),
        ("--cluster=\udcff", "--cluster=\\udcff is no text in UTF-8."),
        ("--gin_bindings=train.env = %gin.REQUIRED", "train.env set to `%gin.REQUIRED`"),
    ):
        said = command.refusal(argument)
        assert answer in said and "<ast." not in said, argument
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_what_keeps_an_environment_from_being_made_is_said_with_its_settings(command):
    longest = f"environments.make.max_episode_steps = {2**62}"
    assert f"\nWith {longest}\n" in command.refusal("--config=atari", f"--gin_bindings={longest}")


def test_a_module_that_takes_a_name_of_this_program_is_refused(command, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "takes_it.py").write_text("import gin\n\n@gin.configurable\ndef pop_art(): ...")
    try:
        said = command.refusal("--gin_bindings=import takes_it")
    finally:
        gin.config._REGISTRY.pop("takes_it.pop_art")
    assert "'pop_art' is 'takes_it.pop_art', 'scalings.pop_art'. Give yours another name" in said


def test_what_a_users_module_lacks_is_said_by_its_own_name(command, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for text, answer in (
        ("import nothing_there", "is there, and what it imports is not: pip install nothing_there"),
        ("def f(:", f"{tmp_path}/its_module.py, line 1: "),
        ("unknown", "name 'unknown' is not defined"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("def f(): f()\nf()", "maximum recursion depth"),
    ):
        (tmp_path / "its_module.py").write_text(text)
        importlib.invalidate_caches()
        assert answer in command.refusal("--gin_bindings=import its_module"), text


def test_a_mistake_in_a_file_is_refused_with_file_and_line(command, tmp_path):
    (tmp_path / "elsewhere" / "mine.gin").write_text("train.rate = 1\n\ntrain.seed = = 3")
    assert "elsewhere/mine.gin, line 3" in command.refusal("--config=mine.gin")
    for text, answer in (
        ("train.rate = 1\ntrain.seed = (1,", "elsewhere/mine.gin, line 2\nA bracket"),
        ("include 'nothing.gin'", "nothing.gin"),
        ("include '/dev/full'", "/dev/full"),
        ("\0\0", "mine.gin"),
        ("train.rate = @gin.macro", "gin.macro"),
    ):
        (tmp_path / "elsewhere" / "mine.gin").write_text(text)
        assert answer in command.refusal("--config=mine.gin"), text


def test_a_signal_that_stopped_the_run_shows_in_the_exit_code(command, capsys):
    for stopped_by, code, words in (
        (signal.SIGINT, 130, "Stopped by SIGINT, exit code 130. The same command goes on"),
        (signal.SIGTERM, 143, "Stopped by SIGTERM, exit code 143. "),
        (signal.SIGUSR1, 138, "Stopped by SIGUSR1, exit code 138. "),
        (signal.SIGHUP, 129, "Stopped by SIGHUP, exit code 129. "),
        (None, 0, ""),
    ):
        command.run = lambda root_dir, stopped_by=stopped_by: Result(stopped_by)
        assert command() == code
        assert capsys.readouterr().err.startswith(words), stopped_by


def test_the_folder_says_that_a_run_has_finished_until_it_is_started_again(command, tmp_path):
    finished = tmp_path / "elsewhere" / "run" / "finished.json"
    assert command("--root_dir=run", "--updates=7") == 0
    assert json.loads(finished.read_text()) == {"updates": 7, "head": ""}

    def stopped(root_dir):
        assert not finished.exists()
        return Result(signal.SIGTERM)

    command.run = stopped
    assert command("--root_dir=run", "--updates=9") == 128 + signal.SIGTERM
    assert not finished.exists()


def test_a_run_that_has_made_what_is_asked_for_is_done_already(command, tmp_path, capsys):
    run = tmp_path / "elsewhere" / "run"
    assert command("--root_dir=run", "--updates=12") == 0
    before = sorted((path.name, path.read_text()) for path in run.iterdir())
    for asked in (8, 12):
        capsys.readouterr()
        assert command("--root_dir=run", f"--updates={asked}") == 0
        assert capsys.readouterr().out.startswith(
            f"Already done: run has made {asked} updates, and {asked} are"
        )
    assert sorted((path.name, path.read_text()) for path in run.iterdir()) == before
    assert command("--root_dir=run", "--updates=8", "--seed=2") == 2
    assert "another configuration" in capsys.readouterr().err
    # Stopped at 12 of more: less is done, its last evaluation is not.
    (run / "finished.json").unlink()
    (run / "checkpoints" / "12").mkdir(parents=True)
    (run / "checkpoints" / "12" / "manifest.json").touch()
    (run / "checkpoints" / "99").mkdir()  # nobody's checkpoint
    for asked, calls in ((8, 1), (12, 2)):
        assert command("--root_dir=run", f"--updates={asked}") == 0
        assert len(command.calls) == calls, asked
    # Ended by its environment steps: more updates would not be made.
    command.run = lambda root_dir: Result(updates=5)
    assert command("--root_dir=steps", "--updates=7") == 0
    command.run = None
    assert command("--root_dir=steps", "--updates=9") == 0
    (tmp_path / "elsewhere" / "steps" / "checkpoints" / "5").mkdir(parents=True)
    (tmp_path / "elsewhere" / "steps" / "checkpoints" / "5" / "manifest.json").touch()
    capsys.readouterr()
    assert command("--root_dir=steps", "--updates=9") == 0
    said = capsys.readouterr().out
    assert "5 updates in all its train.environment_steps" in said and "--updates" not in said


def test_what_ends_a_run_is_said_and_only_a_bug_keeps_its_traceback(command, capsys, monkeypatch):
    def ends_with(error, *argv):
        def run(root_dir):
            raise error

        command.run = run
        return command(*argv), capsys.readouterr().err

    monkeypatch.setenv("RBS_TF_VERBOSE", "")
    code, said = ends_with(KeyboardInterrupt())
    assert code == 130 and said.startswith("Stopped by SIGINT, ")
    code, said = ends_with(ValueError("a mistake"))
    assert code == 1 and "raise error" in said and "This is a bug of rbs_tf, not of yours" in said
    for error in (EnvironmentFault("it is broken"), RunFolderError("it is broken")):
        for verbose in (False, True):  # for those who ask
            code, said = ends_with(error, *["--verbose"] * verbose)
            assert code == 1 and ("Traceback" in said) == verbose
            assert said.endswith("train.py: it is broken\n")


def test_the_environments_are_listed_by_family(command, capsys):
    assert command("--list_envs") == 0
    out = capsys.readouterr().out
    assert "Atari (57 games):\n  alien, amidar" in out and "minatar/space_invaders" in out
    assert max(map(len, out.splitlines())) <= 100


def test_a_reader_that_goes_away_is_no_mistake(tmp_path):
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, str(REPOSITORY / "train.py"), "--list_envs"]
    done = subprocess.run(command, cwd=tmp_path, stdout=writes, stderr=subprocess.PIPE)
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


def test_help_and_refusals_do_not_wait_for_tensorflow(tmp_path):
    program = [sys.executable, "-c", WITHOUT_TENSORFLOW, str(REPOSITORY / "train.py"), str(REPOSITORY)]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
