"""The figures: one image for each panel. A group has the same colour, line and marker in all of them."""

from __future__ import annotations

import base64
import functools
import html
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from agents.monitoring import figure
from agents.monitoring.report import estimates, recorded
from agents.monitoring.report.groups import AXES, Group, Study
from agents.monitoring.report.numbers import ALL, Tables

# Apart for the colour-blind (after Okabe and Ito). The paper's come first: green with the method, red without.
COLOURS = ("#009e73", "#d55e00", "#2f86c5", "#b8629a", "#b07a00", "#8a8d92", "#7d6bd0")
LINES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P")
MOST_PANELS = 6  # of heads; of more environments all are drawn in one
_LEVELS = {"probability": 0.5, "value_error": 1}  # to be drawn across the panel

Table: TypeAlias = pd.DataFrame
Look = dict[str, dict[str, Any]]  # group -> options of matplotlib's `plot`


def draw(study: Study, tables: Tables) -> dict[str, Iterator[str]]:
    """All figures by their places on the page."""
    look, pairs = styles(study.groups), tables["improvement"]
    shown = ALL if (pairs["environment"] == ALL).any() else pairs["environment"].min()
    pairs = pairs[pairs["environment"] == shown]
    pairs = pairs.assign(group=pairs["first"], pair=pairs["first"] + " > " + pairs["second"])
    line = functools.partial(lines, look)
    heads = functools.partial(of_heads, look, study, tables["heads"])
    over = {"xlabel": AXES[study.axis], "xlim": (0, None), "ylabel": "return"}
    points, seeds = f"{study.axis} mean low high", tables["learning_curves"]
    scores = {"ylabel": "human-normalised score"}
    return {
        "curves": line(tables["learning_curve_means"], "{environment}: {returns}", points, seeds, **over),
        "human": line(tables["aggregates"], "{aggregate}", "group value low high", **scores),
        "pairs": line(pairs, "{environment}", "pair probability low high", ylim=(-0.02, 1.02)),
        "loss": heads("loss", ["whole run"], yscale="log"),
        "share": heads("share_of_loss", ["first fifth", "last fifth"]),
        "accuracy": heads("value_error", ["last fifth"], ylabel="RMSE / deviation of returns"),
    }


def styles(groups: Sequence[Group]) -> Look:
    """Group -> its style. Lines and markers repeat at different lengths."""
    of_scaling = {recorded.SCALED: COLOURS[0], recorded.UNSCALED: COLOURS[1]}
    others, found = itertools.cycle(COLOURS[2:]), {}
    for place, group in enumerate(groups):
        colour = of_scaling.pop(group.settings.get(recorded.SCALING, ""), None) or next(others)
        line, marker = LINES[place % len(LINES)], MARKERS[place % len(MARKERS)]
        found[group.label] = {"color": colour, "ls": line, "marker": marker, "ms": 4, "label": group.label}
    return found


def lines(
    look: Look, table: Table, title: str, columns: str, seeds: Table | None = None, **options: Any
) -> Iterator[str]:
    """A panel for each title, which names columns of the table in braces; in it a line with intervals for each group.

    The columns are place or name, point, low, high. Seeds, a table of learning curves, are drawn thin.
    """
    by, (at, point, low, high) = re.findall(r"{(\w+)}", title), columns.split()
    for names, rows in table.groupby(by, sort=False):
        # Room for names below the axis, which stand upright, and for the legend.
        upright = 0 if pd.api.types.is_numeric_dtype(rows[at]) else rows[at].str.len().max()
        height = 3.2 + 0.07 * max(0, upright - 16) + 0.15 * max(0, rows["group"].nunique() - 4)
        drawing, ((axes,),) = figure.new_figure(panel=(4.5, height))
        for group, of_group in rows.groupby("group", sort=False):
            colour = look[group]["color"]
            if seeds is not None:
                for _, seed in seeds.groupby([*by, "group"]).get_group((*names, group)).groupby("seed"):
                    axes.plot(seed[at], seed["return"], color=colour, lw=0.7, alpha=0.45)
            for _, line in of_group.groupby("line" if "line" in of_group else "group"):
                if pd.api.types.is_numeric_dtype(line[at]):
                    axes.fill_between(line[at], line[low], line[high], color=colour, alpha=0.18, lw=0)
                else:
                    axes.vlines(line[at], line[low], line[high], color=colour)
                    axes.tick_params(axis="x", rotation=90)
                    axes.margins(x=0.1)
                axes.plot(line[at], line[point], **look[group])
        if point in _LEVELS:
            axes.axhline(_LEVELS[point], color="black", lw=0.8, ls=":")
        if point == "value_error" and rows[point].max() > 30 * rows[point].min():
            axes.set_yscale("log")
        axes.set(**{"ylabel": point.replace("_", " ")} | options)
        yield _figure(drawing, title.format(**dict(zip(by, names, strict=True))))


def of_heads(
    look: Look, study: Study, table: Table, name: str, parts: list[str], **options: Any
) -> Iterator[str]:
    """A column of the heads' table in parts of the runs, for `lines`.

    Many environments share a panel, a line without interval for each, as in the paper's Figure 5.
    """
    rows = []
    for (environment, part), of in table[table["part"].isin(parts)].groupby(["environment", "part"]):
        values = of.pivot(index=["group", "seed"], columns="head", values=name)[of["head"].unique()]
        for group, seeds in values.dropna(how="all").groupby("group"):
            numbers = estimates.curve_interval(seeds.to_numpy()).T
            for head, of_head in zip(values.columns, numbers, strict=True):
                rows.append((environment, part, group, head, *of_head))
    found = pd.DataFrame(rows, columns=["line", "part", "group", "head", name, "low", "high"])
    found["panel"] = found["line"]
    if len(study.environments) > MOST_PANELS:
        found = found.assign(panel=f"{len(study.environments)} environments", low=np.nan, high=np.nan)
    title = "{panel}: {part}" if len(parts) > 1 else "{panel}"
    return lines(look, found, title, f"head {name} low high", xlabel="head", **options)


def _figure(drawing: Figure, title: str) -> str:
    """A drawing with its title and a legend, as HTML that holds the image."""
    axes = drawing.axes[0]
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        of, columns = dict(zip(labels, handles, strict=True)), 2 if max(map(len, labels)) < 30 else 1
        drawing.legend(of.values(), of, loc="outside lower center", ncols=columns)
    image = io.BytesIO()
    drawing.savefig(image, format="svg", metadata={"Date": None})
    words = html.escape(f"{title}: {axes.get_ylabel()} over {axes.get_xlabel() or 'groups'}")
    source = f"data:image/svg+xml;base64,{base64.b64encode(image.getvalue()).decode()}"
    return f'<figure><figcaption>{html.escape(title)}</figcaption><img alt="{words}" src="{source}"></figure>'
