"""Which updates the compilers of an H100 and a TPU v5e take, and what they make of them: docs/accelerators.md.

    make accelerators                              # two to four hours of one core; the same command goes on
    make accelerators ARGS="--scaling=return"      # one scaling

Every row is written as it is known, into docs/results/accelerators.csv. Rows that are there stay: to compile a program
again, delete its row.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from agents.running.startup import quiet

quiet()

from benchmarks.accelerators import programs  # noqa: E402  # TensorFlow, which is quiet now
from benchmarks.performance import ROOT, put_between  # noqa: E402

ROWS, PAGE = ROOT / "docs/results/accelerators.csv", ROOT / "docs/accelerators.md"
COMPILER = ROOT / ".venv-accelerators/bin/python"
TABLE, END = "<!-- table: written by benchmarks/accelerators -->", "<!-- end of table -->"
CASE = ("network", "scaling", "torso", "frames", "replicas", "target")
COLUMNS = (
    *CASE,
    *("seconds", "operations", "flops", "bytes", "arguments", "temporaries"),
    *("host", "exchanges", "float64", "failure"),
)
LIMIT = 1800  # seconds for one program
Row = dict[str, str]

NAMES = {"gpu": "H100 SXM", "tpu": "TPU v5e"}
# By the cards' data sheets. Dense operations per second: TF32's for an H100's float32; a TPU multiplies float32 in
# bfloat16 unless it is asked not to. Bytes per second of its memory.
PEAK = {("gpu", "float32"): 494.7e12, ("gpu", "bfloat16"): 989.4e12}
PEAK |= {("tpu", "float32"): 197e12, ("tpu", "bfloat16"): 197e12}
BANDWIDTH = {"gpu": 3.35e12, "tpu": 819e9}


def cases() -> Iterator[Row]:
    """What to compile, as the columns of `CASE` without the target; what is asked for most comes first."""
    kinds = [(scaling, torso) for torso in ("float32", "bfloat16") for scaling in programs.SCALINGS]
    for scaling, torso in sorted(kinds, key=lambda kind: kind[0] != "return"):
        for network in programs.NETWORKS:
            case = {"network": network, "scaling": scaling, "torso": torso}
            yield case | {"frames": "whole", "replicas": "1"}
            looked_at = network == "the paper's" and scaling == "return"
            if looked_at:
                yield case | {"frames": "packed", "replicas": "1"}
            if looked_at or (network == "quickstart" and torso == "float32"):
                yield case | {"frames": "whole", "replicas": "4"}


def compiled(program: programs.Program, target: str) -> Row:
    """What the target's compiler says."""
    with tempfile.TemporaryDirectory() as folder:
        program.write(Path(folder))
        command = [str(COMPILER), str(Path(__file__).with_name("compiling.py")), target, folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return {"failure": f"not compiled in {LIMIT} s"}
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "Error" in line]
        return {"failure": (said or ["no word"])[0][:200]}
    found = json.loads(done.stdout.splitlines()[-1])
    return {key: str(value) for key, value in found.items() if value is not None}


def gigabytes(row: Row, column: str) -> str:
    """Empty where it is not known."""
    return f"{float(row[column]) / 1e9:.3g}" if row.get(column) else ""


def tables(rows: list[Row]) -> Iterator[str]:
    """Lines: a table of networks, for `return`, and one of scalings."""
    found = {tuple(row[name] for name in CASE): row for row in rows}

    def of(row: Row, **other: str) -> Row:
        """The row of the same case but for what is named; an empty one if there is none."""
        return found.get(tuple((row | other)[name] for name in CASE), {})

    yield (
        "| network | torso | frames | for | compiled in, s | operations | GB moved | GB of arguments | of temporaries "
        "| bound, updates/s |"
    )
    yield "|---" * 10 + "|"
    for row in rows:
        target, torso, number = row["target"], row["torso"], row["replicas"]
        varied = [row["network"] != "the paper's", number != "1", row["frames"] != "whole"]
        if row["scaling"] != "return" or sum(varied) > 1 or (any(varied) and torso != "float32"):
            continue  # the table of all programs has it
        name = NAMES[target] if number == "1" else f"{number} {NAMES[target]}"
        what = f"| {row['network']} | {torso} | {row['frames']} | {name} |"
        if row["failure"]:
            yield f"{what} **no**: {row['failure']} |" + " |" * 5
            continue
        # The GPU's compiler does not count, the TPU's does; packed frames cost it what they do not cost a GPU.
        tpu = row if target == "tpu" else of(row, target="tpu", frames="whole")
        bound = ""
        if tpu.get("bytes"):  # by the roofline
            computing = float(row["operations"]) / PEAK[target, torso]
            bound = f"{1 / max(computing, float(tpu['bytes']) / BANDWIDTH[target]):,.0f}"
        figures = [f"{float(row['seconds']):.0f}", f"{float(row['operations']):.3g}", gigabytes(tpu, "bytes")]
        figures += [gigabytes(row, "arguments"), gigabytes(row, "temporaries"), bound]
        yield f"{what} {' | '.join(figures)} |"
    yield ""
    yield "| `--scaling` | compiled | float64 | GB moved | temporaries, v5e | H100 | exchanges |"
    yield "|---" * 7 + "|"
    for scaling in dict.fromkeys(row["scaling"] for row in rows):
        own = [row for row in rows if row["scaling"] == scaling]
        paper = dict(zip(CASE, ("the paper's", scaling, "float32", "whole", "1"), strict=False))
        tpu, gpu = (of(paper, target=target) for target in ("tpu", "gpu"))
        shared = of(paper, network="quickstart", replicas="4", target="tpu")
        figures = [f"`{scaling}`", f"{sum(not row['failure'] for row in own)} of {len(own)}"]
        figures += [gpu.get("float64", ""), gigabytes(tpu, "bytes"), gigabytes(tpu, "temporaries")]
        figures += [gigabytes(gpu, "temporaries"), shared.get("exchanges", "")]
        yield f"| {' | '.join(figures)} |"
    hosts = sum(row["host"] not in ("{}", "") for row in rows)
    yield ""
    yield f"Programs in which the host takes part: {hosts} of {len(rows)}."


def write(rows: list[Row]) -> None:
    """The table and the page."""
    networks = list(programs.NETWORKS)
    rows.sort(
        key=lambda row: (
            *(row["scaling"] != "return", row["scaling"], networks.index(row["network"])),
            *(row["torso"] != "float32", row["frames"] != "whole", row["replicas"], row["target"]),
        )
    )
    with ROWS.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    put_between(PAGE, TABLE, END, "\n".join(tables(rows)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scaling", choices=programs.SCALINGS, help="only this one")
    options = parser.parse_args()
    if not COMPILER.exists():
        sys.exit("The compilers are not installed. Type: make accelerators")
    with ROWS.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for case in cases():
        known = [row["target"] for row in rows if case.items() <= row.items()]
        missing = [target for target in NAMES if target not in known]
        if not missing or options.scaling not in (None, case["scaling"]):
            continue
        kind = {"packed": case["frames"] == "packed", "replicas": int(case["replicas"])}
        program = programs.trace(case["network"], case["scaling"], case["torso"], **kind)
        counted = {"operations": f"{program.operations:.6g}", "float64": str(program.float64), "failure": ""}
        for target in missing:
            row = case | {"target": target} | counted | compiled(program, target)
            rows.append(row)
            write(rows)
            print(*case.values(), target, row["failure"] or f"{row['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
