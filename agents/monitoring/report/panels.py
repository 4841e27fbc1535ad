"""The drawings: one small SVG per panel, in ink that follows the page's colours, groups told apart by three marks."""

from __future__ import annotations

import contextlib
import html
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from agents.monitoring import figure
from agents.monitoring.report import estimates, settings
from agents.monitoring.report.groups import AXES, KINDS, Group, Study
from agents.monitoring.report.numbers import ALL, Choices, Curves, Numbers

# At least 3:1 against the page's light and its dark ground, and apart for the colour-blind (after Okabe and Ito).
COLOURS = ("#009e73", "#d55e00", "#2f86c5", "#b8629a", "#b07a00", "#8a8d92", "#7d6bd0")
# The paper's: green with the method, red without; nobody else gets these two while there are others.
OF_SCALING = {"@scalings.return_based": 0, "@scalings.none": 1}
DASHES = ((), (5, 2), (1.5, 1.5), (7, 2, 1.5, 2))  # in units of the line's width
MARKERS = ("o", "s", "^", "D", "v", "P")
MOST_PANELS = 6  # of heads; of more environments all are drawn in one
_INK = "#010203"  # stands for the page's text colour until the SVG is written
_SIZE = (4.4, 2.9)  # inches
_PROBABILITIES = (0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1)


class Style(NamedTuple):
    """How a group is drawn, everywhere."""

    colour: str
    dashes: tuple[float, ...]
    marker: str

    def line(self, **more) -> dict:
        """Of matplotlib's `plot`."""
        return {
            "color": self.colour,
            "dashes": self.dashes,
            "marker": self.marker,
            "ms": 3.5,
            "lw": 1.6,
        } | more


class Panel(NamedTuple):
    """A drawing, which says in words what it shows, and its title."""

    svg: str
    title: str


def styles(groups: Sequence[Group]) -> dict[str, Style]:
    """Group -> its style. Colours, dashes and markers repeat at different lengths: 84 combinations."""
    of_scaling = [OF_SCALING.get(group.settings.get(settings.SCALING, "")) for group in groups]
    taken = {index for index in of_scaling if index is not None}
    free = itertools.cycle([index for index in range(len(COLOURS)) if index not in taken])
    found, seen = {}, set()
    for place, (group, wanted) in enumerate(zip(groups, of_scaling, strict=True)):
        index = next(free) if wanted is None or wanted in seen else wanted
        seen.add(wanted)
        dashes, marker = DASHES[place % len(DASHES)], MARKERS[place % len(MARKERS)]
        found[group.label] = Style(COLOURS[index], dashes, marker)
    return found


@contextlib.contextmanager
def ink() -> Iterator[None]:
    """Everything below has to be drawn within: text and axes in the page's colour, on no ground of their own."""
    import matplotlib

    parts = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    grounds = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    settings_of = dict.fromkeys(parts, _INK) | dict.fromkeys(grounds, "none") | {"svg.fonttype": "none"}
    with matplotlib.rc_context():
        matplotlib.rcParams.update(settings_of)
        yield


def learning_curves(study: Study, numbers: Numbers, look: Mapping[str, Style]) -> list[Panel]:
    """A panel for each environment and kind of returns: every seed thin, the mean with its interval."""
    found = []
    for environment, kind in itertools.product(study.environments, KINDS):
        curves = [c for c in numbers.curves if (c.environment, c.kind) == (environment, kind)]
        if curves:
            drawing, axes = _new()
            for curve in curves:
                _curve(axes, curve, look[curve.group])
            axes.set(xlabel=AXES[study.axis], ylabel="return per episode", xlim=(0, None))
            found.append(_panel(drawing, f"{environment}: {kind} returns", _in_words(curves)))
    return found


def _curve(axes, curve: Curves, style: Style) -> None:
    for values in curve.seeds:
        axes.plot(curve.places, values, color=style.colour, lw=0.7, alpha=0.45)
    mean, low, high = curve.mean
    axes.fill_between(curve.places, low, high, color=style.colour, alpha=0.18, lw=0)
    axes.plot(curve.places, mean, **style.line(markevery=4))


