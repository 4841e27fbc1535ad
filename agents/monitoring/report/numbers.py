"""The numbers of every section: from a study to arrays."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from agents.monitoring.report import estimates
from agents.monitoring.report.events import head_counts
from agents.monitoring.report.groups import KINDS, Group, Study, all_runs
from agents.monitoring.report.runs import Run
from rbs_tf import scores

ALL = "all environments"
BINS = 25
PATH_BINS = 10
THRESHOLDS = 41  # of the performance profile
PARTS = ("whole run", "first fifth", "last fifth")
HEAD_TAGS = {
    "loss": ("train", "loss"),
    "td_error_scaled": ("train", "td_error/scaled"),
    "td_error": ("train", "td_error/unscaled"),
    "value_error": ("evaluation", "value_error"),
}


class Curves(NamedTuple):
    """Returns over updates or steps of one group in one environment; points are means of what came before them."""

    environment: str
    group: str
    kind: str  # of KINDS
    places: np.ndarray  # [K]
    runs: Sequence[Run]
    seeds: np.ndarray  # [seeds, K]
    mean: np.ndarray  # [3, K], with the interval over seeds


class Final(NamedTuple):
    """Returns at the end of one group in one environment."""

    environment: str
    group: str
    kind: str
    returns: np.ndarray  # [seeds]

    @property
    def interval(self) -> np.ndarray:
        """Mean over seeds and its 95% bootstrap interval: [3]."""
        return estimates.curve_interval(self.returns[:, None])[:, 0]

    @property
    def human_normalised(self) -> np.ndarray | None:
        """Scores [seeds], or None where nobody has measured a human."""
        known = scores.has_score(self.environment)
        return scores.human_normalised_score(self.environment, self.returns) if known else None


class Improvement(NamedTuple):
    """How probable it is that a run of one group beats one of another."""

    environment: str  # or ALL
    first: str
    second: str
    seeds: int
    probability: np.ndarray  # [3], with the interval


class HeadNumbers(NamedTuple):
    """What the heads of one run learn from; `values` has an axis for PARTS, one for the names, one for heads."""

    environment: str
    group: str
    seed: int
    heads: Sequence[str]
    names: Sequence[str]
    values: np.ndarray  # [3, names, H]

    def of(self, name: str, part: str) -> np.ndarray:
        """Float64 [H]."""
        return self.values[PARTS.index(part), list(self.names).index(name)]


class Choices(NamedTuple):
    """Which head acts, of one run."""

    environment: str
    group: str
    seed: int
    heads: Sequence[str]
    places: np.ndarray  # [K]
    probability: np.ndarray  # [H, K], the bandit's
    episodes: np.ndarray  # [H, K], finished in each bin

    @property
    def last(self) -> np.ndarray:
        """The latest probabilities that were logged: [H]."""
        return self.probability[:, np.flatnonzero(~np.isnan(self.probability[0]))[-1]]


class Path(NamedTuple):
    """Loss beside score while a group learns in an environment; means over seeds."""

    environment: str
    group: str
    places: np.ndarray  # [K]
    score: np.ndarray  # [K], training returns
    loss: np.ndarray  # [K], summed over heads


class Numbers(NamedTuple):
    """All of a report's. The four of human-normalised scores are empty without a game that all groups have played."""

    curves: Sequence[Curves]
    finals: Sequence[Final]
    games: Sequence[str]
    human_places: np.ndarray  # [K]
    human_curves: Mapping[str, np.ndarray]  # group -> [3, 3, K], see `estimates.game_bands`
    aggregates: Mapping[str, np.ndarray]  # group -> [3, 4], see `estimates.ALL_AGGREGATES`
    profiles: Mapping[str, np.ndarray]  # group -> [3, len(THRESHOLDS)]
    thresholds: np.ndarray
    improvements: Sequence[Improvement]
    heads: Sequence[HeadNumbers]
    choices: Sequence[Choices]
    paths: Sequence[Path]


def compute(study: Study) -> Numbers:
    """All numbers of a study."""
    ended = finals(study)
    played = games(study)
    places, human = human_curves(study, played) if played else (np.empty(0), {})
    samples = normalised_finals(ended, played)
    thresholds, profiles_of = profiles(samples)
    return Numbers(
        curves=curves(study),
        finals=ended,
        games=played,
        human_places=places,
        human_curves=human,
        aggregates={
            label: estimates.estimate(values, function=estimates.all_aggregates)
            for label, values in samples.items()
        },
        profiles=profiles_of,
        thresholds=thresholds,
        improvements=improvements(study, ended),
        heads=head_numbers(study),
        choices=choices(study),
        paths=paths(study),
    )


