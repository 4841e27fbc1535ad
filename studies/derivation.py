"""The quality of each step from V[delta] to sigma^2 (section 3.1).

Each line of the derivation is divided by the variance of the TD errors that it approximates: on simulated processes,
for values that are zero and for values as the paper takes them early in learning, returns that belong to other steps.

    python -m studies.derivation --output_dir=figures
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from studies import figure
from studies.episodes import Episode, Stream

#: The lines in the paper's order; the first is exact, the last is sigma^2.
LINES = (
    "V[delta]",
    "three independent terms",
    "gamma independent of V",
    "returns for values",
    "gaps of G from R and G",
    "factors in [1, 3] dropped",
    "sigma^2",
)
DRAWS = 16  # value functions to average over


def lines(stream: Stream, values: np.ndarray) -> np.ndarray:
    """The lines of the derivation for given values.

    Args:
      stream: N steps.
      values: float [..., N], value functions to average over.

    Returns:
      float64 [7], one number for each of `LINES`.
    """
    gamma, returns = stream.discounts, stream.returns
    reward, discount, horizon = stream.rewards.var(), gamma.var(), (1 - gamma.mean()) ** 2
    squared_return, returns_variance = np.square(returns).mean(), returns.var()

    def independent_discount(values: np.ndarray) -> np.ndarray:
        gaps = stream.following(values) - values
        return (
            reward
            + gamma.mean() ** 2 * gaps.var(axis=-1)
            + discount * np.square(gaps).mean(axis=-1)
            + horizon * values.var(axis=-1)
            + discount * np.square(values).mean(axis=-1)
        )

    gaps = gamma * (stream.following(values) - values)
    three_terms = reward + gaps.var(axis=-1) + ((1 - gamma) * values).var(axis=-1)
    factor = 1 + gamma.mean() ** 2
    return np.array(
        [
            stream.errors(values).var(axis=-1).mean(),
            three_terms.mean(),
            independent_discount(values).mean(),
            independent_discount(returns),
            (factor + discount) * (reward + horizon * returns_variance) + factor * discount * squared_return,
            reward + horizon * returns_variance + discount * squared_return,
            reward + discount * squared_return,
        ]
    )


def simulated(seed: int = 0) -> dict[str, Stream]:
    """Processes that stress one assumption each: 200 episodes of about 100 steps."""
    rng = np.random.default_rng(seed)
    fixed = np.full(200, 100)
    random_lengths = rng.geometric(0.01, size=200)

    def stream(gamma: float, rewards: Sequence[np.ndarray]) -> Stream:
        return Stream.of([Episode(np.asarray(r, np.float64)) for r in rewards], gamma)

    return {
        "independent N(0, 1)": stream(0.97, [rng.normal(0, 1, n) for n in random_lengths]),
        "independent N(1, 1)": stream(0.97, [rng.normal(1, 1, n) for n in random_lengths]),
        "sparse: 1 in 100 steps": stream(0.97, [rng.random(n) < 0.01 for n in random_lengths]),
        "sine, period 50": stream(0.97, [np.sin(2 * np.pi * np.arange(n) / 50) for n in fixed]),
        "at the end only": stream(0.97, [np.arange(n) == n - 1 for n in fixed]),
        "constant, gamma 1": stream(1.0, [np.full(n, -5.0) for n in fixed]),
    }


def study(streams: dict[str, Stream]) -> list[tuple]:
    """Rows of process, values, and the seven `LINES`."""
    rows = []
    for name, stream in streams.items():
        rows.append((name, "early", *lines(stream, stream.early_values(DRAWS))))
        rows.append((name, "zero", *lines(stream, np.zeros(len(stream.rewards)))))
    return rows


def draw(rows: list[tuple]) -> figure.Figure:
    """Ratios to V[delta], line by line."""
    drawing, (panels,) = figure.new_figure(1, 2, panel=(5.0, 4.0), sharey="row")
    titles = {
        "early": "values as early in learning: returns of other steps",
        "zero": "zero values (where V[delta] is not 0)",
    }
    for panel, (kind, title) in zip(panels, titles.items(), strict=True):
        for name, of, *numbers in rows:
            if of == kind and numbers[0] > 0:
                ratios = np.array(numbers) / numbers[0]
                panel.plot(range(len(LINES)), ratios, marker="o", markersize=3, label=name)
        panel.set(title=title, yscale="log")
        panel.axhline(1.0, color=figure.COLOURS["reference"], linewidth=1)
        panel.set_xticks(range(len(LINES)), LINES, rotation=30, ha="right")
    panels[0].set_ylabel("line of the derivation / V[delta]")
    drawing.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return drawing


def main(command_line: Sequence[str] | None = None) -> None:
    options = figure.arguments(__doc__, command_line)
    rows = study(simulated())
    spans = []
    for kind in ("early", "zero"):
        ratios = [row[-1] / row[2] for row in rows if row[1] == kind and row[2] > 0]
        spans.append(f"{min(ratios):.2g} to {max(ratios):.2g} times for {kind} values")
    conclusion = f"sigma^2 is V[delta] {' and '.join(spans)}."
    figure.save(draw(rows), "derivation", rows, ["process", "values", *LINES], conclusion, options.output_dir)


if __name__ == "__main__":
    main()