def _in_words(curves: Sequence[Curves]) -> str:
    ends = []
    for curve in curves:
        known = np.flatnonzero(~np.isnan(curve.mean[0]))
        if len(known):
            ends.append(f"{curve.group} {curve.mean[0, known[-1]]:.4g}")
    return f"means at the end: {', '.join(ends)}" if ends else "no stretch that all seeds have"


def human_normalised(study: Study, numbers: Numbers, look: Mapping[str, Style]) -> list[Panel]:
    """The paper's Figure 4: mean, median and capped mean over games, with inter-quartile bands."""
    found = []
    for index, name in enumerate(estimates.AGGREGATES):
        drawing, axes = _new()
        for label, bands in numbers.human_curves.items():
            point, low, high = bands[index]
            axes.fill_between(numbers.human_places, low, high, color=look[label].colour, alpha=0.18, lw=0)
            axes.plot(numbers.human_places, point, **look[label].line(markevery=4))
        axes.set(xlabel=AXES[study.axis], ylabel=f"{name}, human-normalised", xlim=(0, None))
        ends = [f"{label} {bands[index, 0, -1]:.3g}" for label, bands in numbers.human_curves.items()]
        found.append(_panel(drawing, name.capitalize(), f"at the end: {', '.join(ends)}"))
    return found


def aggregates(numbers: Numbers, look: Mapping[str, Style]) -> list[Panel]:
    """Final aggregates with intervals, and the performance profile."""
    drawing, axes = _new()
    names = estimates.ALL_AGGREGATES
    for place, (label, values) in enumerate(numbers.aggregates.items()):
        at = np.arange(len(names)) + 0.6 * ((place + 0.5) / len(numbers.aggregates) - 0.5)
        _points(axes, values, at, look[label], horizontal=True)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlabel="human-normalised score")
    ends = [f"{label} {values[0, -1]:.3g}" for label, values in numbers.aggregates.items()]
    found = [_panel(drawing, "Final scores", f"interquartile means: {', '.join(ends)}")]
    drawing, axes = _new()
    for label, (point, low, high) in numbers.profiles.items():
        axes.fill_between(numbers.thresholds, low, high, color=look[label].colour, alpha=0.18, lw=0)
        axes.plot(numbers.thresholds, point, **look[label].line(markevery=5))
    axes.set(xlabel="human-normalised score", ylabel="share of runs above it", ylim=(0, 1.02))
    above = [
        f"{label} {np.interp(1, numbers.thresholds, values[0]):.0%}"
        for label, values in numbers.profiles.items()
    ]
    return [*found, _panel(drawing, "Performance profile", f"runs above human level: {', '.join(above)}")]


def improvement(numbers: Numbers) -> list[Panel]:
    """Probabilities that a run of one group beats one of another, over all environments, else in the only one."""
    names = {row.environment for row in numbers.improvements}
    name = ALL if ALL in names else next(iter(names), None)
    rows = [row for row in numbers.improvements if row.environment == name]
    if not rows:
        return []
    drawing, axes = _new((_SIZE[0], 0.8 + 0.35 * len(rows)))
    values = np.stack([row.probability for row in rows], axis=1)
    _points(axes, values, np.arange(len(rows)), Style("#8a8d92", (), "o"), horizontal=True)
    axes.axvline(0.5, color=_INK, lw=0.8, ls=":")
    axes.set_yticks(range(len(rows)), [f"{row.first} > {row.second}" for row in rows])
    axes.set(xlabel="probability of improvement", xlim=(-0.02, 1.02), ylim=(len(rows) - 0.5, -0.5))
    words = ", ".join(f"{row.first} beats {row.second}: {row.probability[0]:.2f}" for row in rows)
    return [_panel(drawing, f"Probability of improvement, {name}", words)]


