"""Makes one page about runs: learning curves, scores, and what each head learns from.

  python -m agents report runs                          every run below runs/, into report.html
  python -m agents report runs/a runs/b --x=steps       two of them, over environment steps
  python -m agents report study --output=study.html --title="Ten heads, 57 games"

What a run is comes from the configuration in its folder, not from the folder's name: runs whose settings are equal but
for seed, environment and length are one group. Runs may still be going on. The page needs no network.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path


def main(command_line: Sequence[str]) -> int:
    """Reads, computes, writes the page and its CSV files, and prints how far it is.

    Raises:
      SystemExit: without any run, without the packages that draw, or on a command line that says something unknown.
    """
    parser = argparse.ArgumentParser(
        prog="python -m agents report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("folders", nargs="+", type=Path, metavar="RUN_DIR", help="a run's folder, or one with runs below it")
    add("--output", type=Path, default=Path("report.html"), metavar="FILE", help="default: %(default)s")
    add(
        "--csv_dir",
        type=Path,
        metavar="DIR",
        help="for the CSV files; default: FILE without .html, then _csv",
    )
    add("--title", default="Training runs", help="the page's heading; default: %(default)s")
    add(
        "--x",
        choices=("updates", "steps"),
        default="updates",
        help="what curves are drawn over (%(default)s)",
    )
    options = parser.parse_args(command_line)
    try:
        import matplotlib  # noqa: F401
        import rliable  # noqa: F401
    except ImportError as error:
        parser.exit(2, f'The report needs {error.name}: pip install "rbs-tf[plots]"\n')
    missing = [str(folder) for folder in options.folders if not folder.is_dir()]
    if missing:
        parser.exit(2, f"No such folder: {', '.join(missing)}\n")

    from agents.monitoring.report import groups, numbers, page, runs, tables

    found, left_out = [], []
    folders = runs.find(options.folders)
    for index, folder in enumerate(folders, start=1):
        try:
            run = runs.read(folder)
        except runs.Unreadable as error:
            left_out.append((folder, str(error)))
            print(f"[{index}/{len(folders)}] {folder}: left out, {error}", flush=True)
            continue
        found.append(run)
        print(
            f"[{index}/{len(folders)}] {folder}: {run.environment}, seed {run.seed}, {run.updates:,} updates, "
            f"{run.state}",
            flush=True,
        )
    made = groups.make(found, options.x, left_out)
    if not made.groups:
        where = ", ".join(map(str, options.folders))
        why = "; ".join(f"{folder}: {reason}" for folder, reason in made.left_out)
        parser.exit(
            2,
            f"No run to report on in {where}. A run is a folder that train.py has made, with {runs.CONFIG} in it"
            + (f" ({why})" if why else "")
            + ".\n",
        )
    labels = ", ".join(group.label for group in made.groups)
    print(f"Runs: {len(groups.all_runs(made))}. Groups: {labels}", flush=True)
    print("Computing intervals and drawing ...", flush=True)
    computed = numbers.compute(made)
    data = list(tables.tables(made, computed))
    text = page.write(made, computed, options.title, data)
    folder = options.csv_dir or options.output.with_name(options.output.stem + "_csv")
    for path in (options.output.parent, folder):
        path.mkdir(parents=True, exist_ok=True)
    options.output.write_text(text, encoding="utf-8")
    for table in data:
        (folder / f"{table[0]}.csv").write_text(tables.text(table), encoding="utf-8")
    size = options.output.stat().st_size / 1e6
    print(f"Page: {options.output.resolve()} ({size:.1f} MB)\nCSV files: {folder.resolve()}")
    print(*numbers.in_words(made, computed.heads), sep="\n")
    return 0
