"""What the speed benchmarks share: turns, ratios, bounds, and the table made of them. No test looks at a time."""

import json
import re
import subprocess
import sys

import pytest

from benchmarks import performance, side_by_side
from benchmarks.side_by_side import Row, publish, row, times


def seconds(*cpu):
    """(cpu, wall) per round; the wall shows twice as much."""
    return [(value, 2.0 * value) for value in cpu]


def test_ways_take_turns_and_every_other_round_goes_backwards():
    calls = []
    found = times(lambda: calls.append("a"), lambda: calls.append("b"), rounds=3, calls=2, warm_up=1)
    assert "".join(calls) == "ab" + "aabb" + "bbaa" + "aabb"
    assert [len(way) for way in found] == [3, 3] and all(cpu >= 0 for way in found for cpu, _ in way)


def test_a_ratio_of_costs_is_the_median_of_the_rounds_own():
    found = row("ours", "rival", seconds(1.0, 4.0, 9.0), seconds(2.0, 2.0, 3.0))
    assert (found.ratio, found.least, found.most, found.wall) == (2.0, 0.5, 3.0, 2.0)
    assert (found.ours, found.rival, found.unit) == (4000.0, 2000.0, "cpu-ms")


def test_a_ratio_of_rates_grows_with_work_done():
    found = row("ours", "rival", seconds(2.0, 2.0, 4.0), seconds(1.0, 1.0, 1.0), work=(64, 1))
    assert (found.ratio, found.least, found.most) == (32.0, 16.0, 32.0)
    assert (found.ours, found.rival) == (32.0, 1.0)


@pytest.mark.parametrize(
    ("reach", "verdict"),
    [
        ("at most 3", "yes"),
        ("at most 2", "yes, by the median"),
        ("at most 1.9", "no, by the median"),
        ("at most 0.9", "no"),
        ("at least 1", "yes"),
        ("at least 2", "yes, by the median"),
        ("at least 2.1", "no, by the median"),
        ("at least 3.1", "no"),
    ],
)
def test_a_bound_is_kept_for_certain_only_where_all_rounds_keep_it(reach, verdict):
    found = row("ours", "rival", seconds(1.0, 2.0, 3.0), seconds(1.0, 1.0, 1.0), reach=reach)
    assert found.verdict == verdict


def test_a_bound_that_says_no_side_is_refused():
    with pytest.raises(ValueError, match='"at most X" or "at least X", got \'2\''):
        row("ours", "rival", seconds(2.0), seconds(1.0), reach="2").verdict  # noqa: B018


def test_published_rows_come_back_from_their_file(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(side_by_side.ROWS_FILE, str(tmp_path / "rows"))
    rows = [row("ours", "rival", seconds(2.0), seconds(1.0), reach=reach) for reach in ("at most 1", "")]
    publish(*rows)
    assert [Row(**json.loads(line)) for line in (tmp_path / "rows").read_text().splitlines()] == rows
    assert "2 [2, 2] (at most 1: no)" in capsys.readouterr().out


def test_the_page_shows_every_row_that_was_kept():
    kept = json.loads(performance.ROWS.read_text())
    page = performance.PAGE.read_text()
    table = performance.table(kept)
    assert table in page
    assert set(kept) <= set(performance.BENCHMARKS)
    assert len(re.findall(r"(?m)^\| (?!what)", table)) == sum(len(part["rows"]) for part in kept.values())


def test_every_benchmark_of_the_page_exists():
    for name in performance.BENCHMARKS:
        assert (performance.ROOT / f"benchmarks/{name}.py").exists()


def test_an_unknown_benchmark_is_refused_with_the_names():
    command = [sys.executable, "-m", "benchmarks.performance", "head"]
    ended = subprocess.run(command, cwd=performance.ROOT, capture_output=True, text=True)
    assert ended.returncode == 2 and "unknown: head; choose from learner_step, heads" in ended.stderr
