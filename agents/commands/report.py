"""Makes one page about runs: learning curves, and final returns with their intervals.

  python -m agents report runs             every run below runs/, into report.html
  python -m agents report runs/a runs/b    two of them

What a run is comes from the configuration in its folder, not from the folder's name: runs whose settings are equal but
for seed, environment and length are one group. Runs may still be going on. The page needs no network.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents.commands.flags import Parser, a_path, check_output
from agents.errors import RunFolderError, UsageError
from agents.storage.run_folder import CONFIG


def main(command_line: Sequence[str]) -> int:
    """Reads, computes, writes the page and its CSV files, and prints where they are.

    Raises:
      UsageError: without any run, without the packages that draw, or on a command line that says something unknown.
    """
    parser = Parser(prog="python -m agents report", description=__doc__)
    add = parser.add_argument
    add(
        "folders", nargs="+", type=a_path, metavar="RUN_DIR", help="a run's folder, or one with runs below it"
    )
    add("--output", type=a_path, default="report.html", metavar="FILE", help="the page (%(default)s)")
    options = parser.parse_args(command_line)
    try:
        from agents.monitoring.report import page, runs, tables
    except ImportError as error:
        raise UsageError(f"The report needs {error.name}: pip install pandas matplotlib") from error
    output = Path(options.output)
    check_output("--output", output)  # before anything is computed
    csv_dir = output.with_name(output.stem + "_csv")
    check_output("--output", csv_dir / "runs.csv")

    found = []
    left_out = []
    for folder in runs.find_runs(options.folders):
        try:
            found.append(runs.read_run(folder))
        except Exception as error:  # whatever a damaged file leads to: the others are reported on
            why = str(error) if isinstance(error, RunFolderError) else f"{type(error).__name__}: {error}"
            left_out.append((folder, why))
    groups, without = tables.group_runs(found)
    left_out += without
    for folder, why in left_out:
        print(f"{folder}: left out, {why}")
    if not groups:
        raise UsageError(
            f"No run to report on in {', '.join(options.folders)}. A run is a folder that train.py has made, with "
            f"{CONFIG} in it. " + " ".join(f"{folder}: {why}." for folder, why in left_out)
        )
    print(f"Groups: {'; '.join(group.label for group in groups)}\nDrawing ...", flush=True)
    made = tables.compute_tables(groups)
    csv_dir.mkdir(parents=True, exist_ok=True)
    output.write_text(page.render(groups, made, left_out), encoding="utf-8")
    for name, table in made.items():
        if not table.empty:
            table.to_csv(csv_dir / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")
    print(f"Page: {output.resolve()}\nCSV files: {csv_dir.resolve()}")
    return 0
