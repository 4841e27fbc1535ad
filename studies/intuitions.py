"""Six scenarios that a scale has to get right (sections 2 and 2.1, figure 2): sigma, and the false friends.

Each scenario compares a sequence with a reference. A good scale grows by the factor by which the reference's errors
would have to be multiplied to become the variant's. What that factor is, an oracle says: the standard deviation of
TD errors under values that are as smooth and as large as the returns but know nothing, namely the returns shifted
in time, averaged over all shifts.

    python -m studies.intuitions --output_dir=figures
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from studies import figure
from studies.episodes import Episode, Stream

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEPS = 100
GAMMA = 0.97
SCALES = ("oracle", "sigma", "std(R)", "std(G)", "1/(1-gamma)")


@dataclass(frozen=True)
class Sequence:
    """One episode of T steps; `gamma` until its last step, 0 there.

    Attributes:
      rewards: float64 [T].
      gamma: the discount between steps.
      duration: of a step, in steps of the reference.
    """

    rewards: np.ndarray
    gamma: float = GAMMA
    duration: int = 1

    @property
    def stream(self) -> Stream:
        return Stream.of([Episode(self.rewards)], self.gamma)

    def scales(self) -> dict[str, float]:
        """Each of `SCALES` of this sequence."""
        return {
            "oracle": oracle(self.stream),
            "sigma": float(self.stream.moments.sigma[0]),
            "std(R)": float(self.rewards.std()),
            "std(G)": float(self.stream.returns.std()),
            "1/(1-gamma)": 1.0 / (1.0 - self.gamma),
        }


@dataclass(frozen=True)
class Scenario:
    """A reference, a variant of it, and the simple scale that fails to tell them apart.

    Attributes:
      title: what distinguishes the variant.
      friend: the failing scale, one of `SCALES`, or "clip".
    """

    title: str
    reference: Sequence
    variant: Sequence
    friend: str

    def factors(self) -> dict[str, float]:
        """Each of `SCALES` of the variant, divided by the reference's."""
        reference, variant = self.reference.scales(), self.variant.scales()
        return {name: variant[name] / reference[name] for name in SCALES}

    def befriended(self) -> Sequence:
        """The variant as the false friend scales it."""
        if self.friend == "clip":
            return Sequence(np.clip(self.variant.rewards, -1.0, 1.0), self.variant.gamma)
        return scaled(self.variant, self.factors()[self.friend])


def oracle(stream: Stream) -> float:
    """Root mean variance of the TD errors of T steps over all circular shifts of the returns as values."""
    steps = np.arange(len(stream.returns))
    values = stream.returns[(steps[:, None] + steps) % len(steps)]  # [shift, T]
    return float(np.sqrt(stream.errors(values).var(axis=1).mean()))


def scaled(sequence: Sequence, factor: float) -> Sequence:
    """The sequence with rewards, and so returns, divided by `factor`."""
    return Sequence(sequence.rewards / factor, sequence.gamma, sequence.duration)


def scenarios() -> list[Scenario]:
    """(a) to (f), with the paper's ideas in explicit sequences of 100 steps around one sine of period 50."""
    steps = np.arange(STEPS)
    wave = np.sin(2.0 * np.pi * steps / 50.0)
    reference = Sequence(wave)
    shuffled = reference.stream.returns[(37 * steps + 11) % STEPS]
    jumps = shuffled - reference.stream.discounts * np.append(
        shuffled[1:], 0.0
    )  # the rewards with these returns
    dense, sparse = (steps % 2 == 0).astype(float), (steps == STEPS - 1).astype(float)
    return [
        Scenario("(a) rewards times 10", reference, Sequence(10.0 * wave), "clip"),
        Scenario("(b) rewards plus 1", reference, Sequence(wave + 1.0), "std(R)"),
        Scenario("(c) returns shuffled in time", reference, Sequence(jumps), "std(G)"),
        Scenario("(d) dense to sparse", Sequence(dense), Sequence(sparse), "std(R)"),
        Scenario("(e) gamma .9 to .999", Sequence(wave, 0.9), Sequence(wave, 0.999), "1/(1-gamma)"),
        Scenario(
            "(f) 5 steps made one", reference, Sequence(wave.reshape(-1, 5).sum(1), duration=5), "std(G)"
        ),
    ]


def draw(cases: list[Scenario]) -> Figure:
    """One panel per scenario with rewards as dots and returns as lines, and one with all factors."""
    sheet, axes = figure.new_figure(3, 3, panel=(4.2, 3.4))
    for axis, case in zip(axes.flat, cases, strict=False):
        _sequences(axis, case)
    grid = axes[-1, 0].get_gridspec()
    for axis in axes[-1]:
        axis.remove()
    _all_factors(sheet.add_subplot(grid[-1, :]), cases)
    return sheet


def _sequences(axis: Axes, case: Scenario) -> None:
    factors = case.factors()

    def divided_by(scale: str) -> str:
        return f"variant / {float(f'{factors[scale]:.2g}'):g}, by {scale}"

    friend = "variant, rewards clipped" if case.friend == "clip" else divided_by(case.friend)
    for sequence, role, label, line, width in (
        (case.reference, "reference", "reference", "-", 1.5),
        (case.variant, "unscaled", "variant", "-", 1.0),
        (scaled(case.variant, factors["sigma"]), "scaled", divided_by("sigma"), "-", 1.5),
        (case.befriended(), "false friend", friend, ":", 2.0),
    ):
        times = sequence.duration * np.arange(len(sequence.rewards))
        axis.plot(times, sequence.stream.returns, line, color=figure.COLOURS[role], lw=width, label=label)
        axis.plot(times, sequence.rewards, ".", color=figure.COLOURS[role], ms=3)
    axis.set_title(case.title, loc="left")
    axis.set_xlabel("time [steps of the reference]")
    axis.set_ylabel("reward (dots), return (lines)")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, columnspacing=1.0, handlelength=1.2)


def _all_factors(axis: Axes, cases: list[Scenario]) -> None:
    for place, (name, marker) in enumerate(zip(SCALES[1:], "ovsX", strict=True)):
        factors = [case.factors()[name] for case in cases]
        colour = figure.COLOURS["scaled" if name == "sigma" else "false friend"]
        axis.plot(
            np.arange(len(cases)) + 0.16 * (place - 1.5), factors, marker, color=colour, label=name, ms=7
        )
    for place, case in enumerate(cases):
        label = "growth of the errors (oracle)" if place == 0 else None
        axis.hlines(
            case.factors()["oracle"], place - 0.4, place + 0.4, figure.COLOURS["reference"], label=label
        )
    axis.set_yscale("log")
    axis.set_xticks(range(len(cases)), [case.title for case in cases])
    axis.set_ylabel("scale, variant / reference")
    axis.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=5)


def main(command_line: list[str] | None = None) -> None:
    options = figure.arguments(__doc__, command_line)
    cases = scenarios()
    table = [case.factors() for case in cases]
    worst = {
        name: max(abs(np.log(factors[name] / factors["oracle"])) for factors in table) for name in SCALES
    }
    others = ", ".join(f"{name} {np.exp(worst[name]):.1f}" for name in SCALES[2:])
    figure.save(
        draw(cases),
        "intuitions",
        [[case.title, case.friend, *factors.values()] for case, factors in zip(cases, table, strict=True)],
        ["scenario", "false friend drawn", *(f"{name}: variant / reference" for name in SCALES)],
        f"Over six scenarios sigma misses the factor by which errors grow by at most {np.exp(worst['sigma']):.2f}x; "
        f"the false friends by up to: {others}.",
        options.output_dir,
    )


if __name__ == "__main__":
    main()
