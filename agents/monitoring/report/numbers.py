"""The numbers of every section, from a study to tables. Each is a CSV file; docs/report.md explains its columns."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from agents.monitoring.report import estimates
from agents.monitoring.report.events import head_counts
from agents.monitoring.report.groups import KINDS, Study
from agents.monitoring.report.runs import Run
from agents.tags import DEAD, LOSS, PROBABILITY, SCALED, UNSCALED, VALUE_ERROR
from rbs_tf import scores

ALL = "all environments"
BINS = 25
PATH_BINS = 10
THRESHOLDS = 41  # of the performance profile
PARTS = {"whole run": (-1.0, 1.0), "first fifth": (-1.0, 0.2), "last fifth": (0.8, 1.0)}  # after and up to
ERRORS = (LOSS, SCALED, UNSCALED, VALUE_ERROR)  # tags before a head's name
COLUMNS = {  # X stands for the study's axis
    "runs": "environment group seed updates planned_updates environment_steps state dead_units commit folder",
    "learning_curves": "environment group returns seed X return",
    "learning_curve_means": "environment group returns seeds X mean low high",
    "final_returns": "environment group returns seeds mean low high human_normalised_mean",
    "human_normalised": "group games aggregate X value lower_quartile upper_quartile",
    "aggregates": "group games aggregate value low high",
    "performance_profile": "group games threshold share_above low high",
    "improvement": "environment first second seeds probability low high",
    "heads": "environment group seed head part loss td_error_scaled td_error value_error share_of_loss",
    "head_choices": "environment group seed head X probability episodes",
    "loss_and_score": "environment group X return loss",
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
        edges = np.linspace(0, max(run.length for run in study.runs(environment)), BINS + 1)
        for kind in KINDS:
            seeds = np.stack([_curve(run, kind, edges) for run in runs])
            if not np.isnan(seeds).all():
                names, means = [run.seed for run in runs], estimates.curve_interval(seeds).T
                rows["learning_curves"] += _spread((*cell, kind), seeds[..., None], names, edges[1:])
                rows["learning_curve_means"] += _spread((*cell, kind, len(runs)), means, edges[1:])
        for run in runs:
            of_run, edges = (*cell, run.seed), np.linspace(0, end, BINS + 1)
            progress = run.updates, run.planned, run.steps, run.state
            rows["runs"].append((*of_run, *progress, dead_units(run), run.versions["commit"], run.folder))
            rows["heads"] += _spread(of_run, _heads(run, end), run.heads, list(PARTS))
            rows["head_choices"] += _spread(of_run, _choices(run, edges), run.heads, edges[1:])
        edges = np.linspace(0, end, PATH_BINS + 1)
        rows["loss_and_score"] += _spread(cell, _path(runs, edges), edges[1:])
    rows["improvement"] += _improvements(study, ended)
    if games(study):
        rows |= _human_normalised(study, ended)
    columns = {name: of.replace("X", study.axis).split() for name, of in COLUMNS.items()}
    tables = {name: pd.DataFrame(of, columns=columns[name]) for name, of in rows.items()}
    whole = dict.fromkeys(["planned_updates", "environment_steps"], "Int64")  # and may be unknown
    return tables | {"runs": tables["runs"].astype(whole)}


def dead_units(run: Run) -> float:
    """Share of dead units in the torso's layer that has most of them, at the last look; NaN without one."""
    shares = [of[-1, 1] for tag, of in run.train.scalars.items() if tag.startswith(f"{DEAD}/")]
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


def _curve(run: Run, kind: str, edges: np.ndarray) -> np.ndarray:
    """At the upper edges: training returns averaged over bins, evaluations, which are fewer, interpolated."""
    of = estimates.binned if kind == "training" else estimates.interpolated
    return of(*run.returns(kind), edges)


def _heads(run: Run, end: float) -> np.ndarray:
    """Means of each head's loss and errors and its share of the loss, in the PARTS of what all runs have: [H, 3, 5]."""
    logged = {**run.evaluation.scalars, **run.train.scalars}
    means = np.full((len(ERRORS) + 1, len(run.heads), len(PARTS)), np.nan)
    for (i, tag), (j, head) in itertools.product(enumerate(ERRORS), enumerate(run.heads)):
        places, values = logged.get(f"{tag}/{head}", np.empty((0, 2))).T
        for k, (low, high) in enumerate(PARTS.values()):
            inside = values[(places > low * end) & (places <= high * end)]
            means[i, j, k] = inside.mean() if len(inside) else np.nan
    means[-1] = means[0] / means[0].sum(axis=0)
    return np.moveaxis(means, 0, -1)


