"""The README says what its figure shows."""

import numpy as np

from benchmarks import effect_figure
from tests.source_tree import ROOT

README = (ROOT / "README.md").read_text()


def test_the_shares_that_it_names_are_those_of_the_left_panel():
    shares = effect_figure.shares_by_multiplier()
    for values in shares.values():
        first, _, last = [np.exp(np.log(of).mean()) for of in values]
        assert f"{first:.2f} and {last:.2f}" in README


def test_the_factors_that_it_names_are_those_of_the_right_panel():
    errors = effect_figure.errors_by_head()
    for name in (effect_figure.WITH, effect_figure.WITHOUT):
        means = [np.mean(values) for values in errors[name].values()]
        assert len(means) == 10
        assert f"{float(f'{max(means) / min(means):.2g}'):,.4g}" in README
