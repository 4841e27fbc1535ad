"""The page of the paper's figures: what it says is what its tables say, and nothing while runs are missing."""

import re

import numpy as np
import pytest
from rliable import metrics

from benchmarks import atari57
from benchmarks.paper import __main__ as paper
from benchmarks.paper import claims, draw, readings, tables, verdicts
from benchmarks.paper.__main__ import section
from benchmarks.performance import ROOT
from tests.benchmarks import made_up_runs

FIGURES = {entry.name: entry for entry in claims.FIGURES}


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """The tables of all stages."""
    folder = tmp_path_factory.mktemp("tables")
    made_up_runs.write(folder, claims.HEADS)
    made_up_runs.write(folder, ("pop_art", "return_out", "one_head_clip"))
    for runs in (claims.SKIING, claims.ASTERIX):
        made_up_runs.write(folder, runs.variants, runs.games, runs.seeds)
    return tables.read(folder)


@pytest.fixture(autouse=True)
def few_draws(request, monkeypatch):
    if "page" not in request.node.name and "readme" not in request.node.name:
        monkeypatch.setattr(tables, "DRAWS", 100)
        monkeypatch.setattr(atari57, "LATTICE", 256)


@pytest.fixture
def drawn(monkeypatch):
    """Names of the pictures that are drawn, and put into no file: that takes most of the time."""
    names = []
    monkeypatch.setattr(paper, "save", lambda drawing, path: names.append(path.stem))
    return names


def heads(folder, seeds=(571,), **effect):
    made_up_runs.write(folder, claims.HEADS, seeds=seeds, effect=effect)
    return tables.read(folder)


def word(text):
    return re.search(r"\*\*([\w ]+):\*\*", text)[1]


def test_the_page_has_what_the_shipped_tables_say():
    for text in paper.written(tables.read()):
        assert text in paper.PAGE.read_text(), "make paper"
    for picture in re.findall(r"\]\(paper/([\w.]+)\)", paper.PAGE.read_text()):
        assert (paper.PICTURES / picture).exists()


def test_while_a_run_is_missing_nothing_is_drawn_or_said(tmp_path, drawn):
    data = heads(tmp_path / "tables", **{"return": 0.6})
    few = tables.Tables(data.runs.iloc[1:], data.curves, data.heads)
    of_games = [entry for entry in claims.FIGURES if entry.runs]
    for entry in of_games:
        text = section(entry, few)
        assert word(text) == "Open" and "![" not in text
        assert ("227 of 228" in text) == (entry.runs == claims.HEADS_57)
    (tmp_path / "figure_5.png").touch()
    paper.pictures(few, tmp_path)
    assert drawn == [f"figure_{entry.name}" for entry in claims.FIGURES if not entry.runs]
    assert not (tmp_path / "figure_5.png").exists()


def test_words_follow_the_truth(complete):
    said = {name: word(section(entry, complete)) for name, entry in FIGURES.items() if entry.runs}
    assert said.pop("7") == said.pop("8") == verdicts.NOT, "made alike"
    assert said.pop("6") == "Seen but not most of all at low discounts", "all heads are made alike"
    assert said.pop("11") == said.pop("12") == verdicts.OPEN, "arms of theirs are not run"
    assert set(said.values()) == {verdicts.SEEN}


def test_rivals_get_their_intervals(complete):
    """Made up: clipped rewards are 0.8 deviations above none and 0.2 above ten heads `return`, seed 571."""
    for theirs, truth in (("return", 0.2), ("one_head_none", 0.8)):
        both = complete.where(["one_head_clip", theirs], [571])
        (line,) = (
            line
            for line in verdicts.rivals(both, "one_head_clip", [theirs])
            if "all 57" in line and draw.LOOKS[theirs][0] in line
        )
        mean, low, high = map(float, re.findall(r"-?\d+\.\d+", line))
        assert low < mean < high and mean == pytest.approx(truth, abs=0.1)
    text = section(FIGURES["12"], complete)
    first = text.split("| ten heads, scaled | 41 games not looked at before | ")[1].split(" |")[0]
    (beside,) = paper.others(complete)
    assert f"one head, clipped rewards, {first}." in " ".join(beside.split())
    assert line in text and text.count("| 41 games not looked at before |") == 3
    assert section(FIGURES["11"], complete).count("| ten heads, unscaled | all 57 |") == 2


def test_what_goes_against_the_paper_is_said(tmp_path):
    data = heads(tmp_path, none=0.6)
    assert word(section(FIGURES["4"], data)) == word(section(FIGURES["15"], data)) == verdicts.OPPOSITE


