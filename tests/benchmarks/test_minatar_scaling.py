"""The grid's command line; what a run measures takes minutes and is in docs/results/."""

import pytest

from benchmarks import minatar_scaling


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
