"""Writes updates for `running.py`: programs, the variables that they begin with, and the losses of a CPU.

    python -m benchmarks.accelerators.carrying FOLDER     # some 55 MB; there: python FOLDER/running.py FOLDER

Weights are rounded to float16 before, here and there, so that they take half the room. Frames are drawn there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

from agents.running.startup import quiet

quiet()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from benchmarks import workloads  # noqa: E402
from benchmarks.accelerators import programs  # noqa: E402

UPDATES = 10
WORKS = programs.NETWORKS | {"the paper's, 4 windows": workloads.PAPER}
SPEED = "the paper's"
# network, scaling, the torso's type, packed, exact
CASES = [
    *[("quickstart", scaling, "float32", False, True) for scaling in programs.SCALINGS],
    *[(network, "return", "float32", False, True) for network in WORKS if network != "quickstart"],
    *[(network, "return", "float32", False, False) for network in WORKS],
    *[(network, "return", "bfloat16", False, False) for network in WORKS],
    *[(SPEED, "return", dtype, True, False) for dtype in ("float32", "bfloat16")],
    *[(SPEED, scaling, "float32", False, False) for scaling in ("none", "return_out")],
]


def is_weight(array: np.ndarray | tf.Variable) -> bool:
    return array.dtype == np.float32 and np.prod(array.shape) > 1000


def keep(array: np.ndarray, folder: Path) -> str:
    """Writes an array unless an equal one is there; returns its name."""
    if not array.any():
        return "zeros"
    small = array.astype(np.float16) if is_weight(array) else array
    name = hashlib.sha256(small.tobytes() + str(array.dtype).encode()).hexdigest()[:16]
    np.save(folder / f"{name}.npy", small)
    return name


def carry(case: tuple[str, str, str, bool, bool], folder: Path, arrays: Path) -> None:
    """One program; a folder that exists already is not made again."""
    network, scaling, dtype, packed, exact = case
    work = WORKS[network]
    agent, batch = programs.agent(work, scaling, dtype), programs.windows(work, packed)
    program = programs.program(agent, batch, workloads.operations(work), exact)
    plain = programs.update(agent, autograph=False)
    concrete = plain.get_concrete_function(batch)
    variables = {id(variable.handle): variable for variable in concrete.variables}
    for variable in variables.values():
        if is_weight(variable):
            variable.assign(tf.cast(tf.cast(variable, tf.float16), tf.float32))
    # As XLA takes them: what the graph is called with, then what it has captured.
    parts = [part.numpy() for part in tf.nest.flatten(batch)]
    start = parts + [variables.get(id(each), each).numpy() for each in concrete.captured_inputs]
    assert [(array.dtype.name, list(array.shape)) for array in start] == program.arguments
    names = ["frames" if array.ndim == 5 else keep(array, arrays) for array in start]
    # bfloat16 is emulated on most CPUs, and the paper's batch takes a minute.
    compared = dtype == "float32" and network != SPEED
    losses = [float(plain(batch).loss) for _ in range(UPDATES)] if compared else []
    folder.mkdir()
    program.write(folder)
    described = json.loads((folder / "program.json").read_text()) | {
        "program": f"{network}, {scaling}{', packed' * packed}",
        "precision": dtype if dtype == "bfloat16" else "float32" if exact else "TF32",
        "batch": len(parts),
        "start": names,
        "most": 1 if work.flags else 255,
        "losses": losses,
    }
    (folder / "program.json").write_text(json.dumps(described))


def main() -> None:
    where = Path(sys.argv[1])
    arrays = where / "arrays"
    arrays.mkdir(parents=True, exist_ok=True)
    for name in ("running.py", "compiling.py"):
        shutil.copy(Path(__file__).with_name(name), where)
    for number, case in enumerate(CASES):
        folder = where / f"{number:02d}"
        if not folder.exists():
            carry(case, folder, arrays)
            print(*case, flush=True)


if __name__ == "__main__":
    main()