def curves(study: Study) -> list[Curves]:
    """Of both kinds, `BINS` points each, up to the longest run of an environment."""
    found = []
    for environment, group, runs in study.cells():
        longest = max(
            float(study.places(run, run.updates))
            for name, _, of in study.cells()
            for run in of
            if name == environment
        )
        for kind in KINDS:
            edges = np.linspace(0, longest, BINS + 1)
            seeds = np.stack([_curve(study, run, kind, edges) for run in runs])
            if not np.isnan(seeds).all():
                mean = estimates.curve_interval(seeds)
                found.append(Curves(environment, group.label, kind, edges[1:], runs, seeds, mean))
    return found


def _curve(study: Study, run: Run, kind: str, edges: np.ndarray) -> np.ndarray:
    """At the upper edges: training returns averaged over bins, evaluations, which are fewer, interpolated."""
    places, values = study.returns(run, kind)
    if kind == "training":
        return estimates.binned(places, values, edges)
    return estimates.interpolated(places, values, edges[1:])


def finals(study: Study) -> list[Final]:
    """Of the study's kind: means over the last fifth of what all runs in an environment have."""
    return [
        Final(
            environment,
            group.label,
            study.kind,
            np.array(
                [estimates.final(*study.returns(run, study.kind), study.ends[environment]) for run in runs]
            ),
        )
        for environment, group, runs in study.cells()
    ]


def games(study: Study) -> list[str]:
    """Atari games that all groups have played: what aggregates can be made of."""
    return [
        environment
        for environment in study.environments
        if scores.has_score(environment) and all(environment in group.runs for group in study.groups)
    ]