def heads(
    study: Study,
    numbers: Numbers,
    look: Mapping[str, Style],
    name: str,
    label: str,
    reference: str | None = None,
) -> list[Panel]:
    """A quantity of every head, a panel for each environment, or all in one as in the paper's Figure 5.

    Args:
      name: one of `HeadNumbers.names`. Of the share, the first fifth is drawn beside the last, as in the paper.
      label: what to write at the axis.
      reference: divides by this group's mean over seeds in the same environment.
    """
    few = len(study.environments) <= MOST_PANELS
    names = list(dict.fromkeys(itertools.chain.from_iterable(run.heads for run in numbers.heads)))
    found = []
    for shown in [[environment] for environment in study.environments] if few else [study.environments]:
        drawing, axes = _new()
        means: dict[str, list[np.ndarray]] = {}
        for environment, group in itertools.product(shown, look):
            values = _of_heads(numbers, environment, group, name, names)
            if reference is not None:
                values = values / _of_heads(numbers, environment, reference, name, names)[0].mean(axis=0)
            mean = values[0].mean(axis=0)
            if not np.isnan(mean).all():
                _draw_heads(axes, values, look[group], name == "share", len(shown) == 1)
                means.setdefault(group, []).append(mean)
        if not means:
            continue
        axes.set_xticks(range(len(names)), names, rotation=45, ha="right", rotation_mode="anchor")
        axes.set(xlim=(-0.5, len(names) - 0.5), ylabel=label)
        if reference is not None or name == "value_error":
            axes.axhline(1, color=_INK, lw=0.8, ls=":")
        of_all = np.concatenate([np.ravel(of) for of in means.values()])
        if name == "loss" or (name == "value_error" and np.nanmax(of_all) > 30 * np.nanmin(of_all)):
            axes.set_yscale("log")
        words = [f"{group} {np.nanmin(of):.3g} to {np.nanmax(of):.3g}" for group, of in means.items()]
        title = shown[0] if few else f"{len(shown)} environments, a line for each"
        found.append(_panel(drawing, title, f"{label}, over heads: {', '.join(words)}"))
    return found


def _of_heads(numbers: Numbers, environment: str, group: str, name: str, names: Sequence[str]) -> np.ndarray:
    """[2, seeds, H]: what is drawn, of the whole run for the loss, else of its last fifth; and that of the first fifth.

    NaN for heads that a run does not have; one seed of NaN if there is no run.
    """
    runs = [run for run in numbers.heads if (run.environment, run.group) == (environment, group)]
    values = np.full((2, max(len(runs), 1), len(names)), np.nan)
    for seed, run in enumerate(runs):
        at = [names.index(head) for head in run.heads]
        values[0, seed, at] = run.of(name, "whole run" if name == "loss" else "last fifth")
        values[1, seed, at] = run.of(name, "first fifth")
    return values


def _draw_heads(axes, values: np.ndarray, style: Style, first_too: bool, alone: bool) -> None:
    """Draws a group in an environment, from [2, seeds, H]."""
    numbers = estimates.curve_interval(values[0])
    at = np.arange(values.shape[-1])
    if not alone:
        axes.plot(at, numbers[0], **style.line(lw=0.7, ms=2, alpha=0.7))
        return
    if first_too:
        axes.plot(at, values[1].mean(axis=0), style.marker, mfc="none", mec=style.colour, ms=5, alpha=0.8)
    _points(axes, numbers, at, style)
    axes.plot(at, numbers[0], **style.line())


