"""The CSV files; docs/report.md explains their columns."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from agents.monitoring.report import estimates
from agents.monitoring.report.groups import Study
from agents.monitoring.report.numbers import PARTS, Numbers

Table = tuple[str, list[str], list[list[Any]]]  # name, header, rows


def tables(study: Study, numbers: Numbers) -> Iterator[Table]:
    """Every table that has a row."""
    makers = (_runs, _curves, _finals, _human, _comparisons, _heads)
    for name, header, rows in itertools.chain.from_iterable(make(study, numbers) for make in makers):
        if rows:
            yield name, header.split(","), rows


def text(table: Table) -> str:
    """A table as a CSV file; floats have six significant digits, what is unknown is left empty."""
    _, header, rows = table
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows([header, *([_cell(x) for x in row] for row in rows)])
    return lines.getvalue()


def _cell(value: Any) -> Any:
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return ""
    return f"{value:.6g}" if isinstance(value, float | np.floating) else value


def _runs(study, numbers):
    yield (
        "runs",
        "environment,group,seed,updates,planned_updates,environment_steps,state,commit,folder",
        [
            [run.environment, group.label, run.seed, run.updates, run.planned, run.steps, run.state]
            + [run.versions.get("commit", "unknown"), run.folder]
            for _, group, runs in study.cells()
            for run in runs
        ],
    )


def _curves(study, numbers):
    yield (
        "learning_curves",
        f"environment,group,returns,seed,{study.axis},return",
        [
            [line.environment, line.group, line.kind, run.seed, place, value]
            for line in numbers.curves
            for run, values in zip(line.runs, line.seeds, strict=True)
            for place, value in zip(line.places, values, strict=True)
        ],
    )
    yield (
        "learning_curve_means",
        f"environment,group,returns,seeds,{study.axis},mean,low,high",
        [
            [line.environment, line.group, line.kind, len(line.seeds), place, *values]
            for line in numbers.curves
            for place, values in zip(line.places, line.mean.T, strict=True)
        ],
    )


def _finals(study, numbers):
    rows = []
    for final in numbers.finals:
        human = final.human_normalised
        rows.append(
            [final.environment, final.group, final.kind, len(final.returns)]
            + [*final.interval, None if human is None else human.mean()]
        )
    yield "final_returns", "environment,group,returns,seeds,mean,low,high,human_normalised_mean", rows


def _human(study, numbers):
    games = len(numbers.games)
    yield (
        "human_normalised",
        f"group,games,aggregate,{study.axis},value,lower_quartile,upper_quartile",
        [
            [label, games, name, place, *values]
            for label, bands in numbers.human_curves.items()
            for name, band in zip(estimates.AGGREGATES, bands, strict=True)
            for place, values in zip(numbers.human_places, band.T, strict=True)
        ],
    )
    yield (
        "aggregates",
        "group,games,aggregate,value,low,high",
        [
            [label, games, name, *values]
            for label, of_group in numbers.aggregates.items()
            for name, values in zip(estimates.ALL_AGGREGATES, of_group.T, strict=True)
        ],
    )
    yield (
        "performance_profile",
        "group,games,threshold,share_above,low,high",
        [
            [label, games, threshold, *values]
            for label, of_group in numbers.profiles.items()
            for threshold, values in zip(numbers.thresholds, of_group.T, strict=True)
        ],
    )


def _comparisons(study, numbers):
    yield (
        "improvement",
        "environment,first,second,seeds,probability,low,high",
        [[*row[:4], *row.probability] for row in numbers.improvements],
    )


def _heads(study, numbers):
    yield (
        "heads",
        "environment,group,seed,head,part,loss,td_error_scaled,td_error,value_error,share_of_loss",
        [
            [run.environment, run.group, run.seed, head, part, *values]
            for run in numbers.heads
            for head, of_head in zip(run.heads, np.moveaxis(run.values, -1, 0), strict=True)
            for part, values in zip(PARTS, of_head, strict=True)
        ],
    )
    yield (
        "head_choices",
        f"environment,group,seed,head,{study.axis},probability,episodes",
        [
            [run.environment, run.group, run.seed, head, *values]
            for run in numbers.choices
            for head, *of_head in zip(run.heads, run.probability, run.episodes, strict=True)
            for values in zip(run.places, *of_head, strict=True)
        ],
    )
    yield (
        "loss_and_score",
        f"environment,group,{study.axis},return,loss",
        [
            [path.environment, path.group, *values]
            for path in numbers.paths
            for values in zip(path.places, path.score, path.loss, strict=True)
        ],
    )
