"""Which updates the compilers of an H100 and a TPU v5e take, and what they make of them: docs/accelerators.md.

    make accelerators                              # all of them: two to four hours of one core
    make accelerators ARGS="--scaling=return"      # one scaling; the others' rows stay

Every row is written as it is known, into docs/results/accelerators.csv; what has none yet comes first. Rows whose
program has not changed since stay: the same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from agents.running.startup import quiet

quiet()

from benchmarks.accelerators import programs  # noqa: E402  # TensorFlow, which is quiet now

ROOT = Path(__file__).parents[2]
ROWS, PAGE = ROOT / "docs/results/accelerators.csv", ROOT / "docs/accelerators.md"
COMPILER = ROOT / ".venv-accelerators/bin/python"
TABLE, END = "<!-- table: written by benchmarks/accelerators -->", "<!-- end of table -->"
CASE = ("network", "scaling", "torso", "frames", "replicas", "target")
COLUMNS = (
    *CASE,
    *("seconds", "operations", "flops", "bytes", "arguments", "temporaries"),
    *("host", "exchanges", "float64", "signature", "failure"),
)
LIMIT = 1800  # seconds for one program
Row = dict[str, str]


@dataclasses.dataclass(frozen=True)
class Card:
    """A device by its public data sheet.

    Attributes:
      name: for tables.
      peak: torso's type -> floating point operations per second: dense, of TF32 for an H100's float32; a TPU multiplies
        float32 in bfloat16 unless it is asked not to.
      bandwidth: bytes per second of its memory.
      memory: bytes.
    """

    name: str
    peak: dict[str, float]
    bandwidth: float
    memory: float


CARDS = {
    "gpu": Card("H100 SXM", {"float32": 494.7e12, "bfloat16": 989.4e12}, 3.35e12, 80e9),
    "tpu": Card("TPU v5e", {"float32": 197e12, "bfloat16": 197e12}, 819e9, 16e9),
}


def cases(only: str | None) -> Iterator[Row]:
    """What to compile, as the columns of `CASE` without the target; what is asked for most comes first."""
    kinds = [(scaling, torso) for torso in ("float32", "bfloat16") for scaling in programs.SCALINGS]
    for scaling, torso in sorted(kinds, key=lambda kind: kind[0] != "return"):
        for network in programs.NETWORKS if only in (None, scaling) else ():
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
    return {
        key: str(value)
        for key, value in json.loads(done.stdout.splitlines()[-1]).items()
        if value is not None
    }


def bound(row: Row, moved: float) -> float:
    """Updates per second that the roofline allows."""
    card = CARDS[row["target"]]
    return 1 / max(float(row["operations"]) / card.peak[row["torso"]], moved / card.bandwidth)


def gigabytes(row: Row, *columns: str) -> str:
    """The sum of what columns hold; nothing where it is not known."""
    if not all(row.get(column) for column in columns):
        return ""
    return f"{sum(float(row[column]) for column in columns) / 1e9:.3g}"


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
        varied = [row["network"] != "the paper's", row["replicas"] != "1", row["frames"] != "whole"]
        if row["scaling"] != "return" or sum(varied) > 1 or (any(varied) and row["torso"] != "float32"):
            continue  # the table of all programs has it
        card, number = CARDS[row["target"]], row["replicas"]
        what = [
            row["network"],
            row["torso"],
            row["frames"],
            card.name if number == "1" else f"{number} {card.name}",
        ]
        if row["failure"]:
            yield f"| {' | '.join(what)} | **no**: {row['failure']} |" + " |" * 5
            continue
        # The GPU's compiler does not count, the TPU's does; packed frames cost it what they do not cost a GPU.
        tpu = row if row["target"] == "tpu" else of(row, target="tpu", frames="whole")
        figures = [
            f"{float(row['seconds']):.0f}",
            f"{float(row['operations']):.3g}",
            gigabytes(tpu, "bytes"),
            gigabytes(row, "arguments"),
            gigabytes(row, "temporaries"),
            f"{bound(row, float(tpu['bytes'])):,.0f}" if tpu.get("bytes") else "",
        ]
        yield f"| {' | '.join(what + figures)} |"
    yield ""
    yield "| `--scaling` | compiled | float64 | GB moved | temporaries, v5e | H100 | exchanges |"
    yield "|---" * 7 + "|"
    for scaling in dict.fromkeys(row["scaling"] for row in rows):
        own = [row for row in rows if row["scaling"] == scaling]
        works = [row for row in own if not row["failure"]]
        of_paper = "the paper's", scaling, "float32", "whole", "1"
        paper = dict(zip(CASE, of_paper, strict=False))
        tpu, gpu = (of(paper, target=target) for target in ("tpu", "gpu"))
        shared = of(paper, network="quickstart", replicas="4", target="tpu")
        figures = [
            f"`{scaling}`",
            f"{len(works)} of {len(own)}",
            gpu.get("float64", ""),
            gigabytes(tpu, "bytes"),
            gigabytes(tpu, "temporaries"),
            gigabytes(gpu, "temporaries"),
            shared.get("exchanges", ""),
        ]
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
    before, rest = PAGE.read_text().split(TABLE)
    PAGE.write_text("\n".join([before + TABLE, "", *tables(rows), "", END]) + rest.split(END)[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scaling", choices=programs.SCALINGS, help="only this one")
    parser.add_argument("--target", choices=CARDS, help="only this one")
    options = parser.parse_args()
    if not COMPILER.exists():
        sys.exit("The compilers are not installed. Type: make accelerators")
    rows: list[Row] = []
    if ROWS.exists():
        with ROWS.open(newline="") as file:
            rows = list(csv.DictReader(file))
    # What has no rows yet comes first.
    for case in sorted(
        cases(options.scaling), key=lambda case: sum(case.items() <= row.items() for row in rows)
    ):
        program = programs.trace(
            case["network"],
            case["scaling"],
            case["torso"],
            packed=case["frames"] == "packed",
            replicas=int(case["replicas"]),
        )
        for target in CARDS if options.target is None else [options.target]:
            row = dict.fromkeys(COLUMNS, "") | case | {"target": target}
            kept = [old for old in rows if all(old[name] == row[name] for name in CASE)]
            if kept and kept[0]["signature"] == program.signature and not kept[0]["failure"]:
                continue
            row |= {"operations": f"{program.operations:.6g}", "failure": ""}
            row |= compiled(program, target) | {
                "float64": str(program.float64),
                "signature": program.signature,
            }
            rows = [old for old in rows if old not in kept] + [row]
            write(rows)
            print(*case.values(), target, row["failure"] or f"{row['seconds']} s", flush=True)
    write(rows)


if __name__ == "__main__":
    main()