def test_the_first_look_leaves_open_what_the_second_decides(tmp_path):
    data = heads(tmp_path)
    assert word(section(FIGURES["4"], data)) == verdicts.OPEN
    assert "99.5% intervals" in section(FIGURES["4"], data)
    data = heads(tmp_path, seeds=(572,))
    text = " ".join(section(FIGURES["4"], data).split())
    assert word(text) == verdicts.NOT and "95% intervals" in text and "the first look, 99.5%, it is" in text
    half = tables.Tables(*(table[(table.seed == 571) | (table.game == "pong")] for table in data))
    assert "99.5% intervals" in section(FIGURES["4"], half), "some of a second seed do not count"


def test_a_run_without_a_late_episode_is_named_and_stops_nothing(tmp_path):
    data = heads(tmp_path, **{"return": 0.6})
    silent = (data.runs.game == "pitfall") & (data.runs.variant == "none")
    data.runs.loc[silent, ["late", "late_sd", "late_episodes"]] = np.nan, 0.0, 0
    text = section(FIGURES["4"], data)
    assert word(text) == verdicts.SEEN and "no difference: pitfall (none)." in text
    assert "nan" not in text and "training score, 56 games" in text


def test_aggregates_are_those_of_rliable():
    scores = np.random.default_rng(0).normal(0.3, 1.0, (3, 57))
    mean, median, capped, iqm = tables.aggregates(scores[0])
    for found, of in ((mean, "mean"), (median, "median"), (iqm, "iqm")):
        assert found == pytest.approx(getattr(metrics, f"aggregate_{of}")(scores[:1]))
    assert capped == pytest.approx(np.minimum(scores[0], 1).mean())
    other = np.roll(scores[0], 1)
    found, low, high = tables.improvement(scores[0], other)
    assert found == pytest.approx(metrics.probability_of_improvement(scores[:1], other[None]))
    assert low < found < high
    middle, low, high = tables.bands(scores, 0.95).swapaxes(0, 1)
    assert middle.shape == (4, 3) and (low < middle).all() and (middle < high).all()


def test_spans_shares_and_accuracies_are_those_of_the_heads(complete):
    table = complete.where(claims.HEADS, (571,)).heads
    errors = [1 + 10 * gamma for gamma in (0, 0.9, 0.99, 0.999, 1)]
    of_pong = table[(table.game == "pong") & (table.variant == "none")].groupby("head").unscaled.first()
    size = of_pong["unclipped_0"]
    of_heads = np.outer([1.0, size], errors).ravel() ** 2
    found = tables.losses(table, "none").loc["pong"]
    np.testing.assert_allclose(found[tables.TEN], of_heads / 2, rtol=1e-3)
    span = np.log(of_heads.max() / of_heads.min())
    assert tables.head_spans(table, "none")["pong"] == pytest.approx(span, rel=1e-3)
    share = tables.shares(table, "none", 5).loc["pong"]
    np.testing.assert_allclose(share, of_heads / of_heads.sum(), rtol=1e-2)
    assert tables.value_errors(table, "return").shape == (56, 10)
    assert tables.decades(np.array([0.0, -0.01, np.nan, 10.0])) == pytest.approx(3.0)


def test_losses_are_narrower_where_their_deviation_is_smaller():
    rng = np.random.default_rng(0)
    wide = np.exp(rng.normal(0.0, 3.0, 57))
    ratio, p = tables.narrower(wide ** (1 / 3) * np.exp(rng.normal(0.0, 0.1, 57)), wide)
    assert ratio == pytest.approx(1 / 3, rel=0.05) and p < 1e-6
    assert tables.narrower(np.exp(rng.normal(0.0, 3.0, 57)), wide)[1] > 0.05


def test_all_is_drawn_when_all_is_in(complete, tmp_path, drawn):
    paper.pictures(complete, tmp_path)
    assert set(drawn) == {f"figure_{name}" for name in FIGURES} | {"games", "growth"}


def test_a_reader_sees_a_run_of_his_own_in_the_figures(tmp_path, monkeypatch):
    made_up_runs.write(tmp_path / "run", ["return"], ["pong"], [0])
    monkeypatch.setattr(paper, "YOURS", ("1", "5"))  # Figure 15 has 57 panels
    paper.main([f"--run={tmp_path / 'run'}", f"--output={tmp_path / 'out'}"])
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"figure_1.png", "figure_5.png"}
    data = tables.added(tables.read(tmp_path / "none"), tmp_path / "run")
    assert set(data.runs.variant) == {tables.YOURS}
    assert data.where(claims.HEADS, (571,)).runs.game.item() == "pong"


