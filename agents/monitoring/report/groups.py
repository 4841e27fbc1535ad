"""Runs put into groups, and what a reader has to know before comparing them."""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agents.monitoring.report import settings
from agents.monitoring.report.runs import Run

AXES = {"updates": "learner updates", "steps": "environment steps"}
KINDS = {
    "training": "training episodes (epsilon-greedy)",
    "evaluation": "evaluation (greedy, with the head that the bandit rates best)",
}
# What a scaling of this name calls a TD error in reward units is in units of the rewards that it learns from.
OWN_UNITS = ("clip", "gymnasium")
_LISTED = 6  # of what is missing
_UNLIKE = 0.05  # runs whose lengths differ by more than this share are of different lengths
_NO_RETURNS = np.empty((0, 2))


class Group(NamedTuple):
    """Runs that differ in seed, environment and length alone.

    Attributes:
      label: the shortest that tells it from the other groups.
      settings: name -> value as text, without those that may differ within it.
      runs: environment -> runs by seed.
    """

    label: str
    settings: Mapping[str, str]
    runs: Mapping[str, Sequence[Run]]


class Study(NamedTuple):
    """Everything that the report is about.

    Attributes:
      axis: "updates" or "steps", what curves are drawn over.
      groups, environments: in the order in which they are shown.
      left_out: folder and why.
      ends: environment -> how far, on the axis, every run in it has come.
      kind: the returns that scores are made of, "evaluation" if all runs have some.
      root: the folder that holds all runs, which are called by their paths in it.
    """

    axis: str
    groups: Sequence[Group]
    environments: Sequence[str]
    left_out: Sequence[tuple[Path, str]]
    ends: Mapping[str, float]
    kind: str
    root: Path

    def name(self, run: Run) -> str:
        """What to call a run: its folder, without what all have in common."""
        return os.path.relpath(run.folder, self.root)

    def places(self, run: Run, updates: np.ndarray) -> np.ndarray:
        """Where updates of a run are on the axis, float64 of their shape."""
        return places(self.axis, run, updates)

    def returns(self, run: Run, kind: str) -> tuple[np.ndarray, np.ndarray]:
        """Places and mean returns per episode (original points) of a run's entries, float64 [N] each."""
        updates, values = returns(run, kind).T
        return self.places(run, updates), values

    def cells(self) -> Iterable[tuple[str, Group, Sequence[Run]]]:
        """Environment, group and its runs there, where there are any."""
        for environment, group in itertools.product(self.environments, self.groups):
            if environment in group.runs:
                yield environment, group, group.runs[environment]


def places(axis: str, run: Run, updates: np.ndarray) -> np.ndarray:
    """Updates themselves, or the environment steps at which they were made."""
    if axis == "updates":
        return np.asarray(updates, np.float64)
    return np.interp(updates, *run.steps_of_updates.T)


def returns(run: Run, kind: str) -> np.ndarray:
    """Update and mean return per episode of a kind of `KINDS`: float64 [N, 2]."""
    of = run.train if kind == "training" else run.evaluation
    return of.scalars.get("episode/return", _NO_RETURNS)


