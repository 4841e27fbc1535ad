"""Runs put into groups, and their tables, each of which is a CSV file; docs/report.md explains the columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from agents.monitoring.report import estimates, recorded
from agents.monitoring.report.runs import Run
from rbs_tf import scores

BINS = 25  # points of a learning curve
# The paper's comparison is shown first.
_ORDER = {recorded.SCALED: 0, recorded.UNSCALED: 1}


class Group(NamedTuple):
    """Runs that differ in seed, environment and length only."""

    label: str  # the shortest that tells it from the other groups
    settings: Mapping[str, str]  # name -> value as text, without those that may differ within it
    runs: Mapping[str, Sequence[Run]]  # environment -> runs by seed


def group_runs(found: Sequence[Run]) -> tuple[list[Group], list[tuple[Path, str]]]:
    """Groups runs by their settings.

    Returns:
      the groups, and what is left out, folder and reason: runs without a log, and the shorter of two of one seed.
    """
    kept: dict[tuple, Run] = {}
    left_out = []
    for run in sorted(found, key=lambda run: -run.updates):
        key = tuple(sorted(recorded.describe_method(run.settings).items())), run.environment, run.seed
        if not run.updates or not (run.train or run.evaluation):
            left_out.append((run.folder, "it has made no updates yet, or logged nothing"))
        elif key in kept:
            reason = f"it has the settings and the seed of {kept[key].folder}, which is as long or longer"
            left_out.append((run.folder, reason))
        else:
            kept[key] = run
    by_method: dict[tuple, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for (method, environment, _), run in sorted(kept.items(), key=lambda item: item[0][1:]):
        by_method[method][environment].append(run)
    methods = [dict(method) for method in by_method]
    groups = map(Group, recorded.label_methods(methods), methods, by_method.values())

    def place(group: Group) -> tuple[int, str]:
        return _ORDER.get(group.settings.get(recorded.SCALING, ""), 2), group.label

    return sorted(groups, key=place), left_out


def compute_tables(groups: Sequence[Group]) -> dict[str, pd.DataFrame]:
    """The tables of at least one group by the names of their CSV files."""
    environments = sorted({environment for group in groups for environment in group.runs})
    cells = [
        (env, group.label, group.runs[env]) for env in environments for group in groups if env in group.runs
    ]
    # How far every run in an environment has come.
    ends = {
        env: min(run.updates for name, _, of in cells if name == env for run in of) for env in environments
    }
    evaluated = all(
        (run.returns("evaluation")[0] <= ends[env]).any() for env, _, runs in cells for run in runs
    )
    kind = "evaluation" if evaluated else "training"
    normalised: dict[tuple[str, str], np.ndarray] = {}
    listed = []
    curves = []
    final = []
    for env, label, runs in cells:
        cell = {"environment": env, "group": label}
        for run in runs:
            progress = {
                "updates": run.updates,
                "planned_updates": run.planned,
                "environment_steps": run.steps,
            }
            facts = {"dead_units": run.dead_units, "commit": run.versions["commit"], "folder": run.folder}
            listed.append(cell | {"seed": run.seed} | progress | {"state": run.state} | facts)
        returns = np.array([estimates.final_mean(*run.returns(kind), ends[env]) for run in runs])
        human = np.full(len(runs), np.nan)
        if scores.has_score(env):
            human = normalised[env, label] = np.asarray(scores.human_normalised_score(env, returns))
        mean, low, high = estimates.estimate(returns[:, None])[:, 0]
        numbers = {"mean": mean, "low": low, "high": high, "human_normalised_mean": human.mean()}
        final.append(cell | {"seeds": len(runs), "returns": kind, "updates": ends[env]} | numbers)
        edges = np.linspace(
            0, max(run.updates for name, _, of in cells if name == env for run in of), BINS + 1
        )
        for returns_of in ("training", "evaluation"):
            seeds = np.stack([estimates.bin_means(*run.returns(returns_of), edges) for run in runs])
            for at, (mean, low, high) in zip(edges[1:], estimates.estimate(seeds).T, strict=True):
                point = {"updates": at, "mean": mean, "low": low, "high": high}
                curves.append(cell | {"seeds": len(runs), "returns": returns_of} | point)
    return {
        # Integers of which some may be unknown.
        "runs": pd.DataFrame(listed).astype({"planned_updates": "Int64", "environment_steps": "Int64"}),
        "learning_curves": pd.DataFrame(curves).dropna(subset="mean"),
        "final_returns": pd.DataFrame(final),
        "aggregates": _aggregates([group.label for group in groups], normalised),
    }


def _aggregates(labels: Sequence[str], normalised: Mapping[tuple[str, str], np.ndarray]) -> pd.DataFrame:
    """Aggregates of human-normalised scores over the games that all groups have played; without any, no row."""
    games = sorted({env for env, _ in normalised if all((env, label) in normalised for label in labels)})
    rows = []
    for label in labels if games else ():
        seeds = min(len(normalised[game, label]) for game in games)
        samples = np.stack([normalised[game, label][:seeds] for game in games], axis=1)
        if not np.isnan(samples).any():
            found = estimates.estimate(samples, function=estimates.aggregates).T
            for name, (value, low, high) in zip(estimates.AGGREGATES, found, strict=True):
                aggregate = {"group": label, "games": len(games), "aggregate": name}
                rows.append(aggregate | {"value": value, "low": low, "high": high})
    return pd.DataFrame(rows)
