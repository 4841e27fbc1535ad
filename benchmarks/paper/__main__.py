"""Draws the paper's figures from the shipped tables, and writes what they say into docs/paper.md: `make paper`.

    .venv/bin/python -m benchmarks.paper                        # docs/paper.md and docs/paper/*.png, in a minute
    .venv/bin/python -m benchmarks.paper --run RUN_DIR          # runs/paper/*.png: Figures 1, 5 and 15 with your run
    .venv/bin/python -m benchmarks.paper --tables FOLDER        # runs/paper/*.png, of whatever runs there are

A figure of games is drawn, and its claim judged, when all runs that it takes are in. The last two leave docs/ as it is;
their pictures say of how many runs they are while some are missing.
"""

from __future__ import annotations

import argparse
import io
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import atari57
from benchmarks.paper import draw, readings, tables, verdicts
from benchmarks.paper.claims import FIGURES, HEADS_57, LEARNING, RIVALS, Figure, Runs
from benchmarks.performance import ROOT, put_between
from rbs_tf.scores import GAMES

PAGE, PICTURES = ROOT / "docs/paper.md", ROOT / "docs/paper"
BEGIN, END = "<!-- figures: written by make paper -->", "<!-- end of figures -->"
OPENING = "<!-- opening: written by make paper -->", "<!-- end of opening -->"
FOUND = {
    verdicts.SEEN: "Over 57 Atari games ten heads score higher scaled than unscaled",
    verdicts.OPPOSITE: "Over 57 Atari games ten heads score lower scaled than unscaled",
    verdicts.NOT: "Over 57 Atari games ten heads are not shown to score higher scaled than unscaled",
    verdicts.OPEN: "Whether ten heads score higher scaled than unscaled is open after the first of two looks",
}
NO_DECISION = (
    "Second readings, paired within games. They decide nothing: they were chosen after seed 571, and the differences "
    "between seeds in eighteen pairs of runs, had been analysed. Letters are those of `atari57_heads.sweep`; (a) needs "
    "both seeds. The unit of (a), (b) and (f) is that of the first table, a standard deviation of the scores of both "
    "arms; that of (c), (d) and (e) is one of the scores of all four arms. The picture shows (e) over all 57 "
    "games, mean with 95% bands. Its first tenth is a placebo, as both arms begin with the same untrained network and "
    "seed."
)
YOURS = ("1", "5", "15")
DPI = 90


def written(data: tables.Tables) -> tuple[str, str]:
    """What the tables make of the page: its opening and its figures, Markdown."""
    sections = [section(entry, data) for entry in FIGURES]
    return opening(data, sections), "\n\n".join(sections)


def opening(data: tables.Tables, sections: Sequence[str]) -> str:
    """The page's first words: what became of the first reading, and of each figure's claim."""
    count, asked = HEADS_57.progress(data)
    if count < asked:
        return f"**Whether ten heads score higher scaled than unscaled is open**: {count} of {asked} runs are in."
    lists: dict[bool, dict[str, list[str]]] = {False: {}, True: {}}
    for entry, text in zip(FIGURES, sections, strict=True):
        name = entry.name if entry.name.isdigit() else entry.title.split(": ")[1]
        words = lists[entry.name in LEARNING]
        words.setdefault(text.split("**")[1].rstrip(":"), []).append(name)
    (found,) = (found for found, names in lists[True].items() if "4" in names)
    count, asked = HEADS_57._replace(seeds=tables.SEEDS[1:]).progress(data)
    second = (
        f" A second seed is to decide: {count} of its {asked} runs are in." if found == verdicts.OPEN else ""
    )
    behave, better = (
        "; ".join(f"{name.lower()} in {', '.join(names)}" for name, names in lists[learns].items())
        for learns in (False, True)
    )
    return "\n".join(
        (
            textwrap.fill(f"**{FOUND[found]}.** {verdicts.headline(HEADS_57.of(data))}{second}", 120),
            "",
            textwrap.fill(f"* What the paper says about scales: {behave}.", 120, subsequent_indent="  "),
            textwrap.fill(f"* What it says about learning: {better}.", 120, subsequent_indent="  "),
            *others(data),
        )
    )


def others(data: tables.Tables) -> list[str]:
    """What the arms without a word have more than ten scaled heads, once they are in: a line of the opening."""
    found = []
    for entry in FIGURES:
        count, asked = entry.runs.progress(data) if entry.runs else (0, 0)
        if entry.name in RIVALS and count == asked:
            (of,) = _rows(entry.runs, data)
            for ours in RIVALS[entry.name]:
                difference = verdicts.interval(*verdicts.contrast(of, ours, "return")[:3])
                found.append(f"{draw.LOOKS[ours][0]}, {difference}")
    line = "* Other agents, minus ten scaled heads (the same 41 games, one run a game, tables in 11 and 12): "
    return [textwrap.fill(f"{line}{'; '.join(found)}.", 120, subsequent_indent="  ")] if found else []


