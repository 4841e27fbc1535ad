"""The table of what the examples come to."""

from benchmarks import examples, rows

PRINTED = """\
step 1,000  return of the last 20 episodes 100
Eval num_timesteps=8192, episode_reward=7.00 +/- 1.00
step 8,193  return of the last 20 episodes 30.5
step 10,000  return of the last 20 episodes -1e+03
"""


def test_the_score_is_of_the_last_fifth():
    assert examples.score_printed(PRINTED) == (7.0 + 30.5 - 1000.0) / 3


def test_the_table_is_of_whole_examples():
    made = [
        {
            "example": "keras_dqn",
            "scaling": scaling,
            "times": times,
            "seed": seed,
            "score": f"{score}{seed}.0",
        }
        | {"seconds": "90"}
        for scaling, score in (("off", 1), ("units", 20))
        for times in examples.TIMES
        for seed in examples.SEEDS
    ]
    line = examples.table([*made, made[0] | {"example": "jax_ppo"}]).splitlines()[2:]
    both = "11 (10 to 12) | 201 (200 to 202)"
    assert line == [f"| `keras_dqn.py` | CartPole, at most 500 | {both} | {both} | 1.5 |"]


def test_the_pages_table():
    written = examples.PAGE.read_text().split(examples.BEGIN)[1].split(examples.END)[0].strip()
    assert written == (examples.table(examples.read(examples.TABLE)) if examples.TABLE.exists() else "")


def test_runs_that_are_in_the_table_are_not_made_again(tmp_path):
    path, runs = tmp_path / "runs.csv", [{"arm": arm, "seed": seed} for arm in "ab" for seed in "01"]
    for run in runs[:3]:
        rows.add(path, run | {"score": "1.5"})
    assert [*rows.missing(path, runs)] == runs[3:]
    assert rows.read(path) == [run | {"score": "1.5"} for run in runs[:3]]
