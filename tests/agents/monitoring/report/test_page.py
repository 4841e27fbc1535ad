"""The page as Chromium shows it, and the command that makes it."""

import csv
import html
import json
import re
import shutil

import pytest

from agents.commands.report import main
from agents.errors import UsageError
from tests.agents.monitoring.report.written import write_run
from tests.browser import dom

# Says what it finds.
PROBE = """<pre id="probe"></pre><script>
document.getElementById("probe").textContent = JSON.stringify({
  broken: [...document.images].filter(image => image.naturalWidth < 100).length,
  requests: performance.getEntriesByType("resource").map(entry => entry.name).filter(name => !name.startsWith("data:")),
  words: [...document.images].map(image => image.alt),
  rows: [...document.querySelectorAll("table")].map(table => table.tBodies[0].rows.length),
  titles: [...document.querySelectorAll("h2, h3")].filter(title => title.offsetParent).map(title => title.innerText),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
});
</script></body>"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A game of Atari and one of MinAtar, with scaling (two seeds) and without (one seed, shorter)."""
    root = tmp_path_factory.mktemp("runs")
    for env in ("pong", "minatar/breakout"):
        for seed in (0, 1):
            write_run(root / f"{env}-{seed}", env, seed=seed, factor=5.0 + seed)
        write_run(root / f"{env}-none", env, "none", updates=60)
    return root


@pytest.fixture(scope="module")
def page(root):
    main([str(root), f"--output={root / 'out' / 'report.html'}", "--title=Games & <heads>"])
    return root / "out" / "report.html"


def probe(page):
    """What the page says of itself in a narrow window."""
    path = page.with_name("probed.html")
    path.write_text(page.read_text().replace("</body>", PROBE))
    document = dom(path.as_uri(), "--window-size=500,900")
    return json.loads(html.unescape(re.search(r'<pre id="probe">(.*?)</pre>', document, re.DOTALL)[1]))


@pytest.fixture(scope="module")
def probed(page):
    return probe(page)


def test_the_page_stands_alone_and_scrolls_only_tables_in_a_narrow_window(page, probed):
    text = page.read_text()
    assert (probed["requests"], probed["broken"], probed["wide"]) == ([], 0, 0)
    assert not re.search(r"https?://", text)
    assert set(re.findall(r'(?:src|href)="([^"#]{1,5})', text)) == {"data:"}


def test_figures_and_tables_are_there_and_figures_are_said_in_words(page, probed):
    assert len(probed["words"]) == 17 and "pong: training: return over learner updates" in probed["words"]
    assert probed["rows"] == [6, 2, 4, 8, 3]  # runs, settings, final returns, aggregates, probabilities
    text = page.read_text()
    assert "<h1>Games &amp; &lt;heads&gt;</h1>" in text
    for words in (
        "Runs: 6; groups: 2; environments: 2.",
        "games: pong. Left out: minatar/breakout.",
        "2 of 4 combinations of group and environment have one seed",
        "Stopped before the updates that were asked for",
    ):
        assert words in text, words


def test_csv_files_lie_beside_the_page(page):
    tables = {path.stem: list(csv.DictReader(path.open())) for path in (page.parent / "report_csv").iterdir()}
    assert set(tables) == set(re.findall(r"(\w+)\.csv[,.]", page.read_text().rpartition("CSV files")[2]))
    final = {(row["environment"], row["group"]): row for row in tables["final_returns"]}["pong", "none"]
    assert (final["mean"], final["low"], final["seeds"]) == ("61", "", "1")
    assert float(final["human_normalised_mean"]) == pytest.approx((61 + 20.7) / 35.3, rel=1e-5)


def test_one_run_over_steps_without_losses_makes_a_page_without_what_it_lacks(tmp_path):
    write_run(tmp_path / "run", "CartPole-v1", losses=False, evaluated=False)
    output = tmp_path / "page.html"
    main([str(tmp_path), f"--output={output}", "--x=steps"])
    text = output.read_text()
    assert probe(output)["titles"] == ["Before you compare", "Runs", "Learning curves", "Final returns"]
    assert re.findall("<th>(.*?)</th>", text) == [
        *("environment", "group", "seed", "updates", "planned_updates", "environment_steps", "state"),
        *("commit", "folder", "environment", "group", "returns", "seeds", "mean"),
    ]
    assert text.count("<figure>") == 1 and not re.search(r"\bnan\b|<NA>|\bNone\b|\$\w", text)
    with (tmp_path / "page_csv" / "learning_curves.csv").open() as table:
        assert {float(row["steps"]) for row in csv.DictReader(table)} >= {200.0, 1000.0}


def test_no_run_is_one_clear_line_and_a_damaged_one_is_left_out(tmp_path, capsys):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match=f"No run to report on in {folder}.*config.gin"):
            main([str(folder), f"--output={tmp_path / 'report.html'}"])
    folder = write_run(tmp_path / "run")
    (tmp_path / "binary").mkdir()
    for name in (
        "config.gin",
        "operative_config.gin",
    ):  # is left out with the reason; the others are reported on
        (tmp_path / "binary" / name).write_bytes(b"\xff\xfe" * 40)
    assert main([str(tmp_path), f"--output={tmp_path / 'report.html'}"]) == 0
    said = capsys.readouterr().out
    assert f"{tmp_path / 'binary'}: left out, " in said and f"{tmp_path / 'run'}: pong" in said
    shutil.rmtree(tmp_path / "binary")
    (folder / "operative_config.gin").unlink()
    with pytest.raises(UsageError, match=f"{folder}: no operative_config.gin: the run has not got as far"):
        main([str(tmp_path), f"--output={tmp_path / 'report.html'}"])
