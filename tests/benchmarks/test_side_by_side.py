"""What the speed benchmarks share: turns, ratios, bounds, and the table made of them. No test looks at a time."""

import json

from benchmarks import performance
from benchmarks.side_by_side import row, times


def test_ways_take_turns_and_every_other_round_goes_backwards():
    calls = []
    found = times(lambda: calls.append("a"), lambda: calls.append("b"), rounds=3, calls=2, warm_up=1)
    assert "".join(calls) == "ab" + "aabb" + "bbaa" + "aabb"
    assert [len(way) for way in found] == [3, 3] and all(cpu >= 0 for way in found for cpu in way)


def test_a_ratio_is_the_median_of_the_rounds_own():
    found = row("ours", "rival", [1.0, 4.0, 9.0], [2.0, 2.0, 3.0], unit="cpu-ms")
    assert (found.ratio, found.least, found.most) == (2.0, 0.5, 3.0)
    assert (found.ours, found.rival) == (4000.0, 2000.0)
    per_step = row("ours", "rival", [1.0, 4.0, 9.0], [2.0, 2.0, 3.0], unit="cpu-ms per step", per_call=100)
    assert (per_step.ours, per_step.rival, per_step.ratio) == (40.0, 20.0, 2.0)


def test_a_bound_is_kept_for_certain_only_where_all_rounds_keep_it():
    said = {3.0: "≤ 3", 2.0: "≤ 2, by the median", 1.9: "≤ 1.9: **no**, by the median", 0.9: "≤ 0.9: **no**"}
    for at_most, bound in (said | {None: ""}).items():
        assert row("ours", "rival", [1.0, 2.0, 3.0], [1.0] * 3, unit="", at_most=at_most).bound == bound


def test_the_page_shows_every_row_that_was_kept():
    kept = json.loads(performance.ROWS.read_text())
    table = performance.table(kept)
    assert table in performance.PAGE.read_text()
    assert set(kept) <= set(performance.BENCHMARKS)
    assert table.count("\n| ") == sum(len(part["rows"]) for part in kept.values())


def test_new_rows_take_the_place_of_a_benchmarks_earlier_ones(tmp_path, monkeypatch):
    rows, page = tmp_path / "rows.json", tmp_path / "page.md"
    monkeypatch.setattr(performance, "ROWS", rows)
    monkeypatch.setattr(performance, "PAGE", page)
    rows.write_text("{}")
    page.write_text(f"before\n{performance.TABLE}\nold\n{performance.END}\nafter\n")
    for name, what in (("replay", "a"), ("start_up", "o"), ("replay", "s")):
        performance.keep(name, [row(what, "b", [2.0], [1.0], unit="cpu-ms")])
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    assert [line.split(" | ")[0] for line in text.splitlines() if " | b | " in line] == ["| s", "| o"]
