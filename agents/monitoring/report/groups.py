"""Runs put into groups, and what a reader has to know before comparing them."""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agents.monitoring.report import recorded
from agents.monitoring.report.runs import Run

AXES = {"updates": "learner updates", "steps": "environment steps"}
KINDS = {
    "training": "training episodes (epsilon-greedy)",
    "evaluation": "evaluation (greedy, with one head)",
}
_UNLIKE = 0.05  # runs whose lengths differ by more than this share are of different lengths
_UNFINISHED = {
    "running": "Still running, so that numbers will change",
    "stopped": "Stopped before the updates that were asked for",
}


class Group(NamedTuple):
    """Runs that differ in seed, environment and length only."""

    label: str  # the shortest that tells it from the other groups
    settings: Mapping[str, str]  # name -> value as text, without those that may differ within it
    runs: Mapping[str, Sequence[Run]]  # environment -> runs by seed


class Study(NamedTuple):
    """Everything that the report is about."""

    axis: str  # "updates" or "steps", what curves are drawn over
    groups: Sequence[Group]  # in the order in which they are shown
    environments: Sequence[str]
    left_out: Sequence[tuple[Path, str]]  # folder and why
    ends: Mapping[str, float]  # environment -> how far, on the axis, every run in it has come
    kind: str  # of the returns that scores are made of, "evaluation" if all runs have some
    root: Path  # the folder that holds all runs

    def name(self, run: Run) -> str:
        """A run's short name: its folder, without what all have in common."""
        return os.path.relpath(run.folder, self.root)

    def cells(self) -> Iterable[tuple[str, Group, Sequence[Run]]]:
        """Environment, group and its runs there, where there are any."""
        for environment, group in itertools.product(self.environments, self.groups):
            if environment in group.runs:
                yield environment, group, group.runs[environment]

    def runs(self, environment: str | None = None) -> list[Run]:
        """Every run that the report uses, or every one in an environment."""
        return [run for name, _, of in self.cells() for run in of if environment in (None, name)]


def make(found: Sequence[Run], axis: str, left_out: Sequence[tuple[Path, str]] = ()) -> Study:
    """Groups runs by their settings; leaves out what has logged nothing and the shorter of two runs of one seed."""
    left_out = list(left_out)
    kept: dict[tuple, Run] = {}
    for run in sorted(found, key=lambda run: -run.updates):
        key = tuple(sorted(recorded.method(run.settings).items())), run.environment, run.seed
        if not run.updates or not (run.train or run.evaluation):
            left_out.append((run.folder, "it has made no updates yet, or logged nothing"))
        elif key in kept:
            reason = f"it has the settings and the seed of {kept[key].folder}, which is as long or longer"
            left_out.append((run.folder, reason))
        else:
            kept[key] = run
    by_method: dict[tuple, dict[str, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for (method, environment, _), run in sorted(kept.items(), key=lambda item: item[0][2]):
        by_method[method][environment].append(run)
    methods = [dict(method) for method in by_method]
    groups = list(map(Group, recorded.labels(methods), methods, by_method.values()))
    # The paper's comparison first, its baseline last but before what has no scaling at all.
    first = {recorded.SCALED: 0, recorded.UNSCALED: 1}
    groups.sort(key=lambda group: (first.get(group.settings.get(recorded.SCALING, ""), 2), group.label))
    environments = sorted({run.environment for run in kept.values()})
    root = Path(os.path.commonpath([run.folder.parent for run in found])) if found else Path()
    study = Study(axis, groups, environments, left_out, {}, "training", root)
    ends = {name: min(run.length for run in study.runs(name)) for name in environments}
    evaluated = all((run.returns("evaluation")[0] <= ends[run.environment]).any() for run in study.runs())
    return study._replace(ends=ends, kind="evaluation" if evaluated else "training")


def notes(study: Study) -> Iterable[str]:
    """Obstacles to a fair comparison, one sentence or two each."""
    settings = [group.settings for group in study.groups]
    of_all = [name for name in recorded.differing(settings) if all(name in each for each in settings)]
    if others := [name for name in of_all if name != recorded.SCALING]:
        yield f"Groups differ in more than their scaling: {', '.join(others)}; see Settings."
    seeds = [len(of) for *_, of in study.cells()]
    if min(seeds) < 5:
        yield (
            f"{seeds.count(1)} of {len(seeds)} combinations of group and environment have one seed, which gives no "
            "interval. With few the percentile bootstrap is too narrow: of three normally distributed returns its "
            "nominal 95% cover the mean 75% of the time, of five 83%."
        )
    pairs = itertools.product(study.environments, study.groups)
    if missing := [f"{group.label} in {name}" for name, group in pairs if name not in group.runs]:
        yield f"Not every group ran in every environment. Missing: {'; '.join(missing)}."
    commits = sorted({run.versions["commit"] for run in study.runs()})
    if len(commits) > 1:
        short = [commit[:10] + " with changes" * commit.endswith("changes") for commit in commits]
        yield f"Runs come from {len(commits)} states of the code: {', '.join(short)}."
    for environment in study.environments:
        runs = sorted(study.runs(environment), key=lambda run: run.length)
        shortest, longest = runs[0], runs[-1]
        if shortest.length < (1 - _UNLIKE) * longest.length:
            yield (
                f"{environment}: runs are of different lengths. Numbers are taken at {shortest.length:,.0f} "
                f"{AXES[study.axis]}, where the shortest ends ({study.name(shortest)}, {shortest.state}); the longest "
                f"has {longest.length:,.0f}. A mean curve ends where the first of its seeds does."
            )
    for state, words in _UNFINISHED.items():
        if names := [study.name(run) for run in study.runs() if run.state == state]:
            yield f"{words}: {', '.join(names)}."
