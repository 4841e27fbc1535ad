"""Every study's command, and the figure module that they share."""

import importlib
import sys

import pytest

from studies import figure, intuitions

SAID = {
    "derivation": ([], "0.26 to 0.83 times for early"),
    "edge_cases": ([], "off by 0 for T = 1 and gamma = 0"),
    "intuitions": ([], "at most 1.49x"),
    "noise_amplification": (["--steps=2500"], "by more than 10x 1 times in 2500 updates"),
}


@pytest.mark.parametrize("study", SAID)
def test_a_command_writes_a_figure_its_numbers_and_one_line(study, tmp_path, capsys):
    options, said = SAID[study]
    importlib.import_module(f"studies.{study}").main([f"--output_dir={tmp_path}", *options])
    assert {path.name for path in tmp_path.iterdir()} == {f"{study}.{kind}" for kind in ("png", "svg", "csv")}
    (line,) = capsys.readouterr().out.splitlines()
    assert said in line and (tmp_path / f"{study}.csv").read_text().count("\n") > 5


def test_without_matplotlib_a_command_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SystemExit):
        intuitions.main([f"--output_dir={tmp_path}"])
    assert "pip install matplotlib" in capsys.readouterr().err
    with pytest.raises(ImportError, match="pip install matplotlib"):
        figure.new_figure()
