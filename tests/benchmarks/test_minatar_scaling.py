"""The grid's command line; what a run measures takes minutes and is in docs/results/."""

import csv
import json

import pytest

from agents.running import processes
from benchmarks import grid, minatar_scaling

LINES = {
    "runs": [{"mean_return": "4.2", "minutes": "3.0"}],
    "heads": [{"head": "a", "error": "1"}, {"head": "b", "error": "2"}],
}


@pytest.mark.parametrize(
    "key", ["return", '["space_invaders", 100]', '["breakout", 1, 10, "retrun", "2e-4", 0]']
)
def test_a_run_that_is_not_in_the_grid_is_refused_with_one_that_is(key, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        minatar_scaling.main(["--measure", key, str(tmp_path)])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert f"{key} is no run of the grid" in said
    assert '["space_invaders", 100, 10, "none", "2e-4", 0]' in said
    assert not list(tmp_path.iterdir())


def test_a_run_that_has_its_line_is_not_repeated_and_none_starts_after_the_minutes(tmp_path, monkeypatch):
    runs = [minatar_scaling.Run("breakout", 1, 10, "none", "2e-4", seed) for seed in range(3)]
    begun, exit_code = [], {1: 3}

    def begin(module, run, folder):
        assert module == "benchmarks.minatar_scaling"
        begun.append(run.seed)
        folder.mkdir(parents=True)
        (folder / "lines.json").write_text(json.dumps(LINES))
        return processes.start(["sh", "-c", f"exit {exit_code.get(run.seed, 0)}"])

    table, heads = tmp_path / "results/table.csv", tmp_path / "results/heads.csv"
    monkeypatch.setattr(grid, "begin", begin)
    monkeypatch.setattr(minatar_scaling, "every_run", lambda: runs)
    monkeypatch.setattr(minatar_scaling, "TABLES", {"heads": heads, "runs": table})
    minatar_scaling.main(["--minutes=0"])
    assert begun == []
    with pytest.raises(SystemExit, match="failed with exit code 3"):
        minatar_scaling.main(["--processes=1"])
    assert begun == [0, 1]
    exit_code.clear()
    for _ in range(2):
        minatar_scaling.main([])
        assert begun == [0, 1, 1, 2]
    seeds = [[row["seed"] for row in csv.DictReader(path.open())] for path in (table, heads)]
    assert list(map(sorted, seeds)) == [["0", "1", "2"], ["0", "0", "1", "1", "2", "2"]]
    assert table.read_text().splitlines()[:2] == [
        "game,multiplier,heads,scaling,learning_rate,seed,mean_return,minutes",
        "breakout,1,10,none,2e-4,0,4.2,3.0",
    ]
