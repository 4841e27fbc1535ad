"""Declared settings: what fits, what is said of what does not, and what gin gets to see."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import pytest

from rbs_tf.settings import Setting, configurable, settings_of


class Base:
    def __init__(
        self,
        part: "Unknown",  # noqa: F821  what only type checkers know
        count: Annotated[int, Setting("steps", least=1, most=2000)] = 3,
        rate: Annotated[float | None, Setting(above=0, example=0.5)] = None,
        share: Annotated[float, Setting(most=1, least=0)] = 0.25,
        bound: Annotated[float, Setting(least=1, finite=False)] = 1.0,
        flag: Annotated[bool, Setting()] = False,
        kind: Annotated[Literal["near", "far"], Setting()] = "near",
        sizes: Annotated[Sequence[int], Setting("pixels", least=1)] = (8, 4),
        even: Annotated[int, Setting(kind="an even number", fits=lambda n: n % 2 == 0)] = 2,
        name: str = "",
    ):
        self.given = count, rate, share, bound, flag, kind, sizes, even


@configurable("settings_test", module="tests")
class Checked(Base):
    pass


def test_what_fits():
    fits = (
        ("count", (1, 2000, np.int64(7))),
        ("rate", (None, 1e-9, 3, np.float32(0.5))),
        ("share", (0, 1, 0.5)),
        ("bound", (1, math.inf)),
        ("flag", (True, False)),
        ("kind", ("near", "far")),
        ("sizes", ((1,), [3, 2])),
        ("even", (0, 4)),
    )
    for place, (name, values) in enumerate(fits):
        for value in values:
            assert Checked(None, **{name: value}).given[place] == value
    refused = (
        ("count", (0, 2001, 1.0, True, None, math.nan), "a whole number from 1 to 2,000 (steps)", "3"),
        ("rate", (0, math.inf, "x"), "a number above 0, or None", "0.5"),
        ("share", (-0.1, 1.1, None), "a number from 0 to 1", "0.25"),
        ("bound", (0.5, math.nan), "a number of at least 1", "1.0"),
        ("flag", (1, None), "True or False", "False"),
        ("kind", ("here", 1), "one of 'near', 'far'", "'near'"),
        ("sizes", ((), (0,), 3), "a tuple of pixels, each a whole number of at least 1", "(8, 4)"),
        ("even", (3,), "an even number", "2"),
    )
    for name, values, expected, example in refused:
        for value in values:
            with pytest.raises(ValueError) as raised:
                Checked(None, **{name: value})
            wanted = f"settings_test.{name} = "
            said = f"{wanted}{value!r}: expected {expected}. Write for example: {wanted}{example}"
            assert str(raised.value).startswith(said)


def test_unannotated_parameters():
    assert list(settings_of(Checked)) == ["count", "rate", "share", "bound", "flag", "kind", "sizes", "even"]


def test_gin():
    gin = pytest.importorskip("gin")
    with pytest.raises(ValueError, match="doesn't have a parameter named 'cuont'"):
        gin.parse_config("settings_test.cuont = 5")
    gin.parse_config("settings_test.count = 5")
    assert Checked(None).given[0] == 5 and Checked(None, 7).given[0] == 7
    gin.parse_config("settings_test.count = 0")
    with pytest.raises(ValueError, match=r"settings_test.count = 0: expected"):
        Checked(None)