def choices(study: Study, numbers: Numbers) -> list[Panel]:
    """The bandit's probabilities over time: a panel for each group, and for each environment if these are few."""
    import matplotlib
    from matplotlib.colors import BoundaryNorm

    few = len(study.environments) <= MOST_PANELS
    found = []
    shades = matplotlib.colormaps["cividis"]
    groups = [group.label for group in study.groups]
    for environments in (
        [[environment] for environment in study.environments] if few else [study.environments]
    ):
        for group in groups:
            runs = [run for run in numbers.choices if run.group == group and run.environment in environments]
            runs = [run for run in runs if run.heads == runs[0].heads]
            if not runs:
                continue
            drawing, axes = _new()
            # Environments are of different lengths: over all of them the axis is the share of the run.
            places = np.array([0, *runs[0].places]) if few else np.linspace(0, 1, len(runs[0].places) + 1)
            values = np.mean([run.probability for run in runs], axis=0)
            mesh = axes.pcolormesh(
                places,
                np.arange(len(runs[0].heads) + 1),
                np.ma.masked_invalid(values),
                cmap=shades,
                norm=BoundaryNorm(_PROBABILITIES, shades.N),
            )
            axes.set_yticks(np.arange(len(runs[0].heads)) + 0.5, runs[0].heads)
            axes.invert_yaxis()
            axes.set_xlabel(AXES[study.axis] if few else f"share of the {AXES[study.axis]}")
            drawing.colorbar(mesh, ax=axes, ticks=_PROBABILITIES[:-1], label="probability", pad=0.02)
            where = environments[0] if few else f"mean over {len(environments)} environments"
            favourite = runs[0].heads[int(np.argmax(played(runs)))]
            words = f"probability of each head over time; most played: {favourite}"
            found.append(_panel(drawing, f"{where}: {group}", words))
    return found


def played(runs: Sequence[Choices]) -> np.ndarray:
    """Share of all of the runs' finished episodes that each head has acted in: [H]."""
    episodes = np.sum([run.episodes.sum(axis=1) for run in runs], axis=0)
    return episodes / max(episodes.sum(), 1.0)


def loss_and_score(study: Study, numbers: Numbers, look: Mapping[str, Style]) -> list[Panel]:
    """A panel for each environment: the way that loss and score take together, from the circle to the triangle."""
    found = []
    for environment in study.environments:
        ways = [path for path in numbers.paths if path.environment == environment]
        if not ways:
            continue
        drawing, axes = _new()
        for way in ways:
            style = look[way.group]
            axes.plot(way.score, way.loss, **style.line(marker=""))
            known = np.flatnonzero(~np.isnan(way.score + way.loss))
            for end, marker in ((known[0], "o"), (known[-1], "^")):
                axes.plot(way.score[end], way.loss[end], marker, color=style.colour, ms=6)
        axes.set(xlabel="training return per episode", ylabel="loss, sum over heads", yscale="log")
        spans = [f"{way.group} {np.nanmin(way.loss):.3g} to {np.nanmax(way.loss):.3g}" for way in ways]
        found.append(_panel(drawing, environment, f"losses: {', '.join(spans)}"))
    return found


def swatch(style: Style) -> str:
    """A piece of a group's line with its marker, as SVG for a legend."""
    drawing, axes = _new((0.5, 0.16))
    axes.plot([0, 0.5, 1], [0, 0, 0], **style.line(markevery=[1], ms=5))
    axes.axis("off")
    return _panel(drawing, "", "").svg.replace('role="img" aria-label=": "', 'aria-hidden="true"')


def _points(axes, numbers: np.ndarray, at: np.ndarray, style: Style, horizontal: bool = False) -> None:
    """Points with their intervals, from [3, K]."""
    point, low, high = numbers
    spread = np.nan_to_num(np.stack([point - low, high - point])).clip(0)
    first, second = (point, at) if horizontal else (at, point)
    axes.errorbar(
        first,
        second,
        **{"xerr" if horizontal else "yerr": spread},
        fmt=style.marker,
        ms=4,
        color=style.colour,
        capsize=2.5,
        lw=1.2,
    )


def _new(size: tuple[float, float] = _SIZE):
    drawing, axes = figure.new_figure(panel=size)
    return drawing, axes[0, 0]


_count = itertools.count()


def _panel(drawing, title: str, words: str) -> Panel:
    """Makes a figure part of a page: names of its own, the page's ink, nothing from elsewhere."""
    buffer = io.StringIO()
    drawing.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    prefix = f"p{next(_count)}-"
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", svg)
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}", svg)
    svg = re.sub(r'xlink:href="#', f'href="#{prefix}', svg)
    svg = svg.replace(_INK, "currentColor")
    return Panel(
        svg.replace("<svg", f'<svg role="img" aria-label="{html.escape(f"{title}: {words}")}"', 1), title
    )
