"""The page: one HTML file with its figures inside, that asks nothing of any server. Its text is in page.html."""

from __future__ import annotations

import html
import string
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from agents.monitoring.report import panels, settings
from agents.monitoring.report.groups import AXES, KINDS, Study, notes
from agents.monitoring.report.numbers import Tables, games


def write(study: Study, tables: Tables, title: str) -> str:
    """The page as text, from what `numbers.compute` has made."""
    labels, played = [group.label for group in study.groups], games(study)
    several, partial = settings.differing([group.settings for group in study.groups])
    rows = [[name, *(group.settings.get(name, "-") for group in study.groups)] for name in several + partial]
    template = string.Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    return template.substitute(
        {name: _table(tables[name]) for name in ("runs", "final_returns", "aggregates", "improvement")},
        **{name: _grid(figures) for name, figures in panels.draw(study, tables).items()},
        settings=_table(pd.DataFrame(rows, columns=["setting", *labels])),
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


def _names(names: Iterable[str]) -> str:
    return html.escape(", ".join(names) or "none")


def _list(items: Iterable[str]) -> str:
    found = [f"<li>{html.escape(item)}</li>" for item in items]
    return f"<ul>{''.join(found) or '<li>nothing</li>'}</ul>"


def _grid(figures: Iterable[str]) -> str:
    return f'<div class="panels">{"".join(figures) or "Nothing to draw: no run has numbers for this."}</div>'


def _table(table: pd.DataFrame) -> str:
    with pd.option_context("display.max_colwidth", 70):  # a setting may be long
        shown = table.to_html(index=False, border=0, na_rep="-", float_format="{:,.4g}".format)
    return f'<div class="table">{shown}</div>'