def section(entry: Figure, data: tables.Tables) -> str:
    """A figure's part of the page."""
    parts = [f"## {entry.title}", f"*The paper:* {entry.claim}"]
    count, asked = entry.runs.progress(data) if entry.runs else (0, 0)
    if count < asked:
        assert entry.runs is not None
        sweeps = " and ".join(f"`{name}.sweep`" for name in entry.runs.sweeps.split(", "))
        parts.append(f"**Open:** {count} of {asked} runs of {sweeps} are in.")
    else:
        found, why = entry.judge(*_rows(entry.runs, data))
        parts += [f"![{entry.title}](paper/figure_{entry.name}.png)", f"**{found}:** {why}"]
    parts += [f"*Ours differs:* {entry.differs}"] if entry.differs else []
    parts = [textwrap.fill(part, 120, break_long_words=False, break_on_hyphens=False) for part in parts]
    if entry.name in RIVALS and count == asked:
        (of,) = _rows(entry.runs, data)
        parts += ["\n".join(verdicts.rivals(of, *pair)) for pair in RIVALS[entry.name].items()]
    if entry.name == "4" and count == asked:
        (of,) = _rows(entry.runs, data)
        reading = "\n".join(verdicts.first_reading(of))
        second = "\n".join(verdicts.second_reading(of, tables.HEADS)).rstrip()
        dead = textwrap.fill(verdicts.dead_units(of), 120)
        parts += ["![A bar a game](paper/games.png)", reading, second, dead]
        parts += [
            textwrap.fill(NO_DECISION, 120),
            "![Over training](paper/growth.png)",
            "\n".join(readings.table(of)),
        ]
    return "\n\n".join(parts)


def _rows(runs: Runs | None, data: tables.Tables) -> tuple[tables.Tables, ...]:
    """The arguments of who judges and draws."""
    return (runs.of(data),) if runs else ()


def pictures(data: tables.Tables, folder: Path) -> None:
    """Draws what is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in FIGURES:
        path = folder / f"figure_{entry.name}.png"
        count, asked = entry.runs.progress(data) if entry.runs else (0, 0)
        if count < asked:
            path.unlink(missing_ok=True)
            continue
        rows = _rows(entry.runs, data)
        if entry.name in ("3", "15"):  # and what is complete besides
            rows = (_complete(data),)
        save(entry.draw(*rows), path)
        if entry.name == "4":
            of_games = atari57.differences(verdicts.rows(rows[0].runs), "return", "none")
            save(draw.bars(of_games), folder / "games.png")
            save(draw.growth(rows[0]), folder / "growth.png")


def save(drawing: Any, path: Path) -> None:
    """Writes a PNG of 256 colours, a third of the size; rare ones stay what they are."""
    from PIL import Image

    with io.BytesIO() as file:
        drawing.savefig(file, dpi=DPI)
        picture = Image.open(file).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
        picture.save(path, optimize=True)


def _complete(data: tables.Tables) -> tables.Tables:
    """The rows of the variants that all 57 games have been run with, first seed."""
    first = data.runs[data.runs.seed == tables.FIRST]
    names = [name for name in draw.LOOKS if (first.variant == name).sum() == len(GAMES)]
    return data.where(names, (tables.FIRST,))


def drafts(data: tables.Tables, names: Sequence[str], folder: Path) -> None:
    """Draws figures of games from the runs that there are, and says so in them."""
    folder.mkdir(parents=True, exist_ok=True)
    for entry in FIGURES:
        if entry.runs and entry.name in names:
            rows = data.where(entry.runs.variants, (*entry.runs.seeds, *tables.SEEDS), entry.runs.games)
            if rows.runs.empty:
                continue
            count, asked = entry.runs.progress(data)
            drawing = entry.draw(rows)
            if count < asked:
                words = f"{count} of {asked} runs"
                drawing.text(0.995, 0.995, words, ha="right", va="top", color="tab:gray", size=7)
            path = folder / f"figure_{entry.name}.png"
            save(drawing, path)
            print(path)


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--run", nargs="+", type=Path, default=[], metavar="RUN_DIR", help="runs to draw beside the shipped")
    add("--tables", type=Path, metavar="FOLDER", help="with other atari57_*.csv than the shipped")
    add("--output", type=Path, default=Path("runs/paper"), metavar="FOLDER", help="of --run and --tables")
    options = parser.parse_args(command_line)
    if options.tables and not (options.tables / "atari57_runs.csv").exists():
        parser.error(f"{options.tables} holds no atari57_runs.csv")
    data = tables.read(options.tables or atari57.RESULTS)
    for run in options.run:
        if not (run / "atari57_runs.csv").exists():
            atari57.write_rows(run)
        data = tables.added(data, run)
    if options.run or options.tables:
        names = YOURS if options.run else [entry.name for entry in FIGURES]
        return drafts(data, names, options.output)
    pictures(data, PICTURES)
    for marks, text in zip((OPENING, (BEGIN, END)), written(data), strict=True):
        put_between(PAGE, *marks, text)
    print(os.path.relpath(PAGE))


if __name__ == "__main__":
    main()
