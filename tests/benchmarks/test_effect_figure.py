"""The README says what its figure shows."""

import numpy as np

from benchmarks import effect_figure
from tests.source_tree import ROOT

README = (ROOT / "README.md").read_text()


def test_the_shares_that_it_names_are_those_of_the_left_panel():
    shares = effect_figure.shares_by_multiplier()
    columns = (effect_figure.WITHOUT, effect_figure.WITH, effect_figure.OUTPUTS)
    for place, times in ((0, "0.001"), (2, "10,000")):
        cells = [f"{np.exp(np.log(shares[name][place]).mean()):.2f}" for name in columns]
        assert f"| {times} | {' | '.join(cells)} |" in README


def test_the_factors_that_it_names_are_those_of_the_right_panel():
    errors = effect_figure.errors_by_head()
    for name in (effect_figure.WITH, effect_figure.WITHOUT):
        means = [np.mean(values) for values in errors[name].values()]
        assert len(means) == 10
        assert f"{float(f'{max(means) / min(means):.2g}'):,.4g}" in README
