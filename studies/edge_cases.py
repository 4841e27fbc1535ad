"""The appendix's edge cases: exact value, the paper's closed form, and the error of the closed form.

Rewards are independent with mean mu and variance v; nothing is sampled. Episodes last T steps, or end after each step
with probability 1/T ("geometric"); gamma is constant until the last step, where it is 0.

    python -m studies.edge_cases --output_dir=figures
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from studies import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LENGTHS = np.unique(np.logspace(0.0, 4.0, 41).astype(int))


class Case(NamedTuple):
    """One quantity of one setting.

    Attributes:
      name: the edge case.
      setting: what is the same along a line of the figure.
      length: T, or the mean length of geometric episodes.
      exact: its value.
      closed_form: the paper's.
    """

    name: str
    setting: str
    length: int
    exact: float
    closed_form: float

    @property
    def ratio(self) -> float:
        """closed form / exact."""
        return self.closed_form / self.exact


def discount_moments(length: int, gamma: float) -> tuple[float, float]:
    """E[gamma] and V[gamma] where one step in `length` is an episode's last."""
    going_on = 1.0 - 1.0 / length
    return going_on * gamma, going_on / length * gamma**2


def mean_square_return(length: int, gamma: float, mean: float, variance: float) -> float:
    """E[G^2] over all steps of episodes of `length` steps."""
    weights = gamma ** np.arange(length)
    return float(np.mean(variance * np.cumsum(weights**2) + np.square(mean * np.cumsum(weights))))


def sigma_squared(length: int, gamma: float, mean: float, variance: float) -> float:
    """V[R] + V[gamma] E[G^2] in episodes of `length` steps."""
    discount_variance = discount_moments(length, gamma)[1]
    return variance + discount_variance * mean_square_return(length, gamma, mean, variance)


def constant_reward(length: int, reward: float) -> float:
    """sigma^2 where every reward is the same and gamma is 1."""
    return reward**2 * (length - 1) * (length + 1) * (2 * length + 1) / (6 * length**2)


def constant_reward_in_the_appendix(length: int, gamma: float, reward: float) -> float:
    """V[gamma] / (1 - E[gamma])^2 E[R]^2."""
    mean, variance = discount_moments(length, gamma)
    return variance / (1.0 - mean) ** 2 * reward**2


def brownian_variance(length: int, gamma: float) -> float:
    """V[G] / V[R] in geometric episodes of mean `length`, rewards of mean 0: 1 / (1 - E[gamma^2])."""
    return 1.0 / (1.0 - (1.0 - 1.0 / length) * gamma**2)


def brownian_variance_in_the_appendix(length: int, gamma: float) -> float:
    """1 / (1 - E[gamma])."""
    return 1.0 / (1.0 - discount_moments(length, gamma)[0])


def cases(lengths: Sequence[int] = tuple(LENGTHS)) -> list[Case]:
    """All of the appendix, over episode lengths."""
    found = []
    for length in map(int, lengths):
        for gamma, mean in ((0.0, 1.0), (0.99, 0.0), (0.99, 1.0), (1.0, 0.0), (1.0, 1.0)):
            exact = sigma_squared(length, gamma, mean, 1.0)
            name = "T = 1" if length == 1 else "gamma = 0" if gamma == 0.0 else "T to infinity"
            found.append(Case(name, f"gamma {gamma:g}, mean reward {mean:g}", length, exact, 1.0))
        for gamma in (0.9, 0.99, 1.0):
            setting = f"gamma {gamma:g}"
            if length > 1:  # else both are 0
                exact = (
                    constant_reward(length, 1.0) if gamma == 1.0 else sigma_squared(length, gamma, 1.0, 0.0)
                )
                paper = constant_reward_in_the_appendix(length, gamma, 1.0)
                found.append(Case("constant reward", setting, length, exact, paper))
            exact, paper = brownian_variance(length, gamma), brownian_variance_in_the_appendix(length, gamma)
            found.append(Case("Brownian", setting, length, exact, paper))
    return found


def draw(results: Sequence[Case]) -> Figure:
    """Values above, closed form / exact below, over the length of episodes."""
    sheet, axes = figure.new_figure(2, 3, panel=(4.2, 3.2), sharex=True)
    panels = {
        "T = 1, gamma = 0, T to infinity": (("T = 1", "gamma = 0", "T to infinity"), "sigma^2 / V[R]"),
        "constant reward c": (("constant reward",), "sigma^2 / c^2"),
        "Brownian returns, geometric episodes": (("Brownian",), "V[G] / V[R]"),
    }
    for (upper, lower), (title, (names, quantity)) in zip(axes.T, panels.items(), strict=True):
        chosen = [case for case in results if case.name in names]
        _panel(upper, lower, chosen)
        if min(case.ratio for case in chosen) < 0.1:
            lower.set_yscale("log")
        else:
            lower.set_ylim(0.0)
        upper.set_title(title, loc="left")
        upper.set_ylabel(quantity)
        lower.set_ylabel("closed form / exact")
        lower.set_xlabel("length of episodes [steps]")
        lower.axhline(1.0, color=figure.COLOURS["reference"], lw=0.8)
        lower.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))
    exact, closed_form = axes[0, 0].lines[:2]
    axes[0, 0].legend([exact, closed_form], ["exact", "the paper's closed form"], loc="upper left")
    return sheet


def _panel(upper: Axes, lower: Axes, chosen: Sequence[Case]) -> None:
    settings = list(dict.fromkeys(case.setting for case in chosen))
    for setting, marker in zip(settings, "osv^D", strict=False):
        line = [case for case in chosen if case.setting == setting]
        lengths = [case.length for case in line]
        look = {"marker": marker, "markevery": 5, "ms": 5, "label": setting}
        upper.loglog(lengths, [case.exact for case in line], color=figure.COLOURS["scaled"], **look)
        upper.loglog(lengths, [case.closed_form for case in line], "--", color=figure.COLOURS["false friend"])
        lower.plot(lengths, [case.ratio for case in line], color=figure.COLOURS["false friend"], **look)


def main(command_line: Sequence[str] | None = None) -> None:
    options = figure.arguments(__doc__, command_line)
    results = cases()

    def last(name: str, setting: str) -> float:
        return next(c.ratio for c in reversed(results) if (c.name, c.setting) == (name, setting))

    off = max(abs(case.ratio - 1.0) for case in results if case.name in ("T = 1", "gamma = 0"))
    figure.save(
        draw(results),
        "edge_cases",
        [[*case, case.ratio] for case in results],
        ["case", "setting", "episode length [steps]", "exact", "paper's closed form", "closed form / exact"],
        f"The closed forms are off by {off:g} for T = 1 and gamma = 0; in the longest episodes closed form / exact is "
        f"{last('T to infinity', 'gamma 0.99, mean reward 0'):.2g} for sigma^2 = V[R] where returns stay bounded but "
        f"{last('T to infinity', 'gamma 1, mean reward 1'):.1g} where they grow, "
        f"{last('constant reward', 'gamma 1'):.2g} (gamma 1) and {last('constant reward', 'gamma 0.99'):.2g} "
        "(gamma 0.99) for constant rewards, and for Brownian returns "
        f"{last('Brownian', 'gamma 1'):.2g} (gamma 1), {last('Brownian', 'gamma 0.99'):.2g} (gamma 0.99).",
        options.output_dir,
    )


if __name__ == "__main__":
    main()
