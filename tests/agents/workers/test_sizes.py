"""What the advice of a run that is too large comes to when it is followed."""

import re

import pytest

import agents.running.embedded  # noqa: F401  registers what has defaults
from agents.errors import UsageError
from agents.workers import sizes
from rbs_tf.settings import default_of


@pytest.mark.parametrize(
    ("takes", "settings", "advice"),
    [
        (2e9, {"train.num_envs": 1999}, "train.num_envs = 700 would fit."),  # 799, and 800 might not
        (2e9, {"train.num_envs": 1}, "Lower the other sizes, too."),
        (9e9, {"RecurrentQNetwork.lstm_units": 9999}, "RecurrentQNetwork.lstm_units = 512 would fit."),
        (9e9, {"RecurrentQNetwork.lstm_units": 512, "MlpTorso.units": 128}, "Lower the other sizes, too."),
        (9e9, {"MlpTorso.units": 10**6}, f"MlpTorso.units = {default_of('MlpTorso.units')} would fit."),
    ],
)
def test_it_names_what_would_fit_as_gin_takes_it(monkeypatch, takes, settings, advice):
    monkeypatch.setattr(sizes, "available_memory", lambda: 1e9)
    monkeypatch.setattr(sizes, "_parts", lambda *_: [sizes.Part("a part", int(takes), settings)])
    with pytest.raises(UsageError, match=f"GB of memory are free. {re.escape(advice)}$"):
        sizes.check(None, None)
