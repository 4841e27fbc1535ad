"""Whatever happens to a file of a run folder, each command works or ends in a sentence, and nothing else is lost."""

import itertools
import shutil
from pathlib import Path

import gin
import numpy as np
import pytest

from agents.__main__ import main as other_commands
from agents.commands.train import main as train
from tests.agents.commands.small_runs import FLAGS


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
    (root / "checkpoints" / "mine.tmp").mkdir()
    (root / "statistics" / "mine.tfrecord").write_text("precious")
    content = (root / file).read_bytes()
    damaged = DAMAGES[damage](content, rng)
    (root / file).write_bytes(damaged)
    commands = {
        "play": lambda: other_commands(["play", str(root), "--episodes=1", "--max_steps=5"]),
        "export": lambda: other_commands(["export", str(root), str(tmp_path / f"{seed}" / "exported")]),
        "report": lambda: other_commands(["report", str(root), f"--output={tmp_path}/{seed}/report.html"]),
        "resume": lambda: train([*FLAGS, "--updates=27", f"--root_dir={root}"]),
    }
    for name in names:
        run = commands[name]
        capsys.readouterr()
        code = run()
        err = capsys.readouterr().err
        assert code in (0, 1, 2) and "Traceback" not in err and "bug of rbs_tf" not in err, (name, file, err)
        assert code == 0 or err.strip(), (name, file)
        gin.clear_config()
    assert (root / "checkpoints" / "mine.tmp").is_dir()
    assert (root / "statistics" / "mine.tfrecord").read_text() == "precious"


def test_a_command_each_for_files_damaged_in_three_ways(finished, tmp_path, capsys):
    for seed, (damage, command) in enumerate(zip(DAMAGES, ("resume", "play", "report"), strict=False)):
        file = str(np.random.default_rng(seed).choice(files(finished)))
        damage_and_try((command,), finished, tmp_path, capsys, file, damage, seed)


@pytest.mark.chaos
def test_all_commands_for_every_file_damaged_in_every_way(finished, tmp_path, capsys):
    for seed, (file, damage) in enumerate(itertools.product(files(finished), DAMAGES)):
        damage_and_try(("play", "export", "report", "resume"), finished, tmp_path, capsys, file, damage, seed)
