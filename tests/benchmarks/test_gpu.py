"""The page about a GPU: its parts run small on a CPU."""

import dataclasses
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

from agents.sequences import SequenceShape, unpack
from benchmarks import gpu, workloads

TINY = dataclasses.replace(workloads.QUICKSTART, batch=2, shape=SequenceShape(1, 2, 1, 1))


@pytest.fixture(autouse=True)
def arithmetic():
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    yield
    tf.config.experimental.enable_tensor_float_32_execution(before)


def test_operations_are_those_of_the_papers_table():
    first, *others = 53 * 40 * 32 * 7 * 7 * 3, 27 * 20 * 64 * 5 * 5 * 32, 14 * 10 * 128 * 5 * 5 * 64
    others += 14 * 10 * 128 * 3 * 3 * 128, 14 * 10 * 128 * 512
    core = 4 * 512 * (512 + 18 + 1 + 512) + 512 * 256
    heads = 10 * (2 * 256 * 256 + 256 * (18 + 1))
    forward = 2 * (first + sum(others) + core + heads)
    # Of a window's 105 rows, the target network sees all and the online one 20 and 80; pixels get no gradient.
    expected = 32 * (forward * (105 + 20 + 80 + 2 * 80) - 80 * 2 * first)
    work = dataclasses.replace(workloads.PAPER, batch=32, shape=SequenceShape(20, 80, 40, 5))
    assert workloads.operations(work) == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_updates_and_losses_are_measured_in_the_type_that_their_rows_name(monkeypatch):
    monkeypatch.setattr(gpu, "paper", lambda: TINY)
    what = "update, tf32, not compiled"
    rows = list(gpu.update_rows("tf32", False))
    assert [row[0].removeprefix(what) for row in rows] == ["", ", from the host", ", packed, from the host"]
    median, least, most = map(float, re.match(r"([\d.]+) \[([\d.]+), ([\d.]+)\] ms", rows[0][1]).groups())
    assert 0 < least <= median <= most and f"{workloads.operations(TINY):.2e} operations" in rows[0][2]
    assert tf.config.experimental.tensor_float_32_execution_enabled()
    (_, errors, kept), *_ = gpu.loss_rows(updates=2)
    assert len(errors.split(", ")) == 2 and kept == "the first within 1e-5: yes"
    assert not tf.config.experimental.tensor_float_32_execution_enabled()


def test_packed_windows_hold_the_same_frames_in_a_fifth_of_the_pieces():
    work = dataclasses.replace(TINY, shape=SequenceShape(5, 20, 10, 5))
    whole, packed = (gpu.windows(work, packed) for packed in (False, True))
    frames = unpack(packed, work.observation_spec).steps.observation
    assert np.array_equal(frames, whole.steps.observation) and frames.numpy().any()
    pieces, numbers = packed.steps.observation
    assert 5 * len(pieces) <= tf.size(numbers)


@pytest.mark.slow
def test_a_part_that_fails_costs_only_its_own_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "PARTS", {"no_such_part": None, "devices": None})
    monkeypatch.setattr(sys, "argv", ["gpu", f"--output={tmp_path / 'runs/gpu.md'}"])
    gpu.main()
    failed, *others = (tmp_path / "runs/gpu.md").read_text().splitlines()[4:]
    assert failed == "| no_such_part | **ended with 2** | |"
    assert [line.split(" | ")[0] for line in others] == ["| machine", "| GPU", "| TensorFlow built for"]