def _choices(run: Run, edges: np.ndarray) -> np.ndarray:
    """Each head's probability in the bandit, and the episodes that it has finished, between edges: [H, K, 2].

    None of runs with a single head or without a bandit that was logged.
    """
    logged, tags = run.train.scalars, [f"{PROBABILITY}/{head}" for head in run.heads]
    if len(tags) < 2 or not logged.keys() >= set(tags):
        return np.empty((0, 0, 2))
    values = np.zeros((len(tags), len(edges) - 1, 2))
    values[..., 0] = [estimates.binned(logged[tag][:, 0], logged[tag][:, 1], edges) for tag in tags]
    for place, buckets in run.train.histograms.get("episode/head", ()):
        if place <= edges[-1]:
            bin_of = max(int(np.searchsorted(edges, place)) - 1, 0)
            values[:, bin_of, 1] += head_counts(buckets, len(tags))
    return values[: 0 if np.isnan(values[..., 0]).all() else None]


def _path(runs: Sequence[Run], edges: np.ndarray) -> np.ndarray:
    """Training returns and losses, summed over heads, between edges; means over seeds: [K, 2], or [0, 2]."""
    pairs = []
    for run in [run for run in runs if run.heads]:
        losses = np.stack([run.train.scalars[f"{LOSS}/{head}"] for head in run.heads])  # [H, N, 2]
        loss = estimates.binned(losses[0, :, 0], losses[..., 1].sum(axis=0), edges)
        pairs.append([_curve(run, "training", edges), loss])
    means = np.mean(pairs, axis=0).T if pairs else np.empty((0, 2))
    return means[: 0 if np.isnan(means).any(axis=1).all() else None]


def _human_normalised(study: Study, ended: Returns) -> dict[str, list[tuple[Any, ...]]]:
    """Rows of the tables of human-normalised scores, of the games that all groups have played.

    Curves are means over seeds first, then over games, up to where every run of every game is.
    """
    played = games(study)
    curves: list[tuple] = []
    samples = {}
    edges = np.linspace(0, min(study.ends[game] for game in played), BINS + 1)
    for group in study.groups:
        of_games = []
        for game in played:
            seeds = [_curve(run, study.kind, edges) for run in group.runs[game]]
            of_games.append(_human(game, np.mean(seeds, axis=0)))
        bands = estimates.game_bands(np.stack(of_games)).swapaxes(1, 2)
        curves += _spread((group.label, len(played)), bands, estimates.AGGREGATES, edges[1:])
        scores_of = _stacked([_human(game, ended[game, group.label]) for game in played])
        if not np.isnan(scores_of).any():
            samples[group.label, len(played)] = scores_of
    thresholds = np.linspace(0, max([1.0, *map(np.max, samples.values())]), THRESHOLDS)
    above = functools.partial(estimates.profile, thresholds=thresholds)
    aggregates: list[tuple] = []
    profiles: list[tuple] = []
    for names, of in samples.items():
        of_group = estimates.estimate(of, function=estimates.all_aggregates).T
        aggregates += _spread(names, of_group, estimates.ALL_AGGREGATES)
        profiles += _spread(names, estimates.estimate(of, function=above).T, thresholds)
    return {"human_normalised": curves, "aggregates": aggregates, "performance_profile": profiles}


def _improvements(study: Study, ended: Returns) -> Rows:
    """Compares every two groups, in all environments that both have run in, and in each.

    Returns are compared within an environment alone, so that none of this needs common units.
    """
    known = {cell for cell, returns in ended.items() if not np.isnan(returns).any()}
    for first, second in itertools.combinations([group.label for group in study.groups], 2):
        both = [e for e in study.environments if {(e, first), (e, second)} <= known]
        tasks = [(ALL, both)] * (len(both) > 1) + [(e, [e]) for e in both]
        for name, environments in tasks:
            x, y = (_stacked([ended[e, group] for e in environments]) for group in (first, second))
            _, probability = estimates.estimate(x, y, function=estimates.difference_and_probability).T
            yield name, first, second, min(len(x), len(y)), *probability


def in_words(study: Study, heads: pd.DataFrame) -> list[str]:
    """A sentence for each group in each environment: how its training ended, and how unlike its heads' errors were."""
    last = heads[heads["part"] == "last fifth"]
    sentences = []
    for environment, group, runs in study.cells():
        returns = np.mean(
            [estimates.final(*run.returns("training"), study.ends[environment]) for run in runs]
        )
        words = f"{group.label} in {environment}: {returns:.4g} points per training episode"
        of_cell = last[(last["environment"] == environment) & (last["group"] == group.label)]
        errors = [of for _, of in of_cell.groupby("seed")["td_error_scaled"]]
        spans = [of.max() / of.min() for of in errors if len(of) > 1 and of.min() > 0]
        if spans:
            span = float(f"{np.exp(np.mean(np.log(spans))):.3g}")
            words += f", from heads whose errors span a factor of {span:,.4g}"
        sentences.append(f"{words} (last fifth{f', {len(runs)} seeds' if len(runs) > 1 else ''}).")
    return sentences
