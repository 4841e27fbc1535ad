"""Every setting that can be bound, with values of every wrong kind: refused in a few lines, before a folder exists."""

import dataclasses
import inspect
import math
import re

import gin
import numpy as np
import pytest

from agents import configuration
from agents.checks import FLAG, Checked, Kind, choice, number, optional, setting, several, whole
from agents.commands import loading
from agents.commands.train import main
from agents.errors import UsageError
from agents.settings import (
    AgentSettings,
    BanditSettings,
    EnvironmentSettings,
    NetworkSettings,
    PolicySettings,
    Settings,
    list_settings,
    refuse_constants,
)

ASKED = "train.env = 'CartPole-v1'\ntrain.updates = 5\n"
# A value of each kind, and the words of the kinds that it may fit.
VALUES = {
    "'many'": ("name of an environment",),
    "''": (),
    "None": ("or None",),
    "True": ("True or False",),
    "2.5": ("a number",),
    "-5": (),
    "0": ("a whole number", "a number"),
    "1e400": ("a number of at least 1 (samples)",),
    "-1e400": (),
    "(1, 'x')": (),
    "()": (),
    "{'a': 1}": ("a dictionary",),
    "@Replay": (),
    "%NOTHING": (),
}


@dataclasses.dataclass(frozen=True)
class Some(Checked):
    known_as = "some"

    count: int = setting(3, whole("steps", least=1, most=2000))
    rate: float | None = setting(None, optional(number(above=0)), example=0.5)
    share: float = setting(0.25, number(least=0, most=1))
    bound: float = setting(1.0, number(least=1, finite=False))
    flag: bool = setting(False, FLAG)
    kind: str = setting("near", choice("near", "far"))
    sizes: tuple[int, ...] = setting((8, 4), several("pixels", whole(least=1)))
    even: int = setting(2, Kind("an even number", lambda n: n % 2 == 0))


def test_what_fits():
    for name, values in (
        ("count", (1, 2000, np.int64(7))),
        ("rate", (None, 1e-9, 3, np.float32(0.5))),
        ("share", (0, 1, 0.5)),
        ("bound", (1, math.inf)),
        ("flag", (True, False)),
        ("kind", ("near", "far")),
        ("sizes", ((1,), [3, 2])),
        ("even", (0, 4)),
    ):
        for value in values:
            assert getattr(Some(**{name: value}), name) == value


def test_a_refusal_says_what_is_expected_and_what_to_write():
    for name, values, expected, example in (
        ("count", (0, 2001, 1.0, True, None, math.nan), "a whole number from 1 to 2,000 (steps)", "3"),
        ("rate", (0, math.inf, "x"), "a number above 0, or None", "0.5"),
        ("share", (-0.1, 1.1, None), "a number from 0 to 1", "0.25"),
        ("bound", (0.5, math.nan), "a number of at least 1", "1.0"),
        ("flag", (1, None), "True or False", "False"),
        ("kind", ("here", 1), "one of 'near', 'far'", "'near'"),
        ("sizes", ((), (0,), 3), "a tuple of pixels, each a whole number of at least 1", "(8, 4)"),
        ("even", (3,), "an even number", "2"),
    ):
        for value in values:
            with pytest.raises(ValueError) as raised:
                Some(**{name: value})
            said = f"some.{name} = {value!r}: expected {expected}. Write for example: some.{name} = {example}"
            assert str(raised.value) == said


def test_every_default_and_every_example_fits():
    for name, field, _ in list_settings():
        fits = field.metadata["kind"].fits
        assert fits(field.default) or name in ("train.env", "train.updates"), name
        example = field.metadata["example"]
        with configuration.borrowed():
            gin.parse_config(f"{ASKED}{name} = {configuration.format_gin(example)}")
            if name not in ("Replay.backend", "Replay.capacity"):
                Settings.from_gin()  # its message would name the setting


def test_defaults_of_the_page_are_those_of_what_is_built():
    for settings in (AgentSettings, NetworkSettings, PolicySettings, BanditSettings, EnvironmentSettings):
        parameters = inspect.signature(settings.built).parameters
        for field in dataclasses.fields(settings):
            assert parameters[field.name].default == field.default, field.name


def test_the_list_has_the_default_the_range_and_the_meaning_of_every_setting(capsys):
    assert main(["--list_settings"]) == 0
    said = capsys.readouterr().out
    entries = dict(re.findall(r"^([\w.]+)(?: = .*)?\n((?:    .*\n)+)", said, re.M))
    assert entries.keys() == {name for name, *_ in list_settings()}
    assert all(meaning for *_, meaning in list_settings())
    assert (
        "SequenceShape.burn_in = 20\n    a whole number from 0 to 1,000,000 (environment steps). rows bef"
        in said
    )
    assert "@scalings.return_based(sigma_v=0.01, target_network_term=False, value_bias=False" in said
    assert "@networks.ConvTorso(channels, kernel_sizes, strides, units" in said


def test_configurations_of_runs_that_were_trained_before_go_on_working():
    configs = sorted(loading.PRETRAINED.glob("*/config.gin"))
    assert configs
    for config in configs:
        with configuration.borrowed():
            gin.parse_config(config.read_text())
            assert Settings.from_gin().replay.compression == 0


def test_what_is_for_python_only_cannot_be_bound():
    with configuration.borrowed():
        gin.parse_config("Replay.read_ahead = 5")
        with pytest.raises(UsageError, match="Replay.read_ahead is not for a configuration to set"):
            refuse_constants()


def test_a_value_of_the_wrong_kind_is_refused_by_name():
    for name, field, _ in list_settings():
        words = field.metadata["kind"].words
        for value, kinds in VALUES.items():
            if any(kind in words for kind in kinds):
                continue
            with configuration.borrowed():
                gin.parse_config(f"{ASKED}{name} = {value}")
                with pytest.raises(
                    (ValueError, TypeError), match="NOTHING" if "%" in value else f"^{name} = "
                ):
                    Settings.from_gin()
