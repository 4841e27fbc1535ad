"""The page: one HTML file with style, script, drawings and data inside, that asks nothing of any server."""

from __future__ import annotations

import base64
import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from agents.monitoring.report import estimates, panels, settings, tables
from agents.monitoring.report.groups import AXES, KINDS, OWN_UNITS, Study, all_runs, notes
from agents.monitoring.report.look import SCRIPT, STYLE
from agents.monitoring.report.numbers import ALL, Numbers
from rbs_tf import scores

_SHOWN = 60  # characters of a setting's value in a table; the rest is in its title
_INTERVAL = "95% bootstrap intervals over seeds (pointwise; one seed: none)"


def write(study: Study, numbers: Numbers, title: str, data: Sequence[tables.Table]) -> str:
    """The page as text.

    Args:
      title: its heading.
      data: the CSV tables, which are embedded.
    """
    with panels.ink():
        look = panels.styles(study.groups)
        sections = [
            _runs(study),
            _settings(study),
            _curves(study, numbers, look),
            _human(study, numbers, look),
            _aggregates(study, numbers, look),
            _improvement(study, numbers),
            _heads(study, numbers, look),
            _choices(study, numbers),
            _loss_and_score(study, numbers, look),
            _data(data),
        ]
        legend = "".join(f"<li>{panels.swatch(style)} {_e(label)}</li>" for label, style in look.items())
    contents = "".join(f'<li><a href="#{name}">{_e(heading)}</a></li>' for name, heading, _ in sections)
    bodies = "".join(
        f'<section id="{name}"><h2>{_e(heading)}</h2>{body}</section>' for name, heading, body in sections
    )
    warned = "".join(f"<li>{_e(note)}</li>" for note in notes(study))
    before = f'<aside class="notes"><h2>Before you compare</h2><ul>{warned}</ul></aside>' if warned else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{_e(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<header><h1>{_e(title)}</h1><p>{_summary(study)}</p></header>
<nav aria-label="Contents"><ol>{contents}</ol></nav>
{before}
<div class="legend" aria-label="Groups"><ul>{legend}</ul></div>
<main>{bodies}</main>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _e(value: Any) -> str:
    return html.escape(str(value))


def _summary(study: Study) -> str:
    seeds = sorted({len(runs) for *_, runs in study.cells()})
    each = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return (
        f"{_several(len(all_runs(study)), 'run')} in {_several(len(study.groups), 'group')} and "
        f"{_several(len(study.environments), 'environment')}, {each} seed{'s' * (seeds[-1] > 1)} each. "
        "A group is all runs whose saved settings are equal but for seed, environment and length."
    )


def _several(count: int, name: str) -> str:
    return f"{count:,} {name}{'s' * (count != 1)}"


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]], caption: str) -> str:
    """A table that its headers sort. A cell is a value, or a pair: what is shown and what it is sorted by."""
    heads = "".join(f'<th scope="col"><button type="button">{_e(name)}</button></th>' for name in header)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{_e(caption)}"><table class="sortable">'
        f"<caption>{_e(caption)}</caption><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cell(value: Any) -> str:
    shown, key = value if isinstance(value, tuple) else (value, value)
    if shown is None:
        return "<td>-</td>"
    number = isinstance(key, int | float | np.number)
    if shown is key and number:
        shown = f"{key:,}" if isinstance(key, int | np.integer) else _number(key)
    return (
        f'<td class="number" data-key="{float(key)!r}">{_e(shown)}</td>'
        if number
        else f"<td>{_e(shown)}</td>"
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _interval(numbers: np.ndarray, form: Callable[[float], str] = _number) -> tuple[str, float]:
    """Point and interval from [3], for a cell."""
    point, low, high = map(form, numbers)
    shown = point if np.isnan(numbers[1]) else f"{point} [{low}, {high}]"
    return ("-" if np.isnan(numbers[0]) else shown), float(numbers[0])


def _figures(drawn: Sequence[panels.Panel]) -> str:
    each = "".join(
        f"<figure><figcaption>{_e(panel.title)}</figcaption>{panel.svg}</figure>" for panel in drawn
    )
    return f'<div class="panels">{each}</div>'


def _runs(study: Study):
    rows = [
        [environment, group.label, run.seed, run.updates, run.planned, run.steps]
        + [run.state + f", {run.starts} starts" * (run.starts > 1)]
        + [_commit(run.versions.get("commit", "unknown")), study.name(run)]
        for environment, group, runs in study.cells()
        for run in runs
    ]
    header = [
        "environment",
        "group",
        "seed",
        "updates",
        "asked for",
        "environment steps",
        "state",
        "commit",
        "folder",
    ]
    body = (
        "<p>One line per run, from its saved configuration, its versions.txt and its event files; updates and "
        "environment steps are those that have been logged. Click on a column's name to sort by it.</p>"
        + _table(header, rows, "Runs")
    )
    if study.left_out:
        lines = "".join(f"<li><code>{_e(folder)}</code>: {_e(why)}</li>" for folder, why in study.left_out)
        body += f"<p>Left out:</p><ul>{lines}</ul>"
    return "runs", "Runs", body


def _commit(commit: str) -> str:
    return commit[:10] + " with changes" * commit.endswith("with changes")


def _settings(study: Study):
    several, partial = settings.differing([group.settings for group in study.groups])
    if not several + partial:
        return (
            "settings",
            "Settings",
            "<p>All runs have the same settings but for seed, environment and length.</p>",
        )
    rows = []
    for name in several + partial:
        values = [group.settings.get(name) for group in study.groups]
        kind = "differs" if name in several else "of a part that not all have"
        rows.append([name, kind, *("-" if value is None else _short(value) for value in values)])
    labels = [group.label for group in study.groups]
    body = (
        "<p>What differs between groups, from operative_config.gin, defaults included; all other settings are equal. "
        "A dash: the group's runs have no such part.</p>"
        + _table(["setting", "kind", *labels], rows, "Settings that differ")
    )
    return "settings", "Settings", body


def _short(value: str) -> str:
    value = " ".join(value.split())
    return value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"


def _curves(study: Study, numbers: Numbers, look: Mapping[str, panels.Style]):
    unknown = [environment for environment in study.environments if not scores.has_score(environment)]
    rows = []
    for final in numbers.finals:
        human = final.human_normalised
        normalised = "no human score" if human is None else (f"{human.mean():.3g}", float(human.mean()))
        rows.append(
            [final.environment, final.group, len(final.returns), _interval(final.interval), normalised]
        )
    body = (
        f"<p>Mean return per episode in original points, over {AXES[study.axis]}. Thin lines are seeds; a thick one is "
        f"their mean as far as all of them have come, shaded its {_INTERVAL}. Training returns are averaged "
        "over what lies between two points; evaluations are joined by straight lines.</p>"
        + _figures(panels.learning_curves(study, numbers, look))
        + f"<p>Final returns: {KINDS[study.kind]}, mean over the last fifth of the {AXES[study.axis]} that all runs in "
        f"an environment have (else the last one there), with {_INTERVAL}.</p>"
        + _table(["environment", "group", "seeds", "final return", "human-normalised"], rows, "Final returns")
    )
    if unknown:
        body += f"<p>No human score exists for {_e(', '.join(unknown))}: nothing is normalised there.</p>"
    return "curves", "Learning curves", body


def _human(study: Study, numbers: Numbers, look: Mapping[str, panels.Style]):
    name, heading = "human", "Human-normalised scores"
    if not numbers.games:
        return name, heading, _no_games(study)
    games = len(numbers.games)
    band = (
        "shaded is the inter-quartile range from resampling the games, which shows how much single games matter (not "
        "the spread over seeds)"
        if games > 1
        else "one game has no such band as the paper's, which comes from resampling games"
    )
    body = (
        f"<p>Mean, median and mean capped at human level (1) over {_several(games, 'game')}, of {KINDS[study.kind]}: 0 "
        f"is a random player, 1 a human. Seeds are averaged first; {band}. As in the paper's Figure 4."
        f"{_others(study, numbers)}</p>" + _figures(panels.human_normalised(study, numbers, look))
    )
    return name, heading, body


def _no_games(study: Study) -> str:
    why = (
        "no environment of these runs has a human score"
        if not any(scores.has_score(environment) for environment in study.environments)
        else "no game was played by all groups"
    )
    return (
        f"<p>Left out: {why}. Scores are averaged over environments only where a random player and a human fix the "
        "units; any other normalisation would depend on the runs themselves.</p>"
    )


def _others(study: Study, numbers: Numbers) -> str:
    others = [environment for environment in study.environments if environment not in numbers.games]
    if not others:
        return ""
    return f" Left out, without a human score or not played by all groups: {_e(', '.join(others))}."


def _aggregates(study: Study, numbers: Numbers, look: Mapping[str, panels.Style]):
    name, heading = "aggregates", "Aggregates and performance profile"
    if not numbers.games:
        return name, heading, _no_games(study)
    if not numbers.aggregates:
        return name, heading, "<p>Left out: some runs have no return yet.</p>"
    one = all(np.isnan(values[1]).any() for values in numbers.aggregates.values())
    spread = (
        "There is one seed per game, so that no interval over seeds can be given"
        if one
        else "95% intervals are from rliable's stratified bootstrap over seeds"
    )
    rows = [
        [label, *(_interval(of_name) for of_name in values.T)] for label, values in numbers.aggregates.items()
    ]
    body = (
        f"<p>Final human-normalised scores over {_several(len(numbers.games), 'game')}. {spread}. The interquartile "
        "mean is that of the middle half of all runs; the profile is the share of runs above each score (higher is "
        f"better everywhere). After Agarwal et al. 2021.{_others(study, numbers)}</p>"
        + _figures(panels.aggregates(numbers, look))
        + _table(["group", *estimates.ALL_AGGREGATES], rows, "Final human-normalised scores")
    )
    return name, heading, body


def _improvement(study: Study, numbers: Numbers):
    name, heading = "improvement", "Probability of improvement"
    if not numbers.improvements:
        return name, heading, "<p>Left out: there are no two groups with returns in one environment.</p>"
    rows = [
        [row.environment, row.first, row.second, row.seeds, _interval(row.probability, "{:.2f}".format)]
        for row in numbers.improvements
    ]
    over = " Over all environments it is the mean." if any(row[0] == ALL for row in rows) else ""
    body = (
        "<p>The probability that a run of the first group has a higher final return than one of the second in the same "
        f"environment, ties counted half: 0.5 is no difference.{over} Comparing needs no normalisation. 95% intervals "
        "from rliable's bootstrap; one seed: none. One of no width says that all runs of the one beat all runs of the "
        "other, not that the probability is certain.</p>"
        + _figures(panels.improvement(numbers))
        + _table(
            ["environment", "first", "second", "seeds", "P(first > second)"],
            rows,
            "Probability of improvement",
        )
    )
    return name, heading, body


def _heads(study: Study, numbers: Numbers, look: Mapping[str, panels.Style]):
    name, heading = "heads", "Loss, share and accuracy per head"
    if not numbers.heads:
        return name, heading, "<p>Left out: no run has logged its heads' losses.</p>"
    odd = [
        group.label
        for group in study.groups
        if group.settings.get(settings.SCALING, "").rpartition(".")[2] in OWN_UNITS
    ]
    own = (
        f" Not comparable with the others: {_e(', '.join(odd))}, whose errors are in units of the rewards as that "
        "scaling changes them."
        if odd
        else ""
    )
    few = len(study.environments) <= panels.MOST_PANELS
    bars = f"bars: {_INTERVAL}" if few else "a thin line is an environment, mean over seeds, without interval"
    first = " (line, filled) and in the first fifth (hollow)" if few else ""
    accuracy = panels.heads(study, numbers, look, "value_error", "RMSE / deviation of returns")
    unscaled = [g.label for g in study.groups if g.settings.get(settings.SCALING) == "@scalings.none"]
    reference = (unscaled or [study.groups[0].label])[0]
    (inside,) = (group.runs for group in study.groups if group.label == reference)
    without = [environment for environment in study.environments if environment not in inside]
    own += f" {_e(reference)} has no run in {_e(', '.join(without))}." * bool(without)
    parts = (
        (
            "Loss scale",
            "Mean of half the squared scaled TD error of each head over the whole run, without importance weights: "
            f"what the network learns from. Balanced heads are level; {bars}.",
            panels.heads(study, numbers, look, "loss", "loss"),
        ),
        (
            "Share of the loss",
            f"Each head's part in the sum of the heads' losses, in the last fifth{first}; {bars}.",
            panels.heads(study, numbers, look, "share", "share of the loss"),
        ),
        (
            "Value accuracy",
            "Greedy evaluations in the last fifth: root mean square error of values against the returns that followed, "
            "over the standard deviation of these returns, as in the paper's Figure 6. 1 is the best constant, lower "
            "is more accurate. A head's values are of its own greedy policy, and another head may have been acting; "
            f"{bars}." + ("" if accuracy else " Left out: these runs have not logged value_error."),
            accuracy,
        ),
        (
            f"TD errors relative to {_e(reference)}",
            "Root mean square of TD errors in reward units, before any scaling, in the last fifth, over the same "
            f"head's mean in {_e(reference)}: below 1 is smaller. Targets come from the group's own network, so that "
            f"this is no error against returns; {bars}.{own}",
            panels.heads(study, numbers, look, "td_error", "relative RMS TD error", reference),
        ),
    )
    body = "".join(f"<h3>{title}</h3><p>{sentence}</p>{_figures(drawn)}" for title, sentence, drawn in parts)
    return name, heading, body


def _choices(study: Study, numbers: Numbers):
    name, heading = "choices", "Head choices"
    if not numbers.choices:
        return name, heading, "<p>Left out: no run has several heads and a logged bandit.</p>"
    rows = []
    for environment, group, _ in study.cells():
        runs = [run for run in numbers.choices if (run.environment, run.group) == (environment, group.label)]
        runs = [run for run in runs if run.heads == runs[0].heads]
        if runs:
            shares = panels.played(runs)
            probability = np.mean([run.last for run in runs], axis=0)
            for head, share, last in zip(runs[0].heads, shares, probability, strict=True):
                rows.append([environment, group.label, len(runs), head, float(share), float(last)])
    body = (
        "<p>The probability with which the bandit lets each head act in the next episode, mean over seeds; evaluations "
        "use the likeliest. The table adds the share of all finished training episodes that each head has played.</p>"
        + _figures(panels.choices(study, numbers))
        + "<details><summary>Episodes by head</summary>"
        + _table(
            ["environment", "group", "seeds", "head", "share of episodes", "probability at the end"],
            rows,
            "Episodes by head",
        )
        + "</details>"
    )
    return name, heading, body


def _loss_and_score(study: Study, numbers: Numbers, look: Mapping[str, panels.Style]):
    name, heading = "score", "Loss scale against score"
    if not numbers.paths:
        return name, heading, "<p>Left out: no run has logged both losses and returns.</p>"
    body = (
        "<p>Does the loss grow with the score? Training return (right is better) against the loss summed over heads, "
        "means over seeds in ten equal parts of what all runs have, from the circle (first) to the triangle (last); no "
        "intervals. A level way is a loss whose scale does not depend on the score.</p>"
        + _figures(panels.loss_and_score(study, numbers, look))
    )
    return name, heading, body


def _data(data: Sequence[tables.Table]):
    lines = []
    for table in data:
        name, header, rows = table
        encoded = base64.b64encode(tables.text(table).encode()).decode()
        lines.append(
            f'<li><a download="{name}.csv" href="data:text/csv;charset=utf-8;base64,{encoded}">{name}.csv</a>: '
            f"{_several(len(rows), 'row')}; {_e(', '.join(header))}</li>"
        )
    body = (
        "<p>All numbers of this page as CSV files, inside this file and beside it. Six significant digits; empty is "
        f"unknown; low and high bound 95% intervals.</p><ul>{''.join(lines)}</ul>"
    )
    return "data", "Data", body
