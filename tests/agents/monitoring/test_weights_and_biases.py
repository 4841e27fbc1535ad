"""`train.py --wandb`: what TensorBoard gets, W&B gets once. Offline: nothing here touches the network."""

import json
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from agents import run as program
from agents.commands.train import main
from agents.storage import run_folder
from agents.workers.results import Result
from tests.agents.commands.small_runs import instead_of_building


def test_without_wandb_one_sentence_says_what_to_type_before_anything_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["--wandb", f"--root_dir={tmp_path / 'run'}"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and not any(tmp_path.iterdir())
    assert said.err == ("train.py: --wandb needs Weights & Biases. Install it with: pip install wandb\n")


def test_a_run_is_the_same_in_every_start_and_wherever_it_lies_but_not_anew(tmp_path):
    def start(name, *command):
        with run_folder.opened(tmp_path / name) as folder:
            folder.begin(["python", "train.py", *command])
            return run_folder.first_start(folder.path)

    first = start("run", "--root_dir=run")
    assert start("run", "--root_dir=run", "--updates=9") == first
    (tmp_path / "run").rename(tmp_path / "moved")
    assert start("moved") == first
    assert start("run", "--root_dir=run", "--anew") != first


def main_that_writes(argv, steps):
    """train.py, whose training writes as others do: several writers, one after the other, in each folder."""

    def run(root_dir, _):
        for step in steps:
            for name in ("train", "eval"):
                writer = tf.summary.create_file_writer(f"{root_dir}/{name}")
                with writer.as_default():
                    tf.summary.scalar("episode/return", 100.0 * (name == "eval") + step, step=step)
                writer.close()
        return Result(steps[-1], 0, 0.0, None)

    program._built = instead_of_building(run)
    return main(argv)


def synced(folder):
    """Each offline run in the order of starts: its record, and {name: [(step, value)]} of its history."""
    datastore = pytest.importorskip("wandb.sdk.internal.datastore")
    from importlib import import_module

    records = import_module("wandb.proto.wandb_internal_pb2")
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        store, run, history = datastore.DataStore(), None, {}
        store.open_for_scan(str(path))
        while (data := store.scan_data()) is not None:
            record = records.Record.FromString(data)
            if record.HasField("run"):
                run = record.run
            row = {"/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            for name in ("train", "eval"):
                if f"{name}/episode/return" in row:
                    point = row[f"{name}/global_step"], row[f"{name}/episode/return"]
                    history.setdefault(name, []).append(point)
        yield run, history


@pytest.mark.slow
def test_everything_arrives_once_and_a_resumed_run_goes_on_as_the_same(tmp_path):
    pytest.importorskip("wandb", reason="pip install wandb")
    folder, home = tmp_path / "cart", str(tmp_path / "home")
    own = dict.fromkeys(("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"), home)
    environment = os.environ | own | {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false"}
    environment.pop("WANDB_PROJECT", None)
    for steps in ([10, 20], [30, 40]):  # processes of their own: W&B and TensorFlow number files by these
        program = (
            "import sys\nfrom agents.running.startup import quiet\nquiet()\n"
            "from tests.agents.monitoring.test_weights_and_biases import main_that_writes\n"
            f"argv = ['--env=CartPole-v1', '--wandb', '--updates={steps[-1]}', '--root_dir={folder}']\n"
            f"sys.exit(main_that_writes(argv, {steps}))"
        )
        command = [sys.executable, "-c", program]
        subprocess.run(command, cwd=run_folder.REPOSITORY, env=environment, check=True)
    (first, before), (second, after) = synced(folder)
    assert first.run_id == second.run_id
    assert (first.display_name, first.project) == ("cart", "rbs_tf")
    columns = {item.key: json.loads(item.value_json) for item in first.config.update}
    assert {"env": "CartPole-v1", "seed": 0, "scaling": "return_based"}.items() <= columns.items()
    assert before == {"train": [(10, 10.0), (20, 20.0)], "eval": [(10, 110.0), (20, 120.0)]}
    assert after == {"train": [(30, 30.0), (40, 40.0)], "eval": [(30, 130.0), (40, 140.0)]}
