"""The numbers of every section, from a study to tables. Each is a CSV file; docs/report.md explains its columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from agents.monitoring.report import estimates
from agents.monitoring.report.groups import KINDS, Study
from agents.monitoring.report.runs import Run
from agents.monitoring.tags import DEAD, LOSS, SCALED, UNSCALED, VALUE_ERROR
from rbs_tf import scores

ALL = "all environments"
BINS = 25
PARTS = {"whole run": (-1.0, 1.0), "first fifth": (-1.0, 0.2), "last fifth": (0.8, 1.0)}  # after and up to
ERRORS = (LOSS, SCALED, UNSCALED, VALUE_ERROR)  # tags before a head's name
COLUMNS = {  # X stands for the study's axis
    "runs": "environment group seed updates planned_updates environment_steps state dead_units commit folder",
    "learning_curves": "environment group returns seed X return",
    "learning_curve_means": "environment group returns seeds X mean low high",
    "final_returns": "environment group returns seeds mean low high human_normalised_mean",
    "aggregates": "group games aggregate value low high",
    "improvement": "environment first second seeds probability low high",
    "heads": "environment group seed head part loss td_error_scaled td_error value_error share_of_loss",
}

Tables = Mapping[str, pd.DataFrame]  # by the names of their CSV files
Rows = Iterator[tuple[Any, ...]]
Returns = Mapping[tuple[str, str], np.ndarray]  # of an environment and a group: [seeds]


def compute(study: Study) -> Tables:
    """Every table of a study, those without a row as well."""
    rows: dict[str, list] = {name: [] for name in COLUMNS}
    ended = {}
    for environment, group, runs in study.cells():
        cell, end = (environment, group.label), study.ends[environment]
        ended[cell] = np.array([estimates.final(*run.returns(study.kind), end) for run in runs])
        interval = estimates.curve_interval(ended[cell][:, None])[:, 0]
        human = _human(environment, ended[cell]).mean()
        rows["final_returns"].append((*cell, study.kind, len(runs), *interval, human))
        for run in runs:
            of_run = (*cell, run.seed)
            progress = run.updates, run.planned, run.steps, run.state
            rows["runs"].append((*of_run, *progress, dead_units(run), run.versions["commit"], run.folder))
            rows["heads"] += _spread(of_run, _heads(run, end), run.heads, list(PARTS))
        edges = np.linspace(0, max(run.length for run in study.runs(environment)), BINS + 1)
        for kind in KINDS:
            seeds = np.stack([estimates.binned(*run.returns(kind), edges) for run in runs])
            if not np.isnan(seeds).all():
                names, means = [run.seed for run in runs], estimates.curve_interval(seeds).T
                rows["learning_curves"] += _spread((*cell, kind), seeds[..., None], names, edges[1:])
                rows["learning_curve_means"] += _spread((*cell, kind, len(runs)), means, edges[1:])
    rows["improvement"] += _improvements(study, ended)
    rows["aggregates"] += _aggregates(study, ended)
    columns = {name: COLUMNS[name].replace("X", study.axis).split() for name in rows}
    tables = {name: pd.DataFrame(of, columns=columns[name]) for name, of in rows.items()}
    whole = dict.fromkeys(["planned_updates", "environment_steps"], "Int64")  # and may be unknown
    return tables | {"runs": tables["runs"].astype(whole)}


def dead_units(run: Run) -> float:
    """Share of dead units in the torso's layer that has most of them, at the last look; NaN without one."""
    shares = [of[-1, 1] for tag, of in run.train.items() if tag.startswith(f"{DEAD}/")]
    return max(shares, default=np.nan)


def games(study: Study) -> list[str]:
    """Atari games that all groups have played: what aggregates can be made of."""
    shared = [name for name in study.environments if all(name in group.runs for group in study.groups)]
    return [name for name in shared if scores.has_score(name)]


def _human(environment: str, returns: np.ndarray) -> np.ndarray:
    """Human-normalised; NaN where nobody has measured a human."""
    known = scores.has_score(environment)
    return np.asarray(scores.human_normalised_score(environment, returns)) if known else returns * np.nan


def _spread(names: Sequence, values: np.ndarray, *axes: Sequence | np.ndarray) -> Rows:
    """Rows of an array [..., K]: the names, the place on each of the axes, and the K values there."""
    for index in np.ndindex(values.shape[:-1]):
        yield *names, *(axis[i] for axis, i in zip(axes, index, strict=True)), *values[index]


def _stacked(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Stacks as many seeds of each as all have: [seeds, columns]."""
    return np.stack([column[: min(map(len, columns))] for column in columns], axis=1)


def _heads(run: Run, end: float) -> np.ndarray:
    """Means of each head's loss and errors and its share of the loss, in the PARTS of what all runs have: [H, 3, 5]."""
    logged = {**run.evaluation, **run.train}
    means = np.full((len(ERRORS) + 1, len(run.heads), len(PARTS)), np.nan)
    for (i, tag), (j, head) in itertools.product(enumerate(ERRORS), enumerate(run.heads)):
        places, values = logged.get(f"{tag}/{head}", np.empty((0, 2))).T
        for k, (low, high) in enumerate(PARTS.values()):
            inside = values[(places > low * end) & (places <= high * end)]
            means[i, j, k] = inside.mean() if len(inside) else np.nan
    means[-1] = means[0] / means[0].sum(axis=0)
    return np.moveaxis(means, 0, -1)


def _aggregates(study: Study, ended: Returns) -> Rows:
    """Aggregates of final human-normalised scores, over the games that all groups have played."""
    played = games(study)
    for group in study.groups if played else ():
        of_group = _stacked([_human(game, ended[game, group.label]) for game in played])
        if not np.isnan(of_group).any():
            final = estimates.estimate(of_group, function=estimates.aggregates).T
            yield from _spread((group.label, len(played)), final, estimates.AGGREGATES)


def _improvements(study: Study, ended: Returns) -> Rows:
    """Compares every two groups, in all environments that both have run in, and in each.

    Returns are compared within an environment only, so that none of this needs common units.
    """
    known = {cell for cell, returns in ended.items() if not np.isnan(returns).any()}
    for first, second in itertools.combinations([group.label for group in study.groups], 2):
        both = [e for e in study.environments if {(e, first), (e, second)} <= known]
        tasks = [(ALL, both)] * (len(both) > 1) + [(e, [e]) for e in both]
        for name, environments in tasks:
            x, y = (_stacked([ended[e, group] for e in environments]) for group in (first, second))
            probability = estimates.estimate(x, y, function=estimates.improvement)[:, 0]
            yield name, first, second, min(len(x), len(y)), *probability
