"""The recipes of docs/recipes and the Dockerfile, with stand-ins for what a cluster brings."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from agents.commands import options as command_line
from benchmarks import hosts
from tests.agents.running.test_embedded import TINY
from tests.agents.started import DISTRIBUTED, patience
from tests.source_tree import ROOT, repository_files

SBATCH, RAYCLUSTER = ROOT / "docs/recipes/train.sbatch", ROOT / "docs/recipes/raycluster.yaml"


def slurm(folder, nodes, cores=1, **environment):
    """What Slurm sets for a batch script; `folder` has the stand-ins for its commands, and what they were asked for."""
    job = {
        "SUBMIT_DIR": str(ROOT),
        "JOB_ID": "4711",
        "JOB_NUM_NODES": str(nodes),
        "CPUS_PER_TASK": str(cores),
    }
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {f"SLURM_{name}": value for name, value in job.items()} | {
        "SLURMD_NODENAME": "node0", "PATH": path, "ASKED": str(folder / "asked"), **environment
    }  # fmt: skip


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
        environment = slurm(tmp_path, nodes, 8, SLURM_SUBMIT_DIR=str(tmp_path), ENDS=str(code))
        assert subprocess.run(["bash", SBATCH, "--env=pong"], env=environment).returncode == code
        asked = (tmp_path / "asked").read_text().splitlines()
        assert (
            asked[-2:] == ["saved", "scontrol requeue 4711"] if code == 138 else "scontrol" not in str(asked)
        )
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
    options = command_line.parsed(shlex.split(flags))
    assert options.collectors == (int(asked["nodes"]) - 1) * int(asked["cpus-per-task"])
    subprocess.run(["bash", "-n", SBATCH], check=True)


@pytest.fixture
def machines():
    """Three hosts, in network namespaces."""
    try:
        with hosts.hosts() as (names, _):
            yield names
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_a_job_on_three_machines_is_stopped_and_goes_on(machines, tmp_path):
    pytest.importorskip("ray")
    pytest.importorskip("reverb")
    here, *others = machines
    own = "mkdir -p /tmp/ray-4711; for d in /dev/shm /tmp/ray-4711; do mount -t tmpfs tmpfs $d; done"
    program(
        tmp_path / "srun",
        f"""while [[ $1 == --* ]]; do shift; done
            for name in {" ".join(others)}; do ip netns exec $name bash -c '{own}; exec "$@"' own "$@" & done
            wait""",
    )
    program(tmp_path / "scontrol", "")
    bindings = [f"--gin_bindings={binding}" for binding in (*TINY, *DISTRIBUTED)]
    flags = [f"--root_dir={tmp_path / 'run'}", "--collectors=2", *bindings]
    said, environment = tmp_path / "said", slurm(tmp_path, 3)

    def shown():
        counts = re.findall(r"updates ([\d,]+)/", said.read_text())
        return max((int(count.replace(",", "")) for count in counts), default=0)

    def job(updates, signal_at=None):
        with said.open("w") as output:
            script = subprocess.Popen(
                ["ip", "netns", "exec", here, "bash", SBATCH, *flags, f"--updates={updates}"],
                env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        end = time.monotonic() + patience()
        try:
            while script.poll() is None:
                assert time.monotonic() < end, said.read_text()
                if signal_at and shown() >= signal_at:
                    text = (tmp_path / "run/processes.txt").read_text()
                    places = {
                        name: hosts.ip("netns", "identify", pid).strip()
                        for name, pid in re.findall(r"^(.+): (\d+)$", text, re.M)
                    }
                    collectors = {places.pop("collector 0"), places.pop("collector 1")}
                    assert collectors == set(others) and set(places.values()) == {here}, text
                    script.send_signal(signal.SIGUSR1)  # to the script only, as B: says
                    signal_at = None
                time.sleep(0.2)
        finally:
            for name in machines:
                hosts.end_all(name)  # as Slurm does when the batch script has ended
            script.wait()
        return script.returncode

    assert job(1_000_000, signal_at=5) == 138, said.read_text()
    stopped = shown()
    assert stopped >= 5 and (tmp_path / "asked").read_text().endswith("scontrol requeue 4711\n")
    (tmp_path / "asked").write_text("")
    assert job(stopped + 60) == 0, said.read_text()
    assert "Resumed at update" in said.read_text() and shown() == stopped + 60
    assert "scontrol" not in (tmp_path / "asked").read_text()


@pytest.fixture
def raycluster():
    return yaml.safe_load(RAYCLUSTER.read_text())


def test_the_pods_are_alike_and_have_the_slots_that_the_command_needs(raycluster):
    spec = raycluster["spec"]
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
    options = command_line.parsed(shlex.split(flags))
    assert options.cluster == "auto" and str(options.root_dir).startswith(f"{mount['mountPath']}/")
    head, *workers = groups
    slots = [int(group["rayStartParams"]["num-cpus"]) for group in groups]
    assert slots[0] == 3
    assert options.collectors == sum(
        n * group["replicas"] for n, group in zip(slots[1:], workers, strict=True)
    )


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_the_image_is_built_and_trains(tmp_path):
    """Every step of the Dockerfile, without a daemon: on a Debian that debootstrap makes, in ten minutes and more.

    This machine's certificates and pip's configuration are put into the base, so that its package indices are reached.
    """
    if os.geteuid() or not all(map(shutil.which, ("buildah", "debootstrap"))):
        pytest.skip("needs root, buildah and debootstrap (apt install buildah debootstrap)")
    if shutil.disk_usage(tmp_path).free < 20 * 2**30:  # the image, three copies of it while it is committed
        pytest.skip("needs 20 GB of disk")
    base, context = tmp_path / "base", tmp_path / "context"
    store = ["buildah", "--root", tmp_path / "store", "--runroot", tmp_path / "run"]

    def buildah(*words):
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run([*store, *words], env=os.environ | {"TMPDIR": str(tmp_path)}, **streams)
        assert done.returncode == 0, done.stdout[-3000:]
        return done.stdout.strip()

    debian = ["debootstrap", "--variant=minbase", "bookworm", base]
    subprocess.run(debian, check=True, stdout=subprocess.DEVNULL)
    certificates = Path("/usr/local/share/ca-certificates")
    if certificates.is_dir():
        shutil.copytree(certificates, base / certificates.relative_to("/"), dirs_exist_ok=True)
    if Path("/etc/pip.conf").exists():
        shutil.copy("/etc/pip.conf", base / "etc")
    for name in repository_files():
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, context / name)
    (image,) = re.findall(r"^FROM (\S+)$", (ROOT / "Dockerfile").read_text(), re.M)
    try:
        container = buildah("from", "scratch").split()[-1]
        buildah("add", container, base, "/")
        buildah("commit", "--rm", container, image)
        shutil.rmtree(base)
        isolated = ["--isolation", "chroot"]
        buildah("build", *isolated, "--network", "host", "--pull-never", "-t", "rbs_tf", context)
        container = buildah("from", "--pull-never", "localhost/rbs_tf").split()[-1]
        shown = "{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.WorkingDir}}"
        assert buildah("inspect", "--format", shown, container) == "[python train.py] /rbs_tf"
        start = ["run", *isolated, container, "--"]
        flags = "--config=quickstart", "--updates=2", "--root_dir=/run"
        assert "updates 2/2" in buildah(*start, "python", "train.py", *flags)
        ray = yaml.safe_load(RAYCLUSTER.read_text())["spec"]["rayVersion"]
        assert f"version {ray}" in buildah(*start, "ray", "--version")
    finally:
        subprocess.run([*store, "rm", "--all"], stdout=subprocess.DEVNULL)
        subprocess.run([*store, "rmi", "--all", "--force"], stdout=subprocess.DEVNULL)
