"""The table of learning is read from run folders whose numbers are known."""

import pytest

from benchmarks import learning
from tests.agents.monitoring.report.written import write_run


def test_a_row_of_learning_is_of_the_runs_fifths_and_late_episodes(tmp_path):
    folder = write_run(tmp_path / "run")
    lines = ["environment_steps,head,return", *(f"{10 * update},unclipped_0.99,7" for update in range(100))]
    (folder / "train/episodes.csv").write_text("\n".join(lines))
    row = learning.row(folder, "name")
    assert [float(row[name]) for name in learning.FIFTHS] == pytest.approx([15, 35, 55, 75, 95])
    assert (row["variant"], row["steps"], float(row["discounted"]), row["greedy"]) == (
        "name",
        "1000",
        7.0,
        "101",
    )
