"""The whole system in one process: real environments, real replays, real files."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import gin
import numpy as np
import pytest
import tensorflow as tf
from packaging.version import Version
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.errors import UsageError

REPOSITORY = Path(__file__).parents[3]
# The quickstart's parts at the size of a test.
TINY = (
    "train.num_envs = 2",
    "train.batch_size = 4",
    "train.eval_envs = 2",
    "train.eval_interval = 0",
    "train.final_eval_rounds = 0",
    "train.checkpoint_interval = 100",
    "train.summary_interval = 5",
    "Replay.capacity = 2000",
    "Replay.min_sequences = 4",
    "Replay.replay_ratio = 4.0",
    "RecurrentQNetwork.lstm_units = 16",
    "RecurrentQNetwork.head_hidden = 16",
    "environments.make.max_episode_steps = 200",
    "RecurrentMultiHeadAgent.jit_compile = False",  # compiling takes seconds
)
COMPILED = "RecurrentMultiHeadAgent.jit_compile = None"  # in part, the default
FINISHED = ("train.eval_interval = 10", "train.final_eval_rounds = 1", COMPILED)


def command(root_dir, *arguments, updates=20, bindings=()):
    flags = [f"--gin_bindings={binding}" for binding in (*TINY, *bindings)]
    return [sys.executable, "train.py", f"--root_dir={root_dir}", f"--updates={updates}", *arguments, *flags]


def train(root_dir, *arguments, **options):
    """Runs train.py in a process of its own; returns it finished."""
    return finished_process(command(root_dir, *arguments, **options))


def finished_process(words):
    """Runs a command; leaves out what TensorFlow 2.16 and later say before anybody can stop them."""
    result = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True)
    if Version(tf.__version__) >= Version("2.16"):
        said = r"^([IWE]0000 |WARNING: All log messages before absl).*\n"
        result.stderr = re.sub(said, "", result.stderr, flags=re.M)
    return result


def scalars(folder):
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    return {
        tag: np.array([tf.make_ndarray(event.tensor_proto) for event in events.Tensors(tag)])
        for tag in events.Tags()["tensors"]
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XLA_FLAGS", f"--xla_dump_to={root.parent / 'compiled'}")
        result = train(root, bindings=FINISHED)
    assert result.returncode == 0, result.stderr
    return root, result


def test_the_update_is_compiled_once_though_it_is_compiled_ahead(finished):
    modules = [path.name for path in finished[0].with_name("compiled").glob("*.before_optimizations.txt")]
    assert [sum(name in module for module in modules) for name in ("__gradients_", "apply_gradients_")] == [
        1,
        1,
    ]


def test_a_run_is_quiet_and_says_what_it_does(finished):
    _, result = finished
    assert result.stderr == ""
    assert "tensorboard --logdir" in result.stdout and "GB when full" in result.stdout
    assert "updates 20/20 (100%)" in result.stdout


def test_the_statistics_log_holds_only_what_came_after_the_oldest_checkpoint(finished):
    root, _ = finished
    oldest = min(int(path.name) for path in (root / "checkpoints").iterdir())
    assert oldest > 0 and [path.name for path in (root / "statistics").iterdir()] == [f"{oldest}-1.tfrecord"]


def test_tensorboard_gets_everything_a_researcher_looks_at(finished):
    root, _ = finished
    training, evaluation = scalars(root / "train"), scalars(root / "eval")
    heads = ("clipped_0.99", "unclipped_1")
    expected = [
        "loss",
        "priority/mean",
        "replay/ratio",
        "replay/sequences",
        "environment_steps",
        "episode/head",
    ]
    expected += ["episode/return", "episode/length", "episode/epsilon", "speed/updates_per_second"]
    per_head = [
        "loss",
        "td_error/unscaled",
        "td_error/scaled",
        "value",
        "bandit/probability",
        "scaling/sigma",
    ]
    per_head += [
        f"scaling/{name}" for name in ("variance_of_rewards", "variance_of_discounts", "mean_square_return")
    ]
    expected += [f"{tag}/{head}" for tag in per_head for head in heads]
    assert set(expected) <= set(training), set(expected) - set(training)
    assert {"episode/return", "episode/length"} <= set(evaluation)
    # sigma^2 = V[R] + V[gamma] E[G^2], in what is shown too.
    head = "unclipped_0.99"
    shown = {
        name: training[f"scaling/{name}/{head}"]
        for name in ("sigma", "variance_of_rewards", "variance_of_discounts", "mean_square_return")
    }
    squares = shown["variance_of_rewards"] + shown["variance_of_discounts"] * shown["mean_square_return"]
    np.testing.assert_allclose(np.square(shown["sigma"]), squares, rtol=1e-4)
    assert (shown["sigma"] > 0).all()


def test_the_run_folder_says_how_to_repeat_it(finished):
    root, _ = finished
    operative = (root / "operative_config.gin").read_text()
    assert "train.seed = 0" in operative and "return_based" in operative and "RecurrentQNetwork" in operative
    assert "--updates=20" in (root / "command.txt").read_text()


def test_the_same_command_goes_on_where_it_was(finished):
    root, _ = finished
    result = train(root, updates=30, bindings=FINISHED)
    assert result.returncode == 0, result.stderr
    assert "Resumed at update 20" in result.stdout and "updates 30/30" in result.stdout
    steps = scalars(root / "train")["environment_steps"]
    assert (np.diff(steps) > 0).all() and len(steps) == 6


def test_another_configuration_in_the_same_folder_is_refused_with_the_difference(finished):
    root, _ = finished
    result = train(root, "--seed=1", bindings=FINISHED)
    assert result.returncode == 2
    assert "seed = 1" in result.stderr and "Traceback" not in result.stderr


def test_a_resumed_run_has_the_replay_the_statistics_and_the_bandit(tmp_path):
    from agents.running.embedded import EmbeddedRun

    with configured("train.updates = 12"):
        with EmbeddedRun(tmp_path) as run:
            run.run()
            before = state_of(run)
        with EmbeddedRun(tmp_path) as run:
            assert run.learner.resumed and run.learner.updates == 12
            after = state_of(run)
    assert before.keys() == after.keys()
    for name, values in before.items():
        np.testing.assert_array_equal(after[name], values, err_msg=name)


def test_a_limit_of_environment_steps_ends_the_run_first(tmp_path, capsys):
    from agents.running.embedded import EmbeddedRun

    with configured("train.updates = 1000", "train.environment_steps = 150"), EmbeddedRun(tmp_path) as run:
        result = run.run()
    assert 150 <= result.environment_steps < 200 and result.updates < 1000
    assert f"steps {result.environment_steps}/150" in capsys.readouterr().out


def state_of(run):
    agent = run.agent
    variables = {variable.name + str(i): variable.numpy() for i, variable in enumerate(agent.variables)}
    optimizer = {f"optimizer{i}": variable.numpy() for i, variable in enumerate(agent.optimizer.variables)}
    return (
        variables
        | optimizer
        | {
            "sequences": run.replay.size,
            "inserted": run.replay.inserted,
            "statistics": agent.scaling.layer.statistics.numpy(),
            "bandit": agent.bandit.ratings,
            "head probabilities": agent.collect_policy.head_probabilities.numpy(),
            "steps": run.learner.environment_steps,
            "episodes": run.learner.episodes,
        }
    )


class configured:
    """The quickstart at test size, in this process."""

    def __init__(self, *bindings):
        self._bindings = [*TINY, *bindings]

    def __enter__(self):
        import agents.running.embedded  # noqa: F401  registers what the configuration names
        from agents.commands.configuration import search_included_files_in

        gin.clear_config()
        search_included_files_in(REPOSITORY)
        gin.parse_config_files_and_bindings([str(REPOSITORY / "configs/quickstart.gin")], self._bindings)

    def __exit__(self, *_):
        gin.clear_config()


def losses(root_dir, seed):
    from agents.running.embedded import EmbeddedRun

    with configured(f"train.seed = {seed}", "train.updates = 15", COMPILED), EmbeddedRun(root_dir) as run:
        run.run()
        traced = run.agent._compiled_gradients.experimental_get_tracing_count()
        assert traced == 1, "what was compiled while the replay filled served the updates"
    return scalars(root_dir / "train")["loss"], run.agent.network.trainable_variables[0].numpy()


def test_the_same_seed_gives_the_same_losses_bit_for_bit(tmp_path):
    (first, weights), (second, same), (other, _) = (
        losses(tmp_path / str(i), seed) for i, seed in enumerate((0, 0, 1))
    )
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(weights, same)
    assert not np.array_equal(first, other)


def test_a_run_takes_the_local_replay_and_goes_on_with_that_of_its_checkpoint(tmp_path):
    from agents.running.embedded import EmbeddedRun, train

    pytest.importorskip("reverb")

    def go(updates, *bindings):
        with configured(f"train.updates = {updates}", *bindings), EmbeddedRun(tmp_path / "run") as run:
            resumed = run.learner.resumed
            assert run.run().updates == updates
            return type(run.replay).__name__, resumed

    assert go(2, "Replay.backend = 'reverb'") == ("ReverbReplay", False)
    assert go(4) == ("ReverbReplay", True)
    with configured("Replay.backend = 'local'"), pytest.raises(UsageError, match="leave out --replay"):
        train(tmp_path / "run")
    with configured("train.updates = 0"), EmbeddedRun(tmp_path / "other") as run:
        assert type(run.replay).__name__ == "LocalReplay"


def test_weights_that_are_no_numbers_end_the_run_and_reach_no_checkpoint(tmp_path):
    from agents.running.embedded import EmbeddedRun

    with configured("train.updates = 10"), EmbeddedRun(tmp_path) as run:
        run.run()
        saved = sorted((tmp_path / "checkpoints").iterdir())
        biases = run.agent.network.heads.bv  # before the last layer, relu would turn NaN into 0
        biases.assign(biases * np.nan)
        with pytest.raises(FloatingPointError, match="loss of update 11"):
            run.learner.update()
        assert sorted((tmp_path / "checkpoints").iterdir()) == saved


def test_a_replay_that_memory_cannot_hold_is_refused_before_work_starts(tmp_path):
    result = train(tmp_path / "run", bindings=("Replay.capacity = 1000000000000",))
    assert result.returncode == 2
    assert "Lower Replay.capacity" in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "run").exists()


def test_frames_too_small_for_the_network_are_refused_in_a_sentence(tmp_path):
    result = train(tmp_path, "--config=atari_small", bindings=("environments.make.img_height = 10",))
    assert result.returncode == 2
    (said,) = result.stderr.splitlines()
    assert said.startswith("train.py: dqn_torso: images of 10 x 84 pixels are too small")


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_a_signal_leaves_a_checkpoint_and_no_process(tmp_path, number):
    root = tmp_path / "run"
    with subprocess.Popen(
        command(root, updates=100_000),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        for line in process.stdout:
            if line.startswith("updates"):
                break
        process.send_signal(number)
        process.stdout.read()
        assert process.wait() == 128 + number
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert any(path.name.isdecimal() for path in (root / "checkpoints").iterdir())


@pytest.mark.parametrize("name", ["CartPole-v1", pytest.param("breakout", marks=pytest.mark.slow)])
def test_the_quickstarts_parts_fit_other_environments(name, tmp_path):
    """Vectors and Atari's frames come through the same door; the torso follows the observation."""
    bindings = ("train.eval_envs = 1", "Heads.reward_multiplier = 1.0")
    result = train(tmp_path / "run", f"--env={name}", updates=2, bindings=bindings)
    assert result.returncode == 0, result.stderr
    assert "updates 2/2 (100%)" in result.stdout
    assert ("frames" in result.stdout) == (name == "breakout")
