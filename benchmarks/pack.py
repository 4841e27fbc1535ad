"""Packs what a run needs into files of at most 50 MB, for a machine without a network on which nothing is installed.

    .venv/bin/python -m benchmarks.pack packed                  # for the CPU of another x86-64 Linux
    .venv/bin/python -m benchmarks.pack packed --gpu=9.0        # and for GPUs of that compute capability, see below
    .venv/bin/python -m benchmarks.pack packed --only project   # again, after a change of the project's files

There, `sh unpack.sh FOLDER` checks the files and says how to go on; it needs sh, tar, gzip and sha256sum alone. Along
comes the interpreter that runs this, with the shared libraries that it is linked to, but not the C library, which has
to be as new there as here. Of the packages those come along that the extras `agent` and `minatar` name, less what no
run imports. Here it takes xz, split and strip.

TensorFlow and CUDA's libraries hold each kernel once for each kind of GPU. Kept is what a GPU of the capability would
choose: its own machine code, or else the newest intermediate code, which its driver translates at the first use. The
rest becomes zeros, which take no room in the pieces, and nothing moves within a library. Without --gpu all kernels go.
`--gpu=all` keeps all kernels, and all of CUDA's libraries. Those are of the versions that TensorFlow's extra `and-cuda`
names; pip downloads them once, into --wheels.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import hashlib
import importlib.metadata
import mmap
import re
import shutil
import struct
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PIECE = 50_000_000  # bytes
PARTS = ("interpreter", "project", "packages", "gpu")
VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"
LIBRARY = f"interpreter/lib/{VERSION}"

# No part of the C library: it fits its own machine's loader alone.
C_LIBRARY = re.compile(r"(ld-linux-x86-64|lib(c|m|dl|rt|util|pthread|resolv|nsl|anl|mvec))\.so|linux-vdso")
USELESS_MODULES = re.compile(
    r"(test|idlelib|tkinter|lib2to3|turtledemo|ensurepip|pydoc_data|site-packages|dist-packages|config-.*|__pycache__)/"
    r"|lib-dynload/(_tkinter|.*test)|.*/(__pycache__|tests?)/"
)

WANTED = "rbs-tf[agent,minatar]"
# Named by packages of the agent, needed by none of its runs: C++ bindings, plots, TensorBoard's server, clouds' disks.
LEFT_OUT = {
    *("libclang", "matplotlib", "pandas", "pygame", "rbs-tf", "seaborn"),
    *("tensorboard-data-server", "tensorflow-io-gcs-filesystem"),
}
USELESS = (
    *("*/tests/*", "*/__pycache__/*", "*.a", "*.h", "*.pyi", "../*"),
    *("tensorflow/include/*", "tensorflow/xla_aot_runtime_src/*"),
)

# Of what CUDA's wheels put into site-packages. cuBLAS and cuDNN's convolutions compute; ptxas and libdevice are XLA's.
CUDA = (
    "nvidia/cublas/lib/libcublas*.so.*",
    "nvidia/cuda_runtime/lib/libcudart.so.*",
    "nvidia/cuda_nvcc/bin/ptxas",
    "nvidia/cuda_nvcc/nvvm/libdevice/*",
    "nvidia/cuda_nvrtc/lib/*.so.*",
    "nvidia/cudnn/lib/libcudnn.so.*",
    "nvidia/cudnn/lib/libcudnn_[co]*.so.*",  # cnn and ops; adv is attention and cuDNN's own LSTM
)
# TensorFlow takes no GPU if it cannot open these, but looks into them only when it calls them, which no update does but
# that of scalings/joint.py (eigenvalues). A link to the smallest library can be opened.
OPENED_ALONE = ("nvidia/cu[fs]*/lib/libcu*[ters].so.*",)
LINK = "../../cuda_runtime/lib/libcudart.so.12"
FATBIN = struct.pack(
    "<IHH", 0xBA55ED50, 1, 16
)  # magic, version, size of the header, whose last 8 bytes are the rest's
PTX, MACHINE_CODE = 1, 2

START = f"""#!/bin/sh
# The packed interpreter and packages; of this machine they use the C library and the GPU's driver.
here=$(cd "$(dirname "$0")" && pwd)
unset PYTHONHOME PYTHONPATH
export PYTHONNOUSERSITE=1
libraries="$here/interpreter/lib:$here/{LIBRARY}/site-packages/nvidia/cuda_nvrtc/lib"
export LD_LIBRARY_PATH="$libraries${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
exec "$here/interpreter/bin/{VERSION}" "$@"
"""
UNPACK = """#!/bin/sh
# Puts the pieces together that lie beside this file: sh unpack.sh FOLDER
set -eu
[ $# = 1 ] || { echo "Type: sh unpack.sh FOLDER" >&2; exit 2; }
pieces=$(cd "$(dirname "$0")" && pwd)
cd "$pieces"
sha256sum --quiet -c SHA256SUMS || { echo "Copy these pieces again, then type: sh unpack.sh $1" >&2; exit 1; }
cd - >/dev/null
mkdir -p "$1"
cd "$1"
for archive in "$pieces"/*.tar.gz; do tar -xzf "$archive"; done
for archive in "$pieces"/*.tar.xz.00; do
  cat "${archive%00}"* | ./python -c '
import sys, tarfile
tarfile.open(fileobj=sys.stdin.buffer, mode="r|xz").extractall()'
done
echo "Now type: cd $(pwd)/project && ../python train.py --config=quickstart --updates=200"
echo "or, for the speed of this machine: ../python -m benchmarks.gpu --output=gpu.md"
"""


def interpreter(tar: tarfile.TarFile) -> None:
    """This interpreter, its modules, and the shared libraries that they and the packages take from this machine."""
    executable, modules = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    tar.add(executable, f"interpreter/bin/{VERSION}")
    kept = [path for path in sorted(modules.rglob("*")) if path.is_file()]
    kept = [path for path in kept if not USELESS_MODULES.match(str(path.relative_to(modules)))]
    for path in kept:
        tar.add(path, f"{LIBRARY}/{path.relative_to(modules)}")
    # Wheels bring their own libraries, but for the C++ one and what comes with it.
    wheels = Path(sysconfig.get_path("purelib"), "tensorflow").glob("libtensorflow_framework.so.*")
    for name, path in shared_libraries(
        [executable, *wheels, *(p for p in kept if p.suffix == ".so")]
    ).items():
        tar.add(path, f"interpreter/lib/{name}")
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder, "python")
        start.write_text(START)
        start.chmod(0o755)
        tar.add(start, "python")


def shared_libraries(files: Iterable[Path]) -> dict[str, Path]:
    """What files are linked to outside of the packages: name -> file."""
    packages = Path(sysconfig.get_path("purelib")).resolve()
    found = {}
    for file in files:
        linked = subprocess.run(["ldd", str(file)], capture_output=True, text=True).stdout
        for name, path in re.findall(r"(\S+) => (/\S+)", linked):
            resolved = Path(path).resolve()
            if not C_LIBRARY.match(name) and packages not in resolved.parents:
                found[name] = resolved
    return found


def project(tar: tarfile.TarFile) -> None:
    """The clone's files that a run or a benchmark may read."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in sorted(listed.stdout.splitlines()):
        if (ROOT / name).is_file() and not name.startswith(("docs/", "pretrained/", "tests/")):
            tar.add(ROOT / name, f"project/{name}")


def packages(tar: tarfile.TarFile, capability: int | None, whole: bool) -> None:
    """The packages of `WANTED`; TensorFlow with the kernels for a capability alone and without names for debuggers."""
    for name, of in sorted(distributions(WANTED, LEFT_OUT).items()):
        if of.files is None:
            raise SystemExit(f"{name} has no list of its files. Type: pip install --force-reinstall {name}")
        for file in of.files:
            path = Path(str(of.locate_file(file)))
            if matches(str(file), USELESS) or not path.is_file():
                continue
            with contextlib.ExitStack() as stack:
                if not whole and re.fullmatch(r"tensorflow/libtensorflow_\w+\.so\.2", str(file)):
                    path = Path(shutil.copy(path, stack.enter_context(tempfile.TemporaryDirectory())))
                    subprocess.run(["strip", str(path)], check=True)
                    trim(path, capability)
                tar.add(path, f"{LIBRARY}/site-packages/{file}")


def distributions(wanted: str, left_out: set[str]) -> dict[str, importlib.metadata.Distribution]:
    """A requirement's packages and those that they require, as installed here: name -> distribution."""
    found: dict[tuple[str, str], importlib.metadata.Distribution] = {}
    waiting = [Requirement(wanted)]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in requirement.extras or {""}:
            if (name, extra) in found:
                continue
            found[name, extra] = of = importlib.metadata.distribution(name)
            asked = [Requirement(each) for each in of.requires or ()]
            asked = [each for each in asked if each.marker is None or each.marker.evaluate({"extra": extra})]
            waiting += [each for each in asked if canonicalize_name(each.name) not in left_out - {name}]
    return {name: of for (name, _), of in found.items() if name not in left_out}


def gpu(tar: tarfile.TarFile, wheels: Path, capability: int | None, whole: bool) -> None:
    """CUDA's libraries out of their wheels; the wheels that are not there are downloaded."""
    wheels.mkdir(parents=True, exist_ok=True)
    for requirement in map(Requirement, importlib.metadata.requires("tensorflow") or ()):
        if not (requirement.name.startswith("nvidia-") and "and-cuda" in str(requirement.marker)):
            continue
        name = f"{requirement.name}{requirement.specifier}"
        wanted = name.replace("-", "_").replace("==", "-") + "-*.whl"
        if not list(wheels.glob(wanted)):
            download = ["-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels), name]
            subprocess.run([sys.executable, *download], check=True)
        (wheel,) = wheels.glob(wanted)
        with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
            for file in archive.namelist():
                if matches(file, CUDA) or whole and not (file.endswith("/") or matches(file, USELESS)):
                    path = Path(archive.extract(file, folder))
                    path.chmod(0o755)  # zip files lose it
                    if not whole:
                        trim(path, capability)
                    tar.add(path, f"{LIBRARY}/site-packages/{file}")
                    path.unlink()
                elif matches(file, OPENED_ALONE):
                    link = tarfile.TarInfo(f"{LIBRARY}/site-packages/{file}")
                    link.type, link.linkname = tarfile.SYMTYPE, LINK
                    tar.addfile(link)


def matches(file: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch.fnmatch(file, pattern) for pattern in patterns)


def trim(library: Path, capability: int | None) -> None:
    """Overwrites kernels with zeros that a GPU of the capability, such as 90 for 9.0, would not choose; None: all."""
    with library.open("r+b") as file, mmap.mmap(file.fileno(), 0) as data:
        for found in list(kernels(data)):
            for where in superfluous(found, capability):
                data[where] = bytes(where.stop - where.start)


def kernels(data: bytes | mmap.mmap) -> Iterator[list[tuple[int, int, slice]]]:
    """The fat binaries in a library: lists of (kind, capability such as 90, where the code is)."""
    at = data.find(FATBIN)
    while at >= 0:
        (size,) = struct.unpack_from("<Q", data, at + 8)
        position, end = at + 16, at + 16 + size
        found = []
        while position < end <= len(data):
            kind, _, header, length = struct.unpack_from("<HHIQ", data, position)
            (capability,) = struct.unpack_from("<I", data, position + 28)
            found.append((kind, capability, slice(position + header, position + header + length)))
            position += header + length
        if position == end:  # else the magic number stood there by chance
            yield found
        at = data.find(FATBIN, end if position == end else at + 1)


def superfluous(found: list[tuple[int, int, slice]], capability: int | None) -> list[slice]:
    """Where the code is that a GPU would not choose of a fat binary. Code of unknown kinds is not among it."""
    # Machine code runs on the same major version, intermediate code on all later ones.
    most = -1 if capability is None else capability
    own = [each for kind, each, _ in found if kind == MACHINE_CODE and most // 10 * 10 <= each <= most]
    others = [each for kind, each, _ in found if kind == PTX and each <= most]
    chosen = (MACHINE_CODE, max(own)) if own else (PTX, max(others, default=0))
    return [where for kind, each, where in found if kind in (PTX, MACHINE_CODE) and (kind, each) != chosen]


@contextlib.contextmanager
def in_pieces(folder: Path, name: str, level: int = 6) -> Iterator[tarfile.TarFile]:
    """A tar archive for writing, which ends up in NAME.tar.xz.00, NAME.tar.xz.01 and so on."""
    split = ["split", f"--bytes={PIECE}", "-d", "-", f"{folder}/{name}.tar.xz."]
    with (
        subprocess.Popen(split, stdin=subprocess.PIPE) as last,
        subprocess.Popen(["xz", "-T0", f"-{level}"], stdin=subprocess.PIPE, stdout=last.stdin) as first,
        tarfile.open(fileobj=first.stdin, mode="w|") as tar,
    ):
        yield tar
    if first.returncode or last.returncode:
        raise SystemExit(f"xz and split ended with {first.returncode} and {last.returncode}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the pieces go")
    parser.add_argument("--gpu", metavar="CAPABILITY", help='such as 9.0, or "all"; default: for none')
    parser.add_argument("--wheels", type=Path, default="cuda_wheels", help="folder of CUDA's wheels")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="the others stay as they are")
    options = parser.parse_args()
    if options.gpu and not re.fullmatch(r"all|\d+\.\d", options.gpu):
        parser.error(f'--gpu takes a compute capability such as 9.0, or "all", got {options.gpu}')
    whole = options.gpu == "all"
    capability = int(options.gpu.replace(".", "")) if options.gpu and not whole else None
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    for part in options.only:
        for old in folder.glob(f"{part}.tar.*"):
            old.unlink()
        if part == "interpreter":
            with tarfile.open(folder / "interpreter.tar.gz", "w:gz") as tar:
                interpreter(tar)
        elif part == "project":
            with tarfile.open(folder / "project.tar.gz", "w:gz") as tar:
                project(tar)
        elif part == "packages":
            with in_pieces(folder, part) as tar:
                packages(tar, capability, whole)
        elif options.gpu:
            with in_pieces(folder, part, level=1) as tar:  # kernels are packed already
                gpu(tar, options.wheels, capability, whole)
    (folder / "unpack.sh").write_text(UNPACK)
    pieces = sorted(folder.glob("*.tar.*"))
    sums = [f"{hashlib.sha256(piece.read_bytes()).hexdigest()}  {piece.name}\n" for piece in pieces]
    (folder / "SHA256SUMS").write_text("".join(sums))
    for part in PARTS:
        sizes = [piece.stat().st_size for piece in pieces if piece.name.startswith(f"{part}.")]
        print(f"{part:12} {len(sizes):3} pieces {sum(sizes) / 1e6:7.1f} MB")
    print(f"There, type: sh {folder.name}/unpack.sh FOLDER")


if __name__ == "__main__":
    main()
