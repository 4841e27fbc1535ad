"""The page about a GPU: its parts run small on a CPU, and one that hangs or crashes costs only its own rows."""

import dataclasses
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.agents.tf_agent import LossInfo

from agents.sequences import SequenceShape, unpacked
from benchmarks import gpu, workloads

TINY = dataclasses.replace(workloads.QUICKSTART, batch=2, shape=SequenceShape(1, 2, 1, 1))


@pytest.fixture(autouse=True)
def arithmetic():
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    yield
    tf.config.experimental.enable_tensor_float_32_execution(before)


def test_operations_are_those_of_the_papers_table():
    torso = [
        53 * 40 * 32 * 7 * 7 * 3,
        27 * 20 * 64 * 5 * 5 * 32,
        14 * 10 * 128 * 5 * 5 * 64,
        14 * 10 * 128 * 3 * 3 * 128,
        14 * 10 * 128 * 512,
    ]
    core = 4 * 512 * (512 + 18 + 1 + 512) + 512 * 256
    heads = 10 * (2 * 256 * 256 + 256 * (18 + 1))
    forward = 2 * (sum(torso) + core + heads)
    # Of a window's 105 rows, the target network sees all and the online one 20 and 80; pixels get no gradient.
    expected = 32 * (forward * (105 + 20 + 80 + 2 * 80) - 80 * 2 * torso[0])
    assert workloads.operations(gpu.paper(small=False)) == pytest.approx(expected, rel=1e-4)
    assert expected == pytest.approx(2.3e12, rel=0.02)


def test_an_update_is_timed_in_the_type_that_its_row_names(monkeypatch):
    built, real = [], workloads.agent

    # Both in float32 here, as oneDNN has no bfloat16 where it is told to leave out newer instructions.
    def agent(work, **options):
        built.append((options, real(work, **options | {"compute_dtype": "float32"})))
        return built[-1][1]

    monkeypatch.setattr(workloads, "agent", agent)
    monkeypatch.setattr(gpu, "paper", lambda small: TINY)
    (what, figure, note), *others = gpu.update_rows(True, "bfloat16", False)
    assert [options for options, _ in built] == [{"compute_dtype": "bfloat16", "jit_compile": False}] * 2
    rounds = [agent.train_step_counter.numpy() / (1 + gpu.ROUNDS) for _, agent in built]
    assert rounds == [2, 1]  # of the device's windows and the host's; of packed ones
    assert what == "update, bfloat16, not compiled"
    assert [row[0].removeprefix(what) for row in others] == [", from the host", ", packed, from the host"]
    median, least, most = map(float, re.match(r"([\d.]+) \[([\d.]+), ([\d.]+)\] ms", figure).groups())
    assert 0 < least <= median <= most
    assert f"{workloads.operations(TINY):.2e} operations" in note
    assert tf.config.experimental.tensor_float_32_execution_enabled()
    drawing, updating, collecting = gpu.learner_rows(small=True)
    assert drawing[0] == "quickstart: drawing a batch of 8"
    assert float(updating[1].split()[0]) > 0 and float(collecting[1].split()[0]) > 0


def test_packed_windows_hold_the_same_frames_in_a_fifth_of_the_pieces():
    work = dataclasses.replace(TINY, shape=SequenceShape(5, 20, 10, 5))
    whole, packed = (gpu.windows(work, packed) for packed in (False, True))
    frames = unpacked(packed, work.observation_spec).steps.observation
    assert np.array_equal(frames, whole.steps.observation) and frames.numpy().any()
    pieces, numbers = packed.steps.observation
    assert 5 * len(pieces) <= tf.size(numbers)


@pytest.mark.parametrize(("off", "shown", "kept"), [(5e-6, "5e-06", "yes"), (2e-5, "2e-05", "**no**")])
def test_losses_are_compared_in_float32_and_with_the_cpus_own_rounding(off, shown, kept, monkeypatch):
    learned_from, losses = [], iter([4.0, 4.0 * (1 + off), 4.0])

    def train(sequence):
        learned_from.append(sequence)
        return LossInfo(tf.constant(loss), ())

    def agent(*_, **__):
        nonlocal loss
        loss = next(losses)
        return SimpleNamespace(train=train)

    loss = 0.0
    monkeypatch.setattr(workloads, "agent", agent)
    monkeypatch.setattr(gpu, "paper", lambda small: TINY)
    rows = gpu.loss_rows(True, updates=2)
    assert [figure for _, figure, _ in rows] == [f"{shown}, {shown}", "0e+00, 0e+00"]
    assert [note for *_, note in rows] == [f"the first at most 1e-5: {kept}", "the first at most 1e-5: yes"]
    assert len(learned_from) == 3 and not tf.config.experimental.tensor_float_32_execution_enabled()


def test_what_hangs_is_killed_and_what_crashes_says_so_and_a_part_runs_in_a_process_of_its_own():
    hangs = "import time; print('here', flush=True); time.sleep(1000)"
    assert gpu.run([sys.executable, "-c", hangs], 5.0) == (None, "here\n")
    assert gpu.run([sys.executable, "-c", "import os; os.abort()"], 300.0)[0] == -6
    code, said = gpu.run([sys.executable, "-m", "benchmarks.gpu", "--part=devices", "--small"], 300.0)
    assert code == 0 and [line.split(" | ")[0] for line in said.splitlines()][:2] == ["| machine", "| GPU"]


def said_by(outcomes, asked):
    """Stands for processes: outcomes by part, else a row of its own."""

    def run(command, limit):
        (name,) = (word.removeprefix("--part=") for word in command if word.startswith("--part="))
        asked[name] = limit, "--small" in command
        row = "| GPU | none | |" if name == "devices" else f"| did {name} | 1 ms | |"
        return outcomes.get(name) or (0, f"noise\n{row}\n")

    return run


def test_a_part_that_fails_or_finds_no_time_left_costs_its_own_rows_and_the_page_says_so(monkeypatch):
    asked = {}
    failing = {
        "tf32": (None, "compiling\n| tf32 before | 2 ms | |"),
        "losses": (-11, "first\nSegmentation fault"),
    }
    monkeypatch.setattr(gpu, "run", said_by(failing, asked))
    page = "\n".join(gpu.page(minutes=8, small=False))
    assert list(asked) == list(gpu.PARTS)
    assert "| tf32 | **stopped, its time was over** | see below |" in page
    assert "| tf32 before | 2 ms |" in page and "| losses | **ended with -11**" in page
    assert "## losses: the end of what it said\n\n```\nfirst\nSegmentation fault\n```" in page
    assert all(f"| did {name} | 1 ms |" in page for name in gpu.PARTS if name not in (*failing, "devices"))
    # Without a GPU the others are small.
    assert [small for _, small in asked.values()] == [False] + [True] * (len(gpu.PARTS) - 1)
    assert "No GPU was found" in page

    asked.clear()
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(gpu.time, "monotonic", lambda: float(next(clock)))
    page = "\n".join(gpu.page(minutes=8, small=True))
    assert all(limit <= gpu.PARTS[name][1] for name, (limit, _) in asked.items())
    left_out = [*gpu.PARTS][len(asked) :]
    assert [*asked] == [*gpu.PARTS][: len(asked)] and asked and left_out
    assert all(f"| {name} | **not run** | 8 minutes were over |" in page for name in left_out)
