"""The page as Chromium shows it, and the command that makes it."""

import csv
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from agents.commands.report import main
from agents.monitoring.report import panels
from agents.monitoring.report.look import STYLE
from tests.agents.monitoring.report.written import write_run
from tests.browser import dom, screenshot

# Sorts the first table by its number of updates, twice, then the final returns; says what it finds.
PROBE = """<pre id="probe"></pre><script>
const tables = [...document.querySelectorAll("table.sortable")];
const click = (table, column) => {
  const head = [...table.tHead.rows[0].cells].find(cell => cell.textContent === column);
  head.querySelector("button").click();
  return [head.getAttribute("aria-sort"), [...table.tBodies[0].rows].map(row => row.cells[head.cellIndex].textContent)];
};
const finals = tables.find(table => table.caption.textContent === "Final returns");
document.getElementById("probe").textContent = JSON.stringify({
  captions: tables.map(table => table.caption.textContent),
  up: click(tables[0], "updates"), down: click(tables[0], "updates"), returns: click(finals, "final return"),
  broken: [...document.images].filter(image => !image.naturalWidth).length,
  requests: performance.getEntriesByType("resource").map(entry => entry.name),
  drawings: [...document.querySelectorAll("figure svg")].map(svg => [
    svg.getAttribute("role"), svg.getAttribute("aria-label").length > 20, svg.getBBox().width > 100]),
  ids: [...document.querySelectorAll("[id]")].map(element => element.id),
  links: [...document.querySelectorAll("nav a")].map(link => !!document.querySelector(link.getAttribute("href"))),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
});
</script></body>"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Two games of Atari and one of MinAtar, with scaling (two seeds) and without (one seed, shorter)."""
    root = tmp_path_factory.mktemp("runs")
    for env in ("pong", "breakout", "minatar/breakout"):
        for seed in (0, 1):
            write_run(root / f"{env}-{seed}", env, seed=seed, factor=5.0 + seed)
        write_run(root / f"{env}-none", env, "none", updates=60)
    return root


@pytest.fixture(scope="module")
def page(root):
    main([str(root), f"--output={root / 'out' / 'report.html'}", "--title=Games & <heads>"])
    return root / "out" / "report.html"


@pytest.fixture(scope="module")
def probed(page):
    path = page.with_name("probed.html")
    path.write_text(page.read_text().replace("</body>", PROBE))
    document = dom(path.as_uri(), "--window-size=500,900")
    return json.loads(
        re.search(r'<pre id="probe">(.*?)</pre>', document, re.DOTALL)[1]
        .replace("&gt;", ">")
        .replace("&lt;", "<")
    )


def test_tables_are_sorted_by_their_headers(probed):
    assert probed["up"] == ["ascending", ["60"] * 3 + ["100"] * 6]
    assert probed["down"] == ["descending", ["100"] * 6 + ["60"] * 3]
    direction, shown = probed["returns"]
    values = [float(text.split(" ")[0].replace(",", "")) for text in shown]
    assert direction == "ascending" and values == sorted(values) and len(set(values)) > 1


def test_the_page_stands_alone(page, probed):
    text = page.read_text()
    assert probed["requests"] == [] and probed["broken"] == 0
    assert not re.search(r"https?://", text)
    assert set(re.findall(r'(?:src|href)="([^"#]{1,5})', text)) == {"data:"}


def test_drawings_are_there_and_said_in_words(probed):
    assert len(probed["drawings"]) > 20
    assert all(drawing == ["img", True, True] for drawing in probed["drawings"])
    assert len(probed["ids"]) == len(set(probed["ids"]))
    assert probed["links"] and all(probed["links"])


def test_a_narrow_window_scrolls_tables_alone(probed):
    assert probed["wide"] == 0


def test_what_was_asked_for_stands_on_the_page(page):
    text = page.read_text()
    assert "<h1>Games &amp; &lt;heads&gt;</h1>" in text
    for words in (
        "9 runs in 2 groups and 3 environments, 1 to 2 seeds each",
        "No human score exists for minatar/breakout",
        "Left out, without a human score or not played by all groups: minatar/breakout",
        "3 of 6 combinations of group and environment have one seed",
        "Stopped before the updates that were asked for",
        "inter-quartile range from resampling the games",
    ):
        assert words in text, words


def test_csv_files_lie_beside_and_inside_the_page(page):
    tables = {path.stem: list(csv.DictReader(path.open())) for path in (page.parent / "report_csv").iterdir()}
    assert set(tables) == set(re.findall(r'download="(\w+)\.csv"', page.read_text()))
    assert len(tables["runs"]) == 9 and {row["state"] for row in tables["runs"]} == {"finished", "stopped"}
    (final,) = [
        row for row in tables["final_returns"] if (row["environment"], row["group"]) == ("pong", "none")
    ]
    assert (final["mean"], final["low"], final["seeds"]) == ("61", "", "1")
    assert float(final["human_normalised_mean"]) == pytest.approx((61 + 20.7) / 35.3, rel=1e-5)
    assert {row["aggregate"] for row in tables["aggregates"]} > {"interquartile mean", "capped mean"}


def test_a_picture_of_it_is_not_blank(page, tmp_path):
    from matplotlib.image import imread

    assert imread(screenshot(page.as_uri(), tmp_path / "page.png")).std() > 0.05


def test_one_run_over_steps_without_losses_makes_a_page(tmp_path):
    write_run(tmp_path / "run", "CartPole-v1", losses=False, evaluated=False)
    output = tmp_path / "page.html"
    main([str(tmp_path), f"--output={output}", "--x=steps", f"--csv_dir={tmp_path / 'numbers'}"])
    text = output.read_text()
    assert "environment steps" in text and "no run has logged its heads" in text and "no two groups" in text
    assert not re.search(r"\bnan\b", re.sub("<script.*?</script>", "", text, flags=re.DOTALL))
    assert (tmp_path / "numbers" / "learning_curves.csv").exists()


@pytest.mark.parametrize("arguments", [["{}"], ["{}/nowhere"]])
def test_no_run_is_one_clear_line(tmp_path, capsys, arguments):
    with pytest.raises(SystemExit) as end:
        main([argument.format(tmp_path) for argument in arguments])
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(tmp_path) in line


def test_a_run_that_has_not_begun_is_named(tmp_path, capsys):
    folder = write_run(tmp_path / "run")
    (folder / "operative_config.gin").unlink()
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
    assert "not got as far" in capsys.readouterr().err


def test_help_needs_no_tensorflow():
    probe = (
        "import sys; from agents.commands.report import main\n"
        "try: main(['--help'])\nfinally: print('tensorflow' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
    assert "RUN_DIR" in shown and "--csv_dir" in shown and shown.endswith("False\n")


def luminance(colour):
    channels = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(channels <= 0.03928, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def test_colours_are_seen_on_light_and_on_dark_ground():
    for ground, ink, soft, panel in zip(
        *(re.findall(rf"--{name}: (#\w+)", STYLE) for name in ("ground", "ink", "soft", "panel")), strict=True
    ):
        assert min(contrast(of, on) for of in panels.COLOURS for on in (ground, panel)) >= 3
        assert min(contrast(of, on) for of in (ink, soft) for on in (ground, panel)) >= 4.5
