"""The whole system in one process: real environments, real replays, real files."""

import os
import re
import shutil
import signal
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from packaging.version import Version

from agents.commands.train import main
from agents.errors import UsageError
from agents.replay import backends
from agents.running.embedded import EmbeddedRun
from tests.agents.quickstart import COMPILED, REPOSITORY, command, configured, scalars

FINISHED = (
    "Heads.pairs = ((0.99, False),)",
    "train.eval_interval = 10",
    "train.final_eval_rounds = 1",
    "MlpTorso.units = (8,)",
    COMPILED,
)
# Python in which Reverb cannot be imported, and train.py.
WITHOUT_REVERB = (
    "import runpy, sys; sys.modules['reverb'] = None; runpy.run_path('train.py', run_name='__main__')"
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folder and output of a run in a Python without Reverb."""
    root = tmp_path_factory.mktemp("runs") / "run"
    python, _, *flags = command(root, bindings=FINISHED)
    result = subprocess.run(
        [python, "-c", WITHOUT_REVERB, *flags],
        cwd=REPOSITORY,
        env=os.environ | {"XLA_FLAGS": f"--xla_dump_to={root.parent / 'compiled'}"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return root, result


def test_a_run_is_quiet_and_says_what_it_does(finished):
    root, result = finished
    if Version(tf.__version__) >= Version("2.16"):  # which says this before anybody can stop it
        said = r"^([IWE]0000 |WARNING: All log messages before absl).*\n"
        result.stderr = re.sub(said, "", result.stderr, flags=re.M)
    assert result.stderr == ""
    assert "Set, but nothing in this run reads it: MlpTorso.units." in result.stdout
    assert "tensorboard --logdir" in result.stdout and "GB when full" in result.stdout
    assert "\ncompiling the update ...  updates 0/20, " in result.stdout
    assert "updates 20/20, " in result.stdout
    episodes = (root / "eval/episodes.csv").read_text().splitlines()[1:]
    assert [episode.split(",")[0] for episode in episodes] == ["10", "10", "20", "20"]
    operative = (root / "operative_config.gin").read_text()
    assert "train.seed = 0" in operative and "return_based" in operative and "RecurrentQNetwork" in operative
    assert "--updates=20" in (root / "command.txt").read_text()
    assert (root / "checkpoints/20/replay/table.json").exists()


def test_the_update_is_compiled_once_though_it_is_compiled_ahead(finished):
    modules = [path.name for path in finished[0].with_name("compiled").glob("*.before_optimizations.txt")]
    for name in ("__gradients_", "apply_gradients_"):
        assert sum(name in module for module in modules) == 1


def test_the_statistics_log_holds_only_what_came_after_the_oldest_checkpoint(finished):
    root, _ = finished
    oldest = min(int(path.name) for path in (root / "checkpoints").iterdir())
    assert oldest > 0 and [path.name for path in (root / "statistics").iterdir()] == [f"{oldest}-1.tfrecord"]


def test_what_tensorboard_shows_of_sigma_obeys_its_formula(finished):
    shown = scalars(finished[0] / "train")
    rewards, discounts, square_return = (
        shown[f"scaling/{name}/unclipped_0.99"]
        for name in ("variance_of_rewards", "variance_of_discounts", "mean_square_return")
    )
    sigma = shown["scaling/sigma/unclipped_0.99"]
    np.testing.assert_allclose(np.square(sigma), rewards + discounts * square_return, rtol=1e-4)
    assert (sigma > 0).all()


@pytest.mark.filterwarnings("ignore:.*does not apply to tf.data functions:UserWarning")
def test_it_trains_where_functions_run_eagerly_as_people_debug(tmp_path):
    tf.config.run_functions_eagerly(True)
    try:
        with configured("train.updates = 2"), EmbeddedRun(tmp_path) as run:
            assert run.run().updates == 2
    finally:
        tf.config.run_functions_eagerly(False)


OTHERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize(
    "number", [signal.SIGUSR1, *(pytest.param(n, marks=pytest.mark.slow) for n in OTHERS)]
)
def test_the_same_command_goes_on_until_a_signal_which_leaves_a_checkpoint_and_no_process(
    finished, tmp_path, number
):
    root = shutil.copytree(finished[0], tmp_path / "run")
    with subprocess.Popen(
        command(root, updates=100_000, bindings=FINISHED),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        said = ""
        while "\nleft" not in said:
            said += process.stdout.readline()
        process.send_signal(number)
        process.stdout.read()
        assert process.wait() == 128 + number
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert "Resumed at update 20.\n" in said
    *_, newest = sorted(int(path.name) for path in (root / "checkpoints").iterdir() if path.name.isdecimal())
    steps = scalars(root / "train")["environment_steps"]
    assert newest >= 20 and len(steps) == newest // 5 and (np.diff(steps) > 0).all()


def test_another_seed_gives_another_network_and_other_episodes(tmp_path):
    weights, seen = [], []
    for seed in (0, 1):
        with (
            configured(f"train.seed = {seed}", "train.updates = 1"),
            EmbeddedRun(tmp_path / str(seed)) as run,
        ):
            weights.append(run.agent.network.trainable_variables[0].numpy())
            run.collector.run(20)
            ((_, report),) = run.replay.statistics()
            seen.append(report["moments"])
    assert not np.array_equal(*weights) and not np.array_equal(*seen)


def test_a_run_takes_the_local_replay_and_goes_on_with_that_of_its_checkpoint(tmp_path, capfd):
    pytest.importorskip("reverb")

    def go(root, *bindings):
        with configured("train.updates = 0", *bindings), EmbeddedRun(root) as run:
            resumed = run.learner.resumed
            run.run()
            return type(run.replay).__name__, resumed

    assert go(tmp_path / "other") == ("LocalReplay", False)
    assert go(tmp_path, "Replay.backend = 'reverb'") == ("ReverbReplay", False)
    assert go(tmp_path) == ("ReverbReplay", True)
    assert "Resumed at update 0.\n" in capfd.readouterr().out
    with pytest.raises(UsageError, match="leave out --replay"):
        go(tmp_path, "Replay.backend = 'local'")


def test_a_distributed_run_takes_what_is_there_or_what_has_written_its_checkpoint(tmp_path, monkeypatch):
    there = {"": backends.REVERB, "no wheel": backends.RAY}
    (tmp_path / "table.json").touch()
    for missing, by_itself in there.items():
        monkeypatch.setattr(backends, "why_no_reverb", lambda missing=missing: missing)
        assert backends.resolve_backend(None, None, distributed=True) == by_itself
        assert backends.resolve_backend(backends.RAY, None, distributed=True) == backends.RAY
        assert backends.resolve_backend(None, tmp_path, distributed=True) == backends.RAY
        assert (
            backends.resolve_backend(None, tmp_path) == backends.resolve_backend(None, None) == backends.LOCAL
        )
    with pytest.raises(UsageError, match="needs Reverb.*or leave out --replay$"):
        backends.resolve_backend(backends.REVERB, None, distributed=True)
    for distributed in (True, False):
        words = "folder's checkpoint needs Reverb.*no wheel.*pip install.*--root_dir=DIR"
        with pytest.raises(UsageError, match=words):
            backends.resolve_backend(None, tmp_path / "reverb", distributed)
    with pytest.raises(UsageError, match="'ray' is of several processes. Add --collectors=N"):
        backends.resolve_backend(backends.RAY, None)


def test_what_needs_reverb_is_refused_with_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(backends, "why_no_reverb", lambda: "no wheel")
    assert main([f"--root_dir={tmp_path / 'run'}", "--replay=reverb"]) == 2
    said = capsys.readouterr().err
    assert "pip install 'dm-reverb~=0.14.0'" in said and "--replay=local" in said and "Traceback" not in said
    assert not (tmp_path / "run").exists()