def human_curves(study: Study, played: Sequence[str]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Aggregates over games of human-normalised returns, means over seeds first: [K], and group -> [3, 3, K].

    Up to where every run of every game is; see `estimates.game_bands`.
    """
    edges = np.linspace(0, min(study.ends[game] for game in played), BINS + 1)

    def normalised(group: Group, game: str) -> np.ndarray:
        over_seeds = np.mean([_curve(study, run, study.kind, edges) for run in group.runs[game]], axis=0)
        return scores.human_normalised_score(game, over_seeds)

    of_groups = {
        group.label: estimates.game_bands(np.stack([normalised(group, game) for game in played]))
        for group in study.groups
    }
    return edges[1:], of_groups


def normalised_finals(ended: Sequence[Final], played: Sequence[str]) -> dict[str, np.ndarray]:
    """Group -> human-normalised final scores [seeds, games], as many seeds as every game has."""
    columns = defaultdict(list)
    for game in played:
        for final in ended:
            if final.environment == game:
                columns[final.group].append(final.human_normalised)
    stacked = {group: _stacked(of_games) for group, of_games in columns.items()}
    return {group: samples for group, samples in stacked.items() if not np.isnan(samples).any()}


def improvements(study: Study, ended: Sequence[Final]) -> list[Improvement]:
    """Of every two groups, in each environment and in all that both have run in.

    Returns are compared within an environment alone, so that none of this needs common units.
    """
    of = {(final.environment, final.group): final.returns for final in ended}
    found = []
    for first, second in itertools.combinations([group.label for group in study.groups], 2):
        both = [e for e in study.environments if (e, first) in of and (e, second) in of]
        both = [e for e in both if not np.isnan(np.concatenate([of[e, first], of[e, second]])).any()]
        tasks = [(ALL, both)] * (len(both) > 1) + [(e, [e]) for e in both]
        for name, environments in tasks:
            x, y = (_stacked([of[e, group] for e in environments]) for group in (first, second))
            numbers = estimates.estimate(x, y, function=_probability)[:, 0]
            found.append(Improvement(name, first, second, min(len(x), len(y)), numbers))
    return found


def _probability(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return estimates.difference_and_probability(x, y)[1:]


def _stacked(columns: Sequence[np.ndarray]) -> np.ndarray:
    return np.stack([column[: min(map(len, columns))] for column in columns], axis=1)


def head_numbers(study: Study) -> list[HeadNumbers]:
    """Means of each head's loss, share of the loss and errors, in the parts of what all runs have."""
    found = []
    for environment, group, runs in study.cells():
        end = study.ends[environment]
        for run in runs:
            if not run.heads:
                continue
            values = []
            for low, high in ((-1, end), (-1, 0.2 * end), (0.8 * end, end)):
                rows = [
                    [_mean_between(study, run, of, f"{tag}/{head}", low, high) for head in run.heads]
                    for of, tag in HEAD_TAGS.values()
                ]
                values.append([*rows, np.array(rows[0]) / np.sum(rows[0])])
            names = (*HEAD_TAGS, "share")
            found.append(HeadNumbers(environment, group.label, run.seed, run.heads, names, np.array(values)))
    return found


def _mean_between(study: Study, run: Run, of: str, tag: str, low: float, high: float) -> float:
    series = getattr(run, of).scalars.get(tag)
    if series is None:
        return np.nan
    places = study.places(run, series[:, 0])
    inside = series[(places > low) & (places <= high), 1]
    return float(inside.mean()) if len(inside) else np.nan


def choices(study: Study) -> list[Choices]:
    """Of runs with several heads whose bandit was logged."""
    found = []
    for environment, group, runs in study.cells():
        edges = np.linspace(0, study.ends[environment], BINS + 1)
        for run in runs:
            series = [run.train.scalars.get(f"bandit/probability/{head}") for head in run.heads]
            if len(series) < 2 or any(values is None for values in series):
                continue
            probability = [
                estimates.binned(study.places(run, values[:, 0]), values[:, 1], edges) for values in series
            ]
            if np.isnan(probability).all():
                continue
            episodes = np.zeros((len(series), BINS))
            for update, buckets in run.train.histograms.get("episode/head", ()):
                place = float(study.places(run, update))
                for head, count in head_counts(buckets).items():
                    if head < len(series) and place <= edges[-1]:
                        episodes[head, max(np.searchsorted(edges, place) - 1, 0)] += count
            found.append(
                Choices(
                    environment, group.label, run.seed, run.heads, edges[1:], np.stack(probability), episodes
                )
            )
    return found


def paths(study: Study) -> list[Path]:
    """`PATH_BINS` points for each group and environment, up to where every run of it is."""
    found = []
    for environment, group, runs in study.cells():
        edges = np.linspace(0, study.ends[environment], PATH_BINS + 1)
        pairs = []
        for run in runs:
            if run.heads:
                losses = sum(run.train.scalars[f"loss/{head}"][:, 1] for head in run.heads)
                at = study.places(run, run.train.scalars[f"loss/{run.heads[0]}"][:, 0])
                score = estimates.binned(*study.returns(run, "training"), edges)
                pairs.append((score, estimates.binned(at, losses, edges)))
        if pairs:
            score, loss = np.mean(pairs, axis=0)
            if not np.isnan(score + loss).all():
                found.append(Path(environment, group.label, edges[1:], score, loss))
    return found


def profiles(samples: Mapping[str, np.ndarray]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Thresholds [T], from 0 to the largest score (at least human level), and group -> [3, T]."""
    largest = max([1.0, *(values.max() for values in samples.values())])
    thresholds = np.linspace(0, largest, THRESHOLDS)
    of = functools.partial(estimates.profile, thresholds=thresholds)
    return thresholds, {label: estimates.estimate(values, function=of) for label, values in samples.items()}


def in_words(study: Study, heads: Sequence[HeadNumbers]) -> list[str]:
    """A sentence for each group in each environment: how its training ended, and how unlike its heads' errors were."""
    sentences = []
    for environment, group, runs in study.cells():
        ends = [estimates.final(*study.returns(run, "training"), study.ends[environment]) for run in runs]
        words = f"{group.label} in {environment}: {np.mean(ends):.4g} points per training episode"
        spans = [
            np.max(errors) / np.min(errors)
            for of in heads
            if (of.environment, of.group) == (environment, group.label) and len(of.heads) > 1
            for errors in [of.of("td_error_scaled", "last fifth")]
            if np.min(errors) > 0
        ]
        if spans:
            span = float(f"{np.exp(np.mean(np.log(spans))):.3g}")
            words += f", from heads whose errors span a factor of {span:,.4g}"
        sentences.append(f"{words} (last fifth{f', {len(runs)} seeds' if len(runs) > 1 else ''}).")
    return sentences


def heads_of(study: Study) -> list[str]:
    """Every head's name, in the order of the run with the most."""
    named = sorted((run.heads for run in all_runs(study)), key=len, reverse=True)
    return list(dict.fromkeys(itertools.chain.from_iterable(named)))
