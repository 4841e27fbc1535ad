"""The README says what its figure shows."""

import numpy as np

from benchmarks import effect_figure
from tests.source_tree import ROOT

README = " ".join((ROOT / "README.md").read_text().split())


def test_the_shares_that_it_names_are_those_of_the_left_panel():
    shares = effect_figure.shares_by_multiplier()
    columns = (effect_figure.WITHOUT, effect_figure.WITH, effect_figure.OUTPUTS)
    for place, words in (
        (2, "agent reaches {} without scaling, {} with scaled errors, and {} with scaled errors and outputs"),
        (0, "times 0.001 it reaches {}, {} and {} "),
    ):
        numbers = (f"{np.exp(np.log(shares[name][place]).mean()):.2f}" for name in columns)
        assert words.format(*numbers) in README


def test_the_factors_that_it_names_are_those_of_the_right_panel():
    errors = effect_figure.errors_by_head()
    for name in (effect_figure.WITH, effect_figure.WITHOUT):
        means = [np.mean(values) for values in errors[name].values()]
        assert len(means) == 10
        assert f"{float(f'{max(means) / min(means):.2g}'):,.4g}" in README
