"""Every setting that can be bound, with values of every wrong kind: refused in a few lines, before a folder exists."""

import inspect
import re

import gin
import pytest

import agents.running.cluster  # noqa: F401  registers everything that a configuration may name
from agents.commands import configuration, settings
from agents.commands.settings import SETTINGS
from agents.commands.train import main

# What the program passes itself: parts, specs, seeds, names.
GIVEN = {
    *(f"Collector.{name}" for name in ("moments", "name")),
    *("MultiHeadPolicy.seed", "RecurrentMultiHeadAgent.seed", "RecurrentMultiHeadAgent.strategy"),
    "RecurrentMultiHeadAgent.summary_interval",
    *("MultiHeadPolicy.decode", "RecurrentQNetwork.outputs_per_action"),
    *(f"environments.make.{name}" for name in ("num_envs", "seed")),
    *("RecurrentQNetwork.seed", "RecurrentQNetwork.name"),
    *(f"{torso}.seed" for torso in ("ConvTorso", "MlpTorso", "atari_torso", "dqn_torso", "small_torso")),
    *("ConvTorso.name", "MlpTorso.name"),
}
SIGNED = {"hl_gauss.v_min", "hl_gauss.v_max"}  # may be negative
# A value of each kind, and the annotations that it may fit.
VALUES = {
    "'many'": ("str", "Callable"),
    "''": (),
    "None": ("None",),
    "True": ("bool",),
    "2.5": ("float",),
    "-5": (),
    "0": ("int", "float"),
    "1e400": (),
    "-1e400": (),
    "(1, 'x')": (),
    "()": (),
    "{'a': 1}": (),
    "@Replay": (),
    "@Replay()": (),
    "%NOTHING": (),
}


def parameters():
    """Every parameter of ours, by the name that people write: its annotation and default."""
    found = {}
    for selector, entry in gin.config._REGISTRY.items():
        if configuration._is_ours(entry):
            name = re.sub(r"^(agents|networks|scalings)\.", "", selector)
            for parameter in inspect.signature(entry.wrapped).parameters.values():
                found[f"{name}.{parameter.name}"] = parameter
    return found


def test_every_parameter_that_is_not_given_by_the_program_is_declared():
    bindable = {
        name
        for name, parameter in parameters().items()
        if parameter.default is not inspect.Parameter.empty or name.startswith(("train.", "ConvTorso."))
    }
    assert bindable - GIVEN == set(SETTINGS)


def test_defaults_and_examples_fit():
    found = parameters()
    for name, setting in SETTINGS.items():
        default = found[name].default
        if default not in (inspect.Parameter.empty, gin.REQUIRED):
            assert setting.fits(default), name
        gin.clear_config()
        gin.parse_config(f"{name} = {setting.example}")
        settings.check()  # its message names the setting
    gin.clear_config()


def may_fit(annotation: str, value: str) -> bool:
    return any(kind in annotation for kind in VALUES[value])


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def refused(*argv):
        started = []
        code = main(argv, run=lambda root_dir: started.append(root_dir))
        out, err = capsys.readouterr()
        assert (code, out, started, list(tmp_path.iterdir())) == (2, "", [], []), argv
        assert err.startswith("train.py: ") and "Traceback" not in err
        assert 1 <= len(err.splitlines()) <= 4, err
        return err

    yield refused
    gin.clear_config()


def test_a_value_of_the_wrong_kind_is_refused_by_name(refused):
    found = parameters()
    for value in VALUES:
        tried = 0
        for name in SETTINGS:
            if not may_fit(str(found[name].annotation), value) and not (value == "-5" and name in SIGNED):
                said = refused(f"--gin_bindings={name} = {value}")
                assert name in said or "NOTHING" in said, (name, value)
                tried += 1
        assert tried > 20, value


def test_what_the_program_sets_itself_cannot_be_bound(refused):
    for name in GIVEN:
        assert f"{name} is set by the program itself" in refused(f"--gin_bindings={name} = 'x'")


def test_messages_say_what_is_expected_and_what_to_type(refused):
    for binding, answer in (
        ("train.num_envs = 0", "train.num_envs = 0: expected a whole number of at least 1 (environments)"),
        ("RecurrentMultiHeadAgent.learning_rate = 0", "expected a number above 0"),
        ("Replay.port = 80000", "expected a whole number from 1 to 65535, or None"),
        ("Replay.sampler = 'lifo'", "expected one of 'prioritized', 'uniform'"),
        ("RecurrentMultiHeadAgent.priority_eta = 1.5", "expected a number from 0 to 1"),
        ("pop_art.step_size = 0", "expected a number from 0 to 1, and not 0"),
        ("Heads.pairs = ((0.9, True), (1.1, True))", "each (its discount from 0 to 1"),
        ("train.scaling = @networks.MlpTorso", "Write for example: train.scaling = @scalings.return_based"),
        ("RecurrentQNetwork.torso = @Heads", "expected a network for observations"),
    ):
        assert answer in refused(f"--gin_bindings={binding}"), binding


def test_flags_without_a_value_or_a_name_are_refused(refused):
    for argv, answer in (
        (["--scaling="], "scaling is empty"),
        (["--config="], "config is empty"),
        (["quickstart"], "Did you mean --config=quickstart?"),
        (["--env=CartPole-v9"], "CartPole-v9"),
        (["--replay=ring"], "choose from 'reverb', 'local'"),
        (["--replay=local", "--collectors=2"], "is of one process alone"),
        (["--gin_bindings=Replay.backend = 'local'", "--cluster=here:1"], "is of one process alone"),
        (["--gin_bindings=train.steps_per_update = 4", "--collectors=2"], "paces a run in one process"),
    ):
        assert answer in refused(*argv), argv


def test_a_file_that_includes_itself_or_is_no_text_is_named(refused, tmp_path, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    (folder / "loop.gin").write_text(f'include "{folder}/loop.gin"')
    assert "loop.gin includes itself" in refused(f"--config={folder}/loop.gin")
    (folder / "binary.gin").write_bytes(b"\xff\xfe\x00")
    assert "binary.gin cannot be read" in refused(f"--config={folder}/binary.gin")
