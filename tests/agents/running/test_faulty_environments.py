"""Whatever an environment does, a run ends in one sentence and keeps what it has learned."""

import pytest

from agents.commands.train import main

COMMAND = (
    "--root_dir=runs/run",
    "--updates=200",
    *(
        f"--gin_bindings={binding}"
        for binding in (
            "RecurrentQNetwork.torso = @networks.MlpTorso",
            "RecurrentQNetwork.lstm_units = 16",
            "RecurrentQNetwork.head_hidden = 16",
            "RecurrentMultiHeadAgent.jit_compile = False",
            "Heads.pairs = ((0.9, True),)",
            "Replay.min_sequences = 5",
            "Replay.replay_ratio = 2.0",
            "train.eval_envs = 1",
            "train.num_envs = 2",
            "train.final_eval_rounds = 1",
            "train.eval_interval = 0",
        )
    ),
)


@pytest.fixture
def failed(tmp_path, monkeypatch, capsys):
    """Runs a command that fails; returns the exit code and what it says."""
    monkeypatch.chdir(tmp_path)

    def failed(kind, *argv):
        code = main([f"--env={FAULTY}{kind}-v0", *COMMAND, *argv])
        (said,) = capsys.readouterr().err.strip().splitlines()
        return code, said

    return failed


FAULTY = "tests.agents.environments:"
TOO_LARGE = "--gin_bindings=Replay.capacity = 1000000000000"
SAY = (
    ("Healthy", 2, "Lower Replay.capacity: ", TOO_LARGE),
    ("Broken", 2, f"{FAULTY}Broken-v0 cannot be made: KeyError: 'no such file'"),
    ("Step", 1, f"collector, environments' step 1: {FAULTY}Step-v0, copy 1 of 2: SystemExit: 4"),
)


def test_what_fails_before_anything_was_learned_ends_in_a_sentence(failed, tmp_path):
    for kind, code, words, *flags in SAY:
        found, said = failed(kind, *flags)
        assert found == code and said.startswith("train.py: ") and words in said, (kind, said)
        assert (tmp_path / "runs").exists() == (code == 1), "a run that can be built has a folder"


def test_a_fault_after_that_keeps_what_was_learned(failed, tmp_path):
    learned = 0
    for _ in range(2):  # the same command goes on from there, until the environment fails once more
        code, said = failed("Late")
        assert code == 1 and "OSError: the device is gone" in said
        newest = max(int(path.name) for path in (tmp_path / "runs/run/checkpoints").iterdir())
        assert newest > learned
        learned = newest
