"""What a packed folder holds: kernels for one kind of GPU, packages that a run imports, pieces that join again."""

import os
import struct
import subprocess
import tarfile

import pytest

from benchmarks import pack
from benchmarks.pack import MACHINE_CODE, PTX


def fat_binary(*entries):
    """As CUDA's compiler lays them out; `entries`: (kind, capability, code)."""
    body = b""
    for kind, capability, code in entries:
        body += struct.pack("<HHIQ", kind, 0x101, 64, len(code)) + struct.pack(
            "<IIHHI", 0, 0, 0, 0, capability
        )
        body += bytes(32) + code
    return pack.FATBIN + struct.pack("<Q", len(body)) + body


EVERYWHERE = fat_binary(
    *((MACHINE_CODE, 75, b"code75"), (MACHINE_CODE, 80, b"code80"), (MACHINE_CODE, 86, b"code86")),
    *((PTX, 75, b"text75"), (PTX, 80, b"text80")),
)
OTHER = fat_binary((8, 50, b"what?"), (MACHINE_CODE, 90, b"code90"), (PTX, 90, b"text90"))
BY_CHANCE = pack.FATBIN + struct.pack("<Q", 10**9) + b"by chance"
LIBRARY = b"\x7fELF" + EVERYWHERE + BY_CHANCE + OTHER + b"end"
CODES = (b"code75", b"code80", b"code86", b"text75", b"text80", b"code90", b"text90", b"what?")


@pytest.mark.parametrize(
    ("capability", "kept"),
    [
        (80, {b"code80"}),
        (86, {b"code86"}),  # 80's would run there, too
        (87, {b"code86"}),
        (89, {b"code86"}),
        (90, {b"text80", b"code90"}),  # machine code runs on no other major version
        (100, {b"text80", b"text90"}),
        (70, set()),
        (None, set()),
    ],
)
def test_what_a_gpu_would_choose_is_kept_where_it_was(capability, kept, tmp_path):
    library = tmp_path / "library.so"
    library.write_bytes(LIBRARY)
    pack.trim(library, capability)
    expected = LIBRARY
    for code in {*CODES} - kept - {b"what?"}:
        expected = expected.replace(code, bytes(len(code)))
    assert library.read_bytes() == expected


def test_packages_of_packages_come_along_and_what_no_run_imports_does_not():
    found = pack.distributions("rbs-tf[agent,minatar]", pack.LEFT_OUT)
    assert {"numpy", "tensorflow", "keras", "tf-agents", "gymnasium", "ale-py", "minatar", "six"} <= set(
        found
    )
    assert not {"pytest", "ruff", "ray", "wandb", *pack.LEFT_OUT} & set(found)


def test_the_interpreter_is_started_with_its_own_libraries_first(tmp_path):
    """Whatever else the caller's environment holds, which a driver's folder may be part of."""
    interpreter = tmp_path / "a folder/interpreter/bin" / pack.VERSION
    interpreter.parent.mkdir(parents=True)
    interpreter.write_text('#!/bin/sh\necho "$LD_LIBRARY_PATH|$PYTHONPATH|$PYTHONHOME|$2"\n')
    interpreter.chmod(0o755)
    (tmp_path / "a folder/python").write_text(pack.START)
    command = ["sh", "a folder/python", "-c", "two words"]
    others = {"LD_LIBRARY_PATH": "/driver", "PYTHONPATH": "/elsewhere", "PYTHONHOME": "/elsewhere"}
    said = subprocess.check_output(command, cwd=tmp_path, text=True, env=os.environ | others)
    libraries, *rest = said.strip().split("|")
    assert libraries.split(":")[0] == f"{tmp_path}/a folder/interpreter/lib"
    assert libraries.split(":")[-1] == "/driver" and rest == ["", "", "two words"]


@pytest.mark.parametrize("damage", [False, True])
def test_pieces_join_again_elsewhere_or_are_refused(damage, tmp_path, monkeypatch):
    """The interpreter itself takes a minute to pack; its place is taken by one of this machine."""
    packed, data = tmp_path / "packed", os.urandom(300_000)
    packed.mkdir()
    (tmp_path / "big").write_bytes(data)
    (tmp_path / "python").write_text('#!/bin/sh\nexec python3 "$@"\n')
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(pack, "PIECE", 100_000)

    def small_interpreter(tar):
        tar.add(tmp_path / "python", "python")

    monkeypatch.setattr(pack, "interpreter", small_interpreter)
    monkeypatch.setattr(pack, "packages", lambda tar, *_: tar.add(tmp_path / "big", "interpreter/big"))
    monkeypatch.setattr("sys.argv", ["pack", str(packed), "--only", "interpreter", "project", "packages"])
    pack.main()
    pieces = sorted(packed.glob("packages.tar.xz.*"))
    assert len(pieces) == 4 and max(piece.stat().st_size for piece in pieces) == 100_000
    with tarfile.open(packed / "project.tar.gz") as project:
        names = project.getnames()
    assert "project/train.py" in names and "project/configs/quickstart.gin" in names
    if damage:
        pieces[2].write_bytes(b"0" * 100_000)
    command = ["sh", "packed/unpack.sh", "there"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    if damage:
        assert ended.returncode == 1 and "packages.tar.xz.02: FAILED" in ended.stdout + ended.stderr
        assert not (tmp_path / "there").exists()
    else:
        assert ended.returncode == 0, ended.stderr
        assert (tmp_path / "there/interpreter/big").read_bytes() == data
        assert "cd " + str(tmp_path / "there/project") in ended.stdout
