"""Nothing that is given to a command ends in a traceback: settings, flags and paths with all kinds of values.

Of every case only this is asked: an exit code that is not 0, at most six lines, the culprit named, nothing left behind,
and nothing of the user's touched.
"""

import itertools
import os

import gin
import pytest
import tensorflow as tf

import agents.running.cluster  # noqa: F401  registers everything that a configuration may name
from agents.__main__ import main as other_commands
from agents.commands.settings import declared
from agents.commands.train import main as train
from agents.errors import UsageError, brief, local_path
from tests.agents.commands.small_runs import seen

DIGITS, LONG = "9" * 400, "x" * 300
# Beyond what any setting takes, as a configuration says it: numbers, text, and what lies deep.
EXTREMES = (
    *(DIGITS, "9" * 5000, str(-(2**64)), "1e300", "-1e300", "5e-324", f"'{LONG}", "'\\udcff'", "'\\x00'"),
    *("(" * 300 + "1,", "[" * 90 + "]" * 90, "-" * 3000, "{'a': " * 20 + "1" + "}" * 20),
    *(f"@{LONG}", f"%{LONG}", "@gin.macro", "@gin.singleton()"),
)
# What any text, dictionary or unlimited number takes.
FREE = {"environments.make.env_kwargs", "Replay.error_buffer"}


@pytest.fixture
def tried(tmp_path, monkeypatch, capsys):
    """Calls a command with arguments, and looks at what came of it."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)

    def stopped(root_dir):
        raise UsageError(f"{root_dir} has started")

    def tried(command, *argv, culprit=""):
        before = seen(tmp_path)
        argv = [str(each) for each in argv]
        code = train(argv, run=stopped) if command == "train" else other_commands([command, *argv])
        gin.clear_config()
        err = capsys.readouterr().err
        case = f"{command} {' '.join(argv)}"[:200]
        assert code in (1, 2), case
        assert 1 <= len(err.splitlines()) <= 6 and "Traceback" not in err, (case, err)
        assert any(each in err for each in ([culprit] if isinstance(culprit, str) else culprit)), (case, err)
        assert seen(tmp_path) == before, case

    return tried


@pytest.mark.parametrize("stride", [12, pytest.param(1, marks=pytest.mark.slow)])
def test_extremes_of_settings(tried, stride):
    cases = [each for each in itertools.product(declared(), EXTREMES) if each[0] not in FREE]
    for name, value in cases[::stride]:
        # Of what does not parse the value is named, of text that fits its owner speaks.
        named = "" if name == "train.env" or value[:1] in "'([{-@%" or len(value) > 1000 else name
        tried("train", f"--gin_bindings={name} = {value}", culprit=named)


@pytest.fixture
def paths(tmp_path):
    """A path of each kind, and a folder that looks like a run's to whoever only looks at names."""
    folder = tmp_path / "paths"
    folder.mkdir()
    (folder / "file").write_text("precious")
    (folder / "folder").mkdir()
    (folder / "folder" / "mine.txt").write_text("precious")
    (folder / "link").symlink_to("file")
    (folder / "to_folder").symlink_to("folder")
    (folder / "dangling").symlink_to("nowhere/at/all")
    (folder / "loop").symlink_to("loop")
    (folder / "full").symlink_to("/dev/full")
    os.mkfifo(folder / "pipe")
    for name in ("file", "link", "loop", "full", "pipe", "folder", "dangling"):
        for suffix in ("gin", "sweep", "gif"):
            (folder / f"{name}.{suffix}").symlink_to(name)
    (run := folder / "run").mkdir()
    (run / "config.gin").write_text("train.env = 3")
    (run / "best.npz").write_bytes(b"")
    return folder


PATHS = (
    *("missing/deep", "file", "file/below", "folder", "link", "to_folder", "dangling", "loop", "loop/below"),
    *("full", "pipe", LONG, f"{LONG}/below", "d/" * 2100, "/proc/self/mine", "/dev/full", "/dev/null"),
    *("/dev/null/x", "gs://bucket/run", "\udcff", "\x00", ".", "..", "/", ""),
)
FLAGS = tuple(
    tuple(line.split())
    for line in """
    train --config={}
    train --config={}.gin
    train --scaling={}
    train --scaling={}.gin
    train --sweep={}
    train --sweep={}.sweep
    train --root_dir={}
    train --root_dir={} --anew
    train --gin_bindings=include_'{}'
    play {}
    play RUN --video={}
    play RUN --video={}.gif
    play --pretrained={}
    export {} out
    export RUN {}
    report {}
    report RUN --output={}
    report RUN --output={}.html
    """.strip().splitlines()
)