def test_the_opening_follows_the_first_reading(tmp_path):
    data = heads(tmp_path, **{"return": 0.6})
    toys = {name: section(entry, data) for name, entry in FIGURES.items() if not entry.runs}

    def opening(data):
        sections = [toys.get(name) or section(entry, data) for name, entry in FIGURES.items()]
        return " ".join(paper.opening(data, sections).split())

    few = tables.Tables(data.runs.iloc[1:], data.curves, data.heads)
    assert "227 of 228 runs are in" in opening(few)
    assert "ten heads score higher scaled than unscaled.**" in opening(data)
    assert "about scales: seen in 1, 2, the derivation, 3, 5, 9, 10, 13;" in opening(data)
    assert "about learning: seen in 4, 15; seen but not most of all at low discounts in 6;" in opening(data)
    level = heads(tmp_path / "level")
    assert "is open after the first of two looks.**" in opening(level)
    assert "decide: 0 of its 228 runs" in opening(level)
    assert "are not shown to score higher" in opening(heads(tmp_path / "level", seeds=(572,)))
    assert "ten heads score lower" in opening(heads(tmp_path / "less", none=0.6))


def test_the_readme_opens_with_the_first_reading():
    runs = claims.HEADS_57.of(tables.read())
    mean, low, high, _ = verdicts.contrast(runs, "return", "none", verdicts.level(runs))
    words = {verdicts.SEEN: "scores higher", verdicts.NOT: "is not shown to score higher"}
    said = " ".join((ROOT / "README.md").read_text().split("## What it does")[0].split())
    assert f"{words[verdicts.word(low, high)]} with scaled errors than without" in said
    assert f"{verdicts.interval(mean, low, high)} standard deviations of an episode's score" in said
    clipped = claims.ONE_HEAD_57.of(tables.read())
    mean, low, high, _ = verdicts.contrast(clipped, "one_head_clip", "return")
    assert (
        f"scores {verdicts.interval(mean, low, high)} higher than the ten scaled ones (one run a game)"
        in said
    )


def test_second_readings_know_the_truth_and_show_each_seed(tmp_path):
    """Made up: ten heads with scaling are 0.6 deviations above all others, which are alike."""
    data = heads(tmp_path, seeds=(571, 572), **{"return": 0.6})
    values = readings.named(data, readings.thirds(data))
    of = {name: values.mean() for name, values in values.items()}
    assert of["(c) ten heads, scaled minus unscaled"] == pytest.approx(0.6, abs=0.1)
    assert of["(c) one head, scaled minus unscaled"] == pytest.approx(0.0, abs=0.1)
    assert of["(c) the interaction: the first minus the second"] == pytest.approx(0.6, abs=0.15)
    assert of["(c) ten heads scaled minus the mean of the other three arms"] == pytest.approx(0.6, abs=0.1)
    assert of["(d) greedy play, in the unit of (c)"] == pytest.approx(0.6, abs=0.1)
    assert of["(e) growth of the difference from a tenth of training to the next"] == pytest.approx(
        0.06, abs=0.01
    )
    assert of["(g) share of heads whose values beat a constant, scaled minus unscaled"] == 0.0
    nine = values["(f) training score, nine games whose rewards clipping leaves alone"]
    assert len(nine) == 9 and len(values["(f) the others"]) == 48
    assert [len(games) for games in readings.thirds(data)] == [19, 19, 19]
    mean, low, high = readings.of_these_games(data)
    assert low < mean < high and mean == pytest.approx(0.6, abs=0.1)
    header, _, first, *_ = readings.table(data)
    assert header.count("seed 571") == header.count("seed 572") == header.count("both") == 2
    assert first.startswith("| (a) training score, these games as they are")


def test_a_unit_is_the_pooled_deviation_of_four_arms(tmp_path):
    data = heads(tmp_path)
    pong = (data.runs.game == "pong") & data.runs.variant.isin(tables.HEADS)
    data.runs.loc[pong, "late_sd"], data.runs.loc[pong, "late_episodes"] = (
        [1.0, 2.0, 3.0, 4.0],
        [11, 21, 31, 41],
    )
    expected = np.sqrt((10 * 1 + 20 * 4 + 30 * 9 + 40 * 16) / 100)
    assert readings.units(data)["pong", 571] == pytest.approx(expected)
