"""Whatever happens to a file of a run folder, each command works or ends in a sentence; what is the user's stays."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.agents.commands.small_runs import on_folder

# Of the user's, beside files of the run.
MINE = "mine", "checkpoints/mine.tmp", "statistics/mine.tfrecord", "train/mine.csv"


def flip(content, rng):
    damaged = bytearray(content)
    for place in rng.integers(len(content), size=3):
        damaged[place] ^= 1 << rng.integers(8)
    return bytes(damaged)


DAMAGES = {
    "flipped": flip,
    "cut": lambda content, rng: content[: rng.integers(len(content))],
    "empty": lambda content, rng: b"",
    "binary": lambda content, rng: rng.bytes(200),
    "json": lambda content, rng: b'[{"updates": "many"}, null]',
}


def files(root: Path) -> list[str]:
    """Those that hold something, by their names in the folder; all of a run but the lock."""
    found = sorted(p for p in root.rglob("*") if p.is_file() and p.name != "lock" and p.stat().st_size)
    return [str(path.relative_to(root)) for path in found]


def damage_and_try(names, finished, tmp_path, capsys, file, damage, seed):
    """Damages a file of a copy of the run, and runs these commands on it."""
    root, rng = tmp_path / f"{seed}" / "run", np.random.default_rng(seed)
    shutil.copytree(finished, root)
    for name in MINE:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("precious")
    content = (root / file).read_bytes()
    damaged = DAMAGES[damage](content, rng)
    (root / file).write_bytes(damaged)
    for name in names:
        capsys.readouterr()
        code = on_folder(name, root)
        err = capsys.readouterr().err
        assert code in (0, 1, 2) and "Traceback" not in err and "bug of rbs_tf" not in err, (name, file, err)
        assert code == 0 or err.strip(), (name, file)
    stays = {path.name for path in root.rglob("*") if path.is_file() and path.read_bytes() == b"precious"}
    assert stays == {Path(name).name for name in MINE}


@pytest.mark.slow
def test_a_command_each_for_files_damaged_in_three_ways(finished, tmp_path, capsys):
    for seed, (damage, command) in enumerate(zip(DAMAGES, ("resume", "play", "report"), strict=False)):
        file = str(np.random.default_rng(seed).choice(files(finished)))
        damage_and_try((command,), finished, tmp_path, capsys, file, damage, seed)


@pytest.mark.chaos
def test_all_commands_for_every_file_damaged_in_every_way(finished, tmp_path, capsys):
    for seed, (file, damage) in enumerate(itertools.product(files(finished), DAMAGES)):
        damage_and_try(("play", "export", "report", "resume"), finished, tmp_path, capsys, file, damage, seed)