def make(found: Sequence[Run], axis: str, left_out: Sequence[tuple[Path, str]] = ()) -> Study:
    """Groups runs by their settings; leaves out what has logged nothing and the shorter of two runs of one seed."""
    left_out, kept = list(left_out), {}
    for run in sorted(found, key=lambda run: -run.updates):
        method = tuple(sorted(settings.method(run.settings).items()))
        key = method, run.environment, run.seed
        if not run.updates or not (run.train.scalars or run.evaluation.scalars):
            left_out.append((run.folder, "it has made no updates yet, or logged nothing"))
        elif axis == "steps" and not len(run.steps_of_updates):
            left_out.append((run.folder, "it has not logged environment_steps, which --x=steps needs"))
        elif key in kept:
            reason = f"it has the settings and the seed of {kept[key].folder}, which is as long or longer"
            left_out.append((run.folder, reason))
        else:
            kept[key] = run
    by_method: dict[tuple, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for (method, environment, _), run in sorted(kept.items(), key=lambda item: item[0][2]):
        by_method[method][environment].append(run)
    methods = [dict(method) for method in by_method]
    names = settings.labels(methods) if methods else []
    groups = [
        Group(label, method, dict(of))
        for label, method, of in zip(names, methods, by_method.values(), strict=True)
    ]
    groups.sort(key=_by_scaling)
    environments = sorted({run.environment for run in kept.values()})
    ends = {
        environment: min(
            float(places(axis, run, run.updates)) for run in kept.values() if run.environment == environment
        )
        for environment in environments
    }
    evaluated = all(
        (places(axis, run, returns(run, "evaluation")[:1, 0]) <= ends[run.environment]).any()
        for run in kept.values()
    )
    root = Path(os.path.commonpath([run.folder.parent for run in found])) if found else Path()
    return Study(axis, groups, environments, left_out, ends, "evaluation" if evaluated else "training", root)


def _by_scaling(group: Group) -> tuple:
    """The paper's comparison first, its baseline last but before what has no scaling at all."""
    scaling = group.settings.get(settings.SCALING, "")
    order = ("@scalings.return_based", "@scalings.none")
    return (order.index(scaling) if scaling in order else len(order)), group.label


def all_runs(study: Study) -> list[Run]:
    """Every run that the report uses."""
    return [run for *_, of in study.cells() for run in of]


def notes(study: Study) -> list[str]:
    """What stands in the way of a fair comparison, one sentence or two each."""
    return [*_about_settings(study), *_about_versions(study), *_about_lengths(study), *_about_data(study)]


def _about_settings(study: Study) -> Iterable[str]:
    several, _ = settings.differing([group.settings for group in study.groups])
    others = [name for name in several if name != settings.SCALING]
    if others:
        yield (
            f"Groups differ in more than their scaling: {', '.join(others)}. A difference between two groups may "
            "come from any setting in which they differ; see Settings."
        )
    seeds = [len(of) for *_, of in study.cells()]
    if min(seeds) == 1:
        yield (
            f"{sum(n == 1 for n in seeds)} of {len(seeds)} combinations of group and environment have one seed. "
            "They are shown without intervals over seeds, which one seed does not give."
        )
    if any(1 < n < 5 for n in seeds):
        yield (
            "With few seeds the percentile bootstrap is too narrow: of three seeds it spans the smallest to the "
            "largest, and for normally distributed returns its nominal 95% cover the mean 75% of the time (five: 83%)."
        )
    missing = [
        f"{group.label} in {environment}"
        for environment, group in itertools.product(study.environments, study.groups)
        if environment not in group.runs
    ]
    if missing:
        more = f" and {len(missing) - _LISTED} more" if len(missing) > _LISTED else ""
        yield f"Not every group ran in every environment. Missing: {'; '.join(missing[:_LISTED])}{more}."


def _about_versions(study: Study) -> Iterable[str]:
    runs = all_runs(study)
    commits = sorted({run.versions.get("commit", "unknown") for run in runs})
    if len(commits) > 1:
        short = ", ".join(commit[:10] + " with changes" * commit.endswith("changes") for commit in commits)
        yield f"Runs come from {len(commits)} states of the code: {short}."
    elif commits[0] == "unknown" or commits[0].endswith("changes"):
        yield "The code of the runs is not that of a commit (unknown, or changed since)."
    names = sorted(set().union(*(run.versions for run in runs)) - {"commit", "platform"})
    found = {name: sorted({run.versions[name] for run in runs if name in run.versions}) for name in names}
    unlike = [f"{name} {' and '.join(versions)}" for name, versions in found.items() if len(versions) > 1]
    if unlike:
        yield f"Runs used several versions of {'; '.join(unlike)}."


def _about_lengths(study: Study) -> Iterable[str]:
    for environment in study.environments:
        runs = [run for name, _, of in study.cells() for run in of if name == environment]
        lengths = [float(study.places(run, run.updates)) for run in runs]
        shortest = runs[int(np.argmin(lengths))]
        if min(lengths) < (1 - _UNLIKE) * max(lengths):
            yield (
                f"{environment}: runs are of different lengths. Numbers are taken at {min(lengths):,.0f} "
                f"{AXES[study.axis]}, where the shortest ends ({study.name(shortest)}, {shortest.state}); the longest "
                f"has {max(lengths):,.0f}. A mean curve ends where the first of its seeds does."
            )
    running = [study.name(run) for run in all_runs(study) if run.state == "running"]
    if running:
        yield f"Still running: {', '.join(running)}. Their numbers will change."
    stopped = [study.name(run) for run in all_runs(study) if run.state == "stopped"]
    if stopped:
        yield f"Stopped before the updates that were asked for: {', '.join(stopped)}."


def _about_data(study: Study) -> Iterable[str]:
    for run in all_runs(study):
        damaged = run.train.damaged + run.evaluation.damaged
        if damaged and run.state != "running":
            yield (
                f"{study.name(run)}: {', '.join(damaged)} breaks off inside a record; what stands before it is used."
            )
        tags = ("episode/return", "environment_steps")
        missing = [tag for tag in tags if tag not in run.train.scalars] + ["loss/HEAD"] * (not run.heads)
        if missing:
            yield f"{study.name(run)} has not logged {', '.join(missing)}; it is missing where these are shown."
