"""The page: one HTML file with its figures inside, that asks nothing of any server. Its text is in page.html."""

from __future__ import annotations

import html
import re
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
    text = template.substitute(
        {name: _table(tables[name]) for name in ("final_returns", "aggregates", "improvement")},
        **{name: f'<div class="panels">{figures}</div>' for name, figures in drawn.items()},
        runs=_table(shown),
        settings=_table(_settings(study)),
        notes=_list(notes(study)),
        left_out=_list(f"{folder}: {why}" for folder, why in study.left_out),
        title=html.escape(title),
        size=f"Runs: {len(study.runs())}; groups: {len(labels)}; environments: {len(study.environments)}.",
        axis=AXES[study.axis],
        contents="$contents",
        kind=KINDS[study.kind],
        games=_names(played),
        others=_names(name for name in study.environments if name not in played),
        csv_files=_names(f"{name}.csv" for name, table in tables.items() if not table.empty),
    )
    text = _without_empty(_without_empty(text))  # inner sections first
    titles = re.findall(r'<h2 id="(\w+)">(.*?)</h2>', text)
    contents = " &middot; ".join(f'<a href="#{place}">{title}</a>' for place, title in titles)
    return text.replace("$contents", contents)


def _settings(study: Study) -> pd.DataFrame:
    """What differs between groups, a column for each group or for each setting, whichever is narrower."""
    several, partial = recorded.differing([group.settings for group in study.groups])
    names, labels = several + partial, [group.label for group in study.groups]
    if not names:
        return pd.DataFrame()
    rows = [[group.settings.get(name, "-") for name in names] for group in study.groups]
    table = pd.DataFrame(rows, columns=names, index=labels)
    if len(labels) <= len(names):
        return table.T.rename_axis("setting").reset_index()
    return table.rename_axis("group").reset_index()


def _without_empty(text: str) -> str:
    """Drops innermost sections that hold no table, figure or list; the others become plain divisions."""

    def kept(section: re.Match) -> str:
        inside = section[0].replace("<section", "<div", 1).replace("</section>", "</div>")
        return inside if re.search("<table|<figure|<li>", inside) else ""

    return re.sub(r"<section\b(?:(?!<section\b).)*?</section>", kept, text, flags=re.S)


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
