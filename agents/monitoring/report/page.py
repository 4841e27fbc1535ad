"""The page: one HTML file with its figures inside, that asks nothing of any server. Its text is in page.html."""

from __future__ import annotations

import html
import string
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from agents.monitoring.report import panels, recorded
from agents.monitoring.report.groups import AXES, KINDS, Study, notes
from agents.monitoring.report.numbers import Tables, games


def write(study: Study, tables: Tables, title: str) -> str:
    """The page as text, from what `numbers.compute` has made."""
    labels, played = [group.label for group in study.groups], games(study)
    names = {run.folder: study.name(run) for run in study.runs()}
    shown = tables["runs"].assign(
        commit=tables["runs"]["commit"].replace(r"(?<=^\w{10})\w+", "", regex=True),
        folder=tables["runs"]["folder"].map(names),
    )
    drawn = {name: "".join(figures) for name, figures in panels.draw(study, tables).items()}
    template = string.Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        {name: _table(tables[name]) for name in ("final_returns", "aggregates", "improvement")},
        **{name: f'<div class="panels">{figures}</div>' for name, figures in drawn.items()},
        runs=_table(shown),
        settings=_table(_settings(study)),
        notes=_list(notes(study)),
        left_out=_list(f"{folder}: {why}" for folder, why in study.left_out),
        title=html.escape(title),
        size=f"Runs: {len(study.runs())}; groups: {len(labels)}; environments: {len(study.environments)}.",
        axis=AXES[study.axis],
        kind=KINDS[study.kind],
        games=_names(played),
        others=_names(name for name in study.environments if name not in played),
        csv_files=_names(f"{name}.csv" for name, table in tables.items() if not table.empty),
    )


def _settings(study: Study) -> pd.DataFrame:
    """What differs between groups, a column for each."""
    names = recorded.differing([group.settings for group in study.groups])
    columns = {group.label: [group.settings.get(name, "-") for name in names] for group in study.groups}
    return pd.DataFrame({"setting": names} | columns)


def _names(names: Iterable[str]) -> str:
    return html.escape(", ".join(names) or "none")


def _list(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(item)}</li>' for item in items)}</ul>"


def _table(table: pd.DataFrame) -> str:
    """A table without columns that say nothing."""
    if table.empty:
        return ""
    known = table.dropna(axis="columns", how="all")
    with pd.option_context("display.max_colwidth", None):
        shown = known.to_html(index=False, border=0, na_rep="-", float_format="{:,.4g}".format)
    return f'<div class="table">{shown}</div>'
