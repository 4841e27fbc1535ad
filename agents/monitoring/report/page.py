"""The page: one HTML file with two figures inside, learning curves and final returns, that needs no network."""

from __future__ import annotations

import base64
import html
import io
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from agents.monitoring import figure
from agents.monitoring.report import recorded
from agents.monitoring.report.tables import Group

# Apart for the colour-blind (after Okabe and Ito). Of the paper's two the method is green, and the other one red.
_COLOURS = ("#009e73", "#d55e00", "#2f86c5", "#b8629a", "#b07a00", "#8a8d92", "#7d6bd0")
_STYLE = """body { margin: 1rem auto; padding: 0 1rem; max-width: 70rem; font: 16px/1.5 sans-serif }
img { max-width: 100% }
table { border-collapse: collapse; font-size: 0.9rem; display: block; overflow: auto }
th, td { padding: 0.2rem 0.6rem; border: 0 solid #ccc; border-bottom-width: 1px; text-align: left }"""


def render(
    groups: Sequence[Group], tables: dict[str, pd.DataFrame], left_out: Sequence[tuple[Path, str]]
) -> str:
    """The page as text, of what `tables.compute_tables` has made."""
    names = recorded.find_differing([group.settings for group in groups])
    settings = {group.label: [group.settings.get(name, "-") for name in names] for group in groups}
    colours = dict(zip((group.label for group in groups), itertools.cycle(_COLOURS), strict=False))
    gone = "".join(f"<li>{html.escape(f'{folder}: {why}')}</li>" for folder, why in left_out)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Training runs</title><style>{_STYLE}</style></head><body>
<h1>Training runs</h1>
<p>A group is all runs whose settings are equal but for seed, environment and length. Intervals are 95% bootstrap
intervals over seeds; one seed has none, and those of fewer than five are too narrow.</p>
<h2>Learning curves</h2>
<p>Mean return per episode in original points, over learner updates, as far as all seeds of a group have come.</p>
{_embed_image(learning_curves(tables["learning_curves"], colours), "Learning curves")}
<h2>Final returns</h2>
<p>Mean over the last fifth of the updates that all runs in an environment have: runs of different lengths are compared
where the shortest ends. Numbers of seeds are in brackets.</p>
{_embed_image(final_returns(tables["final_returns"], colours), "Final returns of the groups")}
{_format_table(tables["final_returns"])}
<h2>Human-normalised scores</h2>
<p>Over the Atari games that all groups have played: 0 is a random player, 1 a human.</p>
{_format_table(tables["aggregates"])}
<h2>Settings that differ</h2>
{_format_table(pd.DataFrame({"setting": names} | settings))}
<h2>Runs</h2>
{_format_table(tables["runs"])}
<ul>{gone}</ul>
</body></html>
"""


def learning_curves(table: pd.DataFrame, colours: dict[str, str]) -> Figure:
    """A row of panels for each environment: training episodes, and greedy evaluations."""
    environments, kinds = table["environment"].unique(), table["returns"].unique()
    drawing, panels = figure.new_figure(len(environments), len(kinds))
    for row, environment in zip(panels, environments, strict=True):
        for axes, kind in zip(row, kinds, strict=True):
            shown = table[(table["environment"] == environment) & (table["returns"] == kind)]
            for group, curve in shown.groupby("group", sort=False):
                colour: Any = colours[str(group)]
                axes.plot(curve["updates"], curve["mean"], color=colour, marker=".")
                axes.fill_between(
                    curve["updates"], curve["low"], curve["high"], color=colour, alpha=0.2, lw=0
                )
            axes.set(
                title=f"{environment}: {kind}", xlabel="learner updates", ylabel="return", xlim=(0, None)
            )
    handles = [panels[0, 0].plot([], [], color=colour)[0] for colour in colours.values()]
    drawing.legend(handles, list(colours), loc="outside upper center", ncols=min(len(colours), 3))
    return drawing


def final_returns(table: pd.DataFrame, colours: dict[str, str]) -> Figure:
    """A panel for each environment: a group's mean and its interval in a line."""
    environments = table["environment"].unique()
    height = 0.8 + 0.25 * len(colours)
    drawing, panels = figure.new_figure(len(environments), panel=(7.0, height))
    for axes, environment in zip(panels[:, 0], environments, strict=True):
        shown = table[table["environment"] == environment].iloc[::-1]
        names = [f"{row.group} ({row.seeds})" for row in shown.itertuples()]
        axes.hlines(names, shown["low"], shown["high"], [colours[group] for group in shown["group"]])
        axes.scatter(shown["mean"], names, c=[colours[group] for group in shown["group"]], zorder=3)
        axes.set(title=environment, xlabel="return", ylim=(-0.5, len(names) - 0.5))
    return drawing


def _embed_image(drawing: Figure, words: str) -> str:
    image = io.BytesIO()
    drawing.savefig(image, format="svg", metadata={"Date": None})
    source = base64.b64encode(image.getvalue()).decode()
    return f'<img alt="{words}" src="data:image/svg+xml;base64,{source}">'


def _format_table(table: pd.DataFrame) -> str:
    """A table without the columns that say nothing."""
    if table.empty:
        return "<p>None.</p>"
    known = table.dropna(axis="columns", how="all")
    with pd.option_context("display.max_colwidth", None):
        return known.to_html(index=False, border=0, na_rep="-", float_format="{:,.4g}".format)