@pytest.mark.parametrize("stride", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_kinds_of_paths(tried, paths, stride):
    # A report on everything below a folder is no mistake, and one on this whole machine takes long.
    cases = [each for each in itertools.product(FLAGS, PATHS) if each != (("report", "{}"), "/")]
    for (command, *argv), path in cases[::stride]:
        where = path if path[:1] in ("/", "") or ":" in path else f"{paths}/{path}"
        filled = [
            each.replace("RUN", f"{paths}/run").replace("include_", "include ").replace("{}", where)
            for each in argv
        ]
        name = path.rstrip("/").rpartition("/")[2].encode("ascii", "backslashreplace").decode()
        name = name[:12].strip(".\0")
        an_address = "//" in path and "--pretrained={}" not in argv
        culprits = "is an address" if an_address else (name, "config.gin", "No run to report on")
        tried(command, *filled, culprit=culprits)


def test_a_configuration_that_was_edited(tried, paths):
    run = paths / "run"
    edits = (
        *("train.num_envs = 0", "train.seed = (", "x.y = 1", "import nothing_like_it", "train.env = 'pnog'"),
        *("train.scaling = @gin.macro", "RecurrentQNetwork.lstm_units = 1000000", "train.seed = %nothing"),
        *("RecurrentQNetwork.torso = @networks.dqn_torso", "Heads.pairs = 3", "hl_gauss.v_max = 'x'"),
    )
    for edit, command in itertools.product(edits, (("play",), ("export",))):
        (run / "config.gin").write_text(f"train.env = 'CartPole-v1'\ntrain.updates = 1\n{edit}\n")
        tried(*command, run, *["out"][: command[0] == "export"], culprit="config.gin")


def test_sizes_beyond_memory_are_refused_with_what_fits(tried):
    for binding in (
        *("train.num_envs = 1000000000000000", "train.eval_envs = 1000000000000000"),
        *("train.steps_per_round = 1000000000000000", "train.batch_size = 1000000000000"),
        *("SequenceShape.length = 2000000000000000000", "SequenceShape.burn_in = 2000000000000000000"),
        *("RecurrentQNetwork.lstm_units = 1048576", "SequenceShape.n_step = 2000000000000000000"),
        *("MlpTorso.units = (1000000, 1000000)", "Replay.capacity = 1000000000000000"),
    ):
        argv = ["--env=CartPole-v1", f"--gin_bindings={binding}"]
        tried("train", *argv, culprit=binding.replace("(1000000, ", "").rstrip(")"))
    frames = [f"--gin_bindings=environments.make.{side} = 4096" for side in ("img_height", "img_width")]
    argv = ["--config=atari", "--env=pong", *frames, "--gin_bindings=environments.make.stack_num = 256"]
    tried("train", *argv, culprit="stack_num = 4")


NUMBERS = DIGITS, "9" * 5000, "1e30", "-1", "nan", "0x10", "\u0663", "1_0", str(2**63), LONG, "\udcff"


def test_numbers_of_flags(tried, paths):
    flags = [("train", "--seed"), ("train", "--updates"), ("train", "--collectors")]
    flags += [("play", "--episodes"), ("play", "--max_steps"), ("play", "--seed")]
    for (command, flag), value in itertools.product(flags, NUMBERS):
        tried(command, *[paths / "run"][: command == "play"], f"{flag}={value}", culprit=flag)


SWEEPS = {
    "product": "\n".join(f"{name} = {list(range(1000))}" for name in ("seed", "updates", "train.num_envs")),
    "unary": "seed = " + "-" * 100_000 + "1",
    "deep": "seed = " + "[" * 5000,
    "power": "seed = 9 ** 9 ** 9",
    "digits": f"seed = {DIGITS}",
    "infinite": "num_cpus = 1e999",
    "pair": "seed, env = 1, 2",
    "other_bytes": "seed = '\udcff'",
}


def test_sweeps_that_have_no_end_or_are_none(tried, tmp_path):
    for name, text in SWEEPS.items():
        file = tmp_path / f"{name}.sweep"
        file.write_text(text, errors="surrogateescape")
        tried("train", f"--sweep={file}", culprit=(f"{name}.sweep", "seed"))


def test_a_variable_of_the_environment_that_means_nothing(tried, monkeypatch):
    for value in ("no", LONG):
        monkeypatch.setenv("RBS_TF_VERBOSE", value)
        for command in ("train", "doctor", "play"):
            tried(command, culprit="RBS_TF_VERBOSE")


def test_the_disk_and_memory_give_out(monkeypatch, capsys):
    for error, words in (
        (OSError(28, "No space left on device", "/data/run"), "/data/run: No space left on device"),
        (OSError(36, "File name too long", b"\xff"), "\\udcff: File name too long"),
        (MemoryError(), "not enough memory"),
        (PermissionError("no"), "no"),
    ):

        def fails(*_, error=error):
            raise error

        monkeypatch.setattr("agents.commands.doctor.main", fails)
        assert other_commands(["doctor"]) == 2
        assert words in capsys.readouterr().err


def test_outputs_are_tried_before_anything_is_computed(tried, paths, monkeypatch):
    def computes(*_, **__):
        raise AssertionError("computed")

    monkeypatch.setattr("agents.monitoring.report.runs.find", computes)
    monkeypatch.setattr("agents.Agent.load", computes)
    for path in ("full", "pipe", "dangling", "folder", "file/below", "/proc/mine", LONG):
        tried("report", paths / "run", f"--output={paths / path}", culprit=path[:12])
        tried("export", paths / "run", paths / path, culprit=path[:12])
        tried("play", paths / "run", f"--video={paths / path}.gif", culprit=path[:12])


def test_a_long_message_keeps_its_beginning_and_its_end():
    lines = brief("\n".join(f"line {number}" for number in range(100))).splitlines()
    assert lines == ["line 0", "line 1", "line 2", "line 3", "  ... 95 lines more", "line 99"]


def test_names_of_tensorflows_nodes_are_left_out():
    with pytest.raises(tf.errors.OpError) as refused:
        tf.io.write_file("/proc/nothing", "")
    assert "{{" in str(refused.value) and brief(refused.value).startswith("/proc/nothing; ")


def test_the_path_in_a_files_address_is_named():
    with pytest.raises(UsageError, match="give /tmp/run.$"):
        local_path("file:///tmp/run")
    for path in ("runs/a:b", "./gs:/x", "C:", "/x/gs://y", "~/x", "scale:2"):
        assert local_path(path) == path
