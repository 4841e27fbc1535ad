"""Packs what a run needs into a folder, for a machine without a network.

    .venv/bin/python -m benchmarks.pack packed          # for the CPU of another x86-64 Linux
    .venv/bin/python -m benchmarks.pack packed --gpu    # and for an NVIDIA GPU

There, `sh packed/unpack.sh FOLDER` makes a virtual environment and a clone in FOLDER, and says how to go on. It needs a
Python of the version that packed. Packages are those of requirements.lock, CUDA's libraries (2 GB) those that the extra
`and-cuda` of TensorFlow names.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
UNPACK = f"""#!/bin/sh
set -eu
[ $# = 1 ] || {{ echo "Type: sh unpack.sh FOLDER" >&2; exit 2; }}
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
tar -xf "$here/project.tar" -C "$1"
cd "$1"
{PYTHON} -m venv .venv
.venv/bin/python -m pip install -q --no-index --no-deps "$here"/wheels/*.whl
echo "Now type: cd $(pwd) && .venv/bin/python train.py --config=quickstart --updates=200"
echo "or, for the speed of this machine: .venv/bin/python -m benchmarks.gpu --output=gpu.md"
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gpu", action="store_true", help="with CUDA's libraries")
    options = parser.parse_args()
    folder = options.folder.absolute()
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    cuda = [f"tensorflow[and-cuda]=={version('tensorflow')}"] if options.gpu else []
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "-w", str(wheels), "-r", "requirements.lock", *cuda]
    subprocess.run(pip, cwd=ROOT, check=True)
    subprocess.run(["git", "archive", f"--output={folder / 'project.tar'}", "HEAD"], cwd=ROOT, check=True)
    (folder / "unpack.sh").write_text(UNPACK)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{size / 1e6:.0f} MB. There, type: sh {folder.name}/unpack.sh FOLDER")


if __name__ == "__main__":
    main()
