"""The recipes of docs/recipes, with stand-ins for what a cluster brings."""

import os
import re
import shlex
import subprocess

import pytest
import yaml

from agents.commands import train as command_line
from tests.source_tree import ROOT

SBATCH, RAYCLUSTER = ROOT / "docs/recipes/train.sbatch", ROOT / "docs/recipes/raycluster.yaml"


def slurm(folder, nodes, ends):
    """What Slurm sets for a batch script; `folder` has the stand-ins for its commands, and what they were asked for."""
    job = {"SUBMIT_DIR": folder, "JOB_ID": 4711, "JOB_NUM_NODES": nodes, "CPUS_PER_TASK": 8}
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    own = {"SLURMD_NODENAME": "node0", "PATH": path, "ASKED": str(folder / "asked"), "ENDS": str(ends)}
    return os.environ | {f"SLURM_{name}": str(value) for name, value in job.items()} | own


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/bash\necho "${{0##*/}} $*" >> "$ASKED"\n{text}\n')
    path.chmod(0o755)


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_job_that_is_told_to_stop_waits_for_the_run_and_is_queued_again(tmp_path, nodes):
    # train.py, which itself tells the script of the time limit, twice, as soon as the script listens
    run = """
        [[ $1 != -c ]] || { echo secret; exit; }
        (( SLURM_JOB_NUM_NODES == 1 )) || until grep -q ^srun "$ASKED"; do :; done
        [[ $ENDS == 138 ]] || exit $ENDS
        trap 'sleep 0.3; echo saved >> "$ASKED"; exit 138' USR1
        until (( 0x$(awk '/^SigCgt/ {print $2}' /proc/$PPID/status) & 0x200 )); do :; done
        kill -USR1 $PPID; kill -USR1 $PPID
        while :; do sleep 0.05; done"""
    program(tmp_path / ".venv/bin/python", run)
    program(tmp_path / ".venv/bin/ray", 'echo "token $RAY_AUTH_MODE $RAY_AUTH_TOKEN" >> "$ASKED"')
    program(tmp_path / "hostname", "echo 10.0.0.7 10.1.0.7")
    for name in ("srun", "scontrol"):
        program(tmp_path / name, "")
    for code in (138, 0, 1, 2, 130):
        (tmp_path / "asked").write_text("")
        command = ["bash", SBATCH, "--env=pong"]
        assert subprocess.run(command, env=slurm(tmp_path, nodes, code)).returncode == code
        asked = (tmp_path / "asked").read_text().splitlines()
        queued = asked[-2:] == ["saved", "scontrol requeue 4711"]
        assert queued if code == 138 else "scontrol" not in str(asked)
        cluster = " --cluster=10.0.0.7:24711" if nodes > 1 else ""
        assert f"python train.py --root_dir=runs/slurm-4711{cluster} --env=pong" in asked
        assert any(line.startswith("ray start --head") for line in asked) == (nodes > 1)
    if nodes > 1:
        (others,) = (line for line in asked if line.startswith("srun"))
        assert others.startswith("srun --nodes=2 --ntasks=2 --exclude=node0 bash -c")
        assert others.endswith(" ray start --address=10.0.0.7:24711 --num-cpus=8 --block")
        assert "token token secret" in asked


def test_the_sbatch_file_asks_for_what_it_counts_on():
    text = SBATCH.read_text()
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(.*))?$", text, re.M))
    assert asked["signal"].startswith("B:USR1@") and "requeue" in asked and asked["ntasks-per-node"] == "1"
    (flags,) = re.findall(r"^# +sbatch \S+ (.*)$", text, re.M)
    options = command_line.parse_flags(shlex.split(flags))
    assert options.collectors == (int(asked["nodes"]) - 1) * int(asked["cpus-per-task"])
    subprocess.run(["bash", "-n", SBATCH], check=True)


def test_the_pods_are_alike_and_have_the_slots_that_the_command_needs():
    spec = yaml.safe_load(RAYCLUSTER.read_text())["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        (mount,) = container["volumeMounts"]
        assert mount["name"] in [volume["name"] for volume in group["template"]["spec"]["volumes"]]
        for probe in (container["livenessProbe"], container["readinessProbe"]):
            assert str(probe["tcpSocket"]["port"]) == group["rayStartParams"]["node-manager-port"]
    lock = (ROOT / "requirements.lock").read_text()
    assert re.search(rf"^ray=={spec['rayVersion']} ", lock, re.M), "the image has another Ray"
    text = RAYCLUSTER.read_text().replace("\n", " ")
    (flags,) = re.findall(r"python train.py (.*?) #", text)
    options = command_line.parse_flags(shlex.split(flags))
    assert options.cluster == "auto" and str(options.root_dir).startswith(f"{mount['mountPath']}/")
    head, *workers = groups
    slots = [int(group["rayStartParams"]["num-cpus"]) for group in groups]
    assert slots[0] == 3
    assert options.collectors == sum(
        n * group["replicas"] for n, group in zip(slots[1:], workers, strict=True)
    )
