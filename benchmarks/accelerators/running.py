"""Runs programs on the device that is there, a GPU above all, and prints a row of each as CSV.

    python running.py FOLDER     # of what `python -m benchmarks.accelerators.carrying FOLDER` has written

It needs JAX and no TensorFlow: what runs is TensorFlow's own program of the update, with the variables that it begins
with.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "")  # whatever there is

import jax  # noqa: E402
import numpy as np  # noqa: E402
from compiling import exported  # noqa: E402  # beside this file

COLUMNS = (
    *("device", "program", "precision", "compiled_in", "ms", "least", "most"),
    *("from_host", "temporaries", "errors"),
)


def values(folder: Path, described: dict[str, Any]) -> list[np.ndarray]:
    """The arguments of the first update."""
    found = []
    for (dtype, shape), start in zip(described["arguments"], described["start"], strict=True):
        if start == "frames":  # as benchmarks/workloads.py draws them
            array = np.random.default_rng(0).integers(0, described["most"], shape, np.uint8, endpoint=True)
        elif start == "zeros":
            array = np.zeros(shape, dtype)
        else:
            array = np.load(folder.parent / "arrays" / f"{start}.npy").astype(dtype)
        found.append(array.reshape(shape))
    return found


def compiled(folder: Path) -> tuple[dict[str, Any], Any, float]:
    """A program's description, what the device runs, and how many seconds that took."""
    described = json.loads((folder / "program.json").read_text())
    platform = jax.devices()[0].platform
    function = exported(folder, described, "cuda" if platform == "gpu" else platform)
    donated = tuple(map(int, described["replaced"]))
    step = jax.jit(function.call, donate_argnums=donated, keep_unused=True).lower(*function.in_avals)
    begin = time.monotonic()
    return described, step.compile(), time.monotonic() - begin


def row(folder: Path, described: dict[str, Any], step: Any, seconds: float) -> dict[str, Any]:
    """Runs a program."""
    device = jax.devices()[0]
    replaced = {int(argument): result for argument, result in described["replaced"].items()}
    start = values(folder, described)
    batch = range(described["batch"])
    arguments = [jax.device_put(array, device) for array in start]
    losses: list[Any] = []

    def update(from_host: bool) -> None:
        for index in batch if from_host else ():
            arguments[index] = jax.device_put(start[index], device)
        results = step(*arguments)
        for argument, result in replaced.items():
            arguments[argument] = results[result]
        losses.append(results[0])

    def timed(updates: int, from_host: bool) -> float:
        begin = time.monotonic()
        for _ in range(updates):
            update(from_host)
        jax.block_until_ready(arguments)
        return 1e3 * (time.monotonic() - begin) / updates

    first = timed(len(described["losses"]) or 3, False)
    count = max(1, min(50, round(300 / first)))  # updates of a measurement
    times = [timed(count, False) for _ in range(10)]
    copied = [timed(max(1, count // 5), True) for _ in range(5)]
    # Adam divides by the size of a gradient, so rounding grows from update to update.
    expected = described["losses"]
    errors = [abs(float(loss) / of - 1) for loss, of in zip(losses[: len(expected)], expected, strict=True)]
    assert all(np.isfinite(float(loss)) for loss in losses)
    return {
        "device": device.device_kind,
        "program": described["program"],
        "precision": described["precision"],
        "compiled_in": f"{seconds:.1f}",
        "ms": f"{statistics.median(times):.4g}",
        "least": f"{min(times):.4g}",
        "most": f"{max(times):.4g}",
        "from_host": f"{statistics.median(copied):.4g}",
        "temporaries": step.memory_analysis().temp_size_in_bytes,
        "errors": " ".join(f"{error:.0e}" for error in errors),
    }


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    folders = sorted(path.parent for path in Path(sys.argv[1]).glob("*/program.json"))
    compared = [folder for folder in folders if json.loads((folder / "program.json").read_text())["losses"]]
    # Their losses count, of the others the speed: compilers that try kernels on the same device disturb one another.
    with ThreadPoolExecutor() as threads:
        done = zip(compared, threads.map(compiled, compared), strict=True)
        for folder, of in itertools.chain(done, ((x, compiled(x)) for x in folders if x not in compared)):
            writer.writerow(row(folder, *of))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
