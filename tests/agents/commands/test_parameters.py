"""Every setting that can be bound, with values of every wrong kind: refused in a few lines, before a folder exists."""

import inspect
import itertools
import re

import gin
import pytest

import agents.running.cluster  # noqa: F401  registers everything that a configuration may name
from agents.commands import configuration, loading, parameters
from agents.commands.parameters import declared
from agents.commands.train import main
from agents.errors import UsageError

# Some of what the program passes itself: parts, specs, seeds, names; and what is for Python alone.
GIVEN = (
    *("MultiHeadPolicy.seed", "RecurrentMultiHeadAgent.summary_interval", "RecurrentQNetwork.name"),
    *("environments.make.num_envs", "environments.make.seed", "ConvTorso.seed", "atari_torso.seed"),
    *("two_hot.limit", "return_based.sigma_v", "Replay.patience"),
)
# Beyond their kind: may be negative, may be infinite.
ALSO = {("hl_gauss.v_max", "-5"), ("Replay.error_buffer", "1e400")}
# A value of each kind, and the annotations that it may fit.
VALUES = {
    "'many'": ("str", "Callable"),
    "''": (),
    "None": ("None", "Optional"),
    "True": ("bool",),
    "2.5": ("float",),
    "-5": (),
    "0": ("int", "float"),
    "1e400": (),
    "-1e400": (),
    "(1, 'x')": (),
    "()": (),
    "{'a': 1}": ("Mapping",),
    "@Replay": (),
    "@Replay()": (),
    "%NOTHING": (),
}


def test_defaults_and_examples_fit():
    assert len(declared()) <= 72
    for name, setting in declared().items():
        if setting.default not in (inspect.Parameter.empty, gin.REQUIRED):
            assert setting.fits(setting.default), name
        gin.clear_config()
        gin.parse_config(f"{name} = {setting.example}")
        parameters.check()  # its message names the setting


def test_the_list_has_the_default_the_range_and_the_meaning_of_every_setting(capsys):
    assert main(["--list_settings"]) == 0
    said = capsys.readouterr().out
    entries = dict(re.findall(r"^(\S+)(?: = .*)?\n((?:    .*\n)+)", said, re.M))
    assert set(entries) == set(declared())
    for name, text in entries.items():
        # Else it is missing in the docstring.
        assert len(" ".join(text.split())) > len(declared()[name].expected) + 5, name
    assert (
        "SequenceShape.burn_in = 20\n    a whole number from 0 to 1,000,000 (environment steps). rows bef"
        in said
    )


def test_configurations_of_runs_that_were_trained_before_go_on_working():
    configs = sorted(loading.PRETRAINED.glob("*/config.gin"))
    assert configs
    for config in configs:
        with configuration.borrowed():
            gin.parse_config(config.read_text())
            parameters.check(recorded=True)


@pytest.fixture
def refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def refused(*argv):
        code = main(argv)
        out, err = capsys.readouterr()
        assert (code, out, list(tmp_path.iterdir())) == (2, "", []), argv
        assert err.startswith("train.py: ") and "Traceback" not in err
        assert 1 <= len(err.splitlines()) <= 4, err
        return err

    return refused


def test_a_value_of_the_wrong_kind_is_refused_by_name():
    for (name, setting), value in itertools.product(declared().items(), VALUES):
        if not any(kind in str(setting.hint) for kind in VALUES[value]) and (name, value) not in ALSO:
            with configuration.borrowed():
                gin.parse_config(f"{name} = {value}")
                with pytest.raises(UsageError, match="NOTHING" if "%" in value else f"^{name} = "):
                    parameters.check()


def test_what_the_program_sets_itself_cannot_be_bound(refused):
    for name in GIVEN:
        assert f"{name} is not for a configuration to set" in refused(f"--gin_bindings={name} = 'x'")


def test_messages_say_what_is_expected_and_what_to_type(refused):
    for binding, answer in (
        (
            "train.num_envs = 0",
            "train.num_envs = 0: expected a whole number from 1 to 100,000 (environments)",
        ),
        ("RecurrentMultiHeadAgent.learning_rate = -1", "expected a number from 0 to 100"),
        ("environments.make.stack_num = 0", "expected a whole number from 1 to 256 (frames), or None"),
        ("Replay.backend = 'ring'", "expected one of 'local', 'ray', 'reverb', or None"),
        ("RecurrentMultiHeadAgent.priority_eta = 1.5", "expected a number from 0 to 1"),
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
        (["--env=FrozenLake-v1", "--env_kwargs=map_name=8x8"], "8x8. Write for example: --env_kwargs="),
        (["--env_kwargs=1, 2"], "expected NAME=VALUE"),
        (["--env=FrozenLake-v1", "--env_kwargs=slippery=True"], "argument 'slippery'; it takes"),
        (["--replay=ring"], "expected one of 'local', 'ray', 'reverb', or None"),
        (["--strategy=tpus"], "expected one of 'default', 'mirrored', 'tpu'"),
        (["--replay=local", "--collectors=2"], "is of one process:"),
        (["--replay=ray"], "is of several processes"),
        (["--gin_bindings=Replay.backend = 'local'", "--cluster=here:1"], "is of one process:"),
        (["--gin_bindings=train.steps_per_update = 4", "--collectors=2"], "paces a run in one process"),
    ):
        assert answer in refused(*argv), argv
