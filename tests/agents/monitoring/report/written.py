"""Run folders with real event files whose numbers are known."""

import numpy as np
import tensorflow as tf

HEADS = ("clipped_0", "clipped_0.99", "unclipped_0.99")

# In gin's own format, a value of several lines and a macro among the rest.
OPERATIVE = """\
# Macros:
# ==============================================================================
rate = {rate}

# Parameters for Heads:
# ==============================================================================
Heads.pairs = \\
    ((0.0, True),
     (0.99, True),
     (0.99, False))

# Parameters for none:
# ==============================================================================
# None.

# Parameters for RecurrentMultiHeadAgent:
# ==============================================================================
RecurrentMultiHeadAgent.learning_rate = %rate
{more}
# Parameters for train:
# ==============================================================================
train.env = '{env}'
train.environment_steps = None
train.scaling = @scalings.{scaling}
train.seed = {seed}
train.updates = {updates}
"""
OF_RETURN = "\nreturn_based.value_bias = False\n"


def write_run(
    folder,
    env="pong",
    scaling="return_based",
    seed=0,
    factor=1.0,
    updates=100,
    planned=100,
    rate=2e-4,
    commit="a" * 40,
    evaluated=True,
    losses=True,
):
    """A run with an entry every ten updates.

    Training returns are `factor` times the update, evaluations one more; steps are ten times the updates. The loss of
    head h is 10^h without scaling, 1 with it; value errors are 0.5, unscaled TD errors the update.
    """
    folder.mkdir(parents=True)
    more = OF_RETURN if scaling == "return_based" else ""
    text = OPERATIVE.format(env=env, scaling=scaling, seed=seed, updates=planned, rate=rate, more=more)
    (folder / "operative_config.gin").write_text(text)
    (folder / "config.gin").write_text(text)
    (folder / "command.txt").write_text("2026-01-01T00:00:00  python train.py\n")
    (folder / "versions.txt").write_text(f"python 3.11.9\ntensorflow 2.15.1\ncommit {commit}\n")
    train = {}
    for update in range(10, updates + 1, 10):
        entry = {"episode/return": factor * update, "environment_steps": 10 * update}
        for index, head in enumerate(HEADS if losses else ()):
            loss = 10.0**index if scaling == "none" else 1.0
            entry |= {f"loss/{head}": loss, f"td_error/scaled/{head}": (2 * loss) ** 0.5}
            entry |= {f"td_error/unscaled/{head}": float(update)}
        train[update] = entry
    write_events(folder / "train", train)
    if evaluated:
        entries = {
            update: {"episode/return": factor * update + 1}
            | ({f"value_error/{head}": 0.5 for head in HEADS} if losses else {})
            for update in range(20, updates + 1, 20)
        }
        write_events(folder / "eval", entries)
    return folder


def write_events(folder, entries, name="events.out.tfevents.1700000000.host.1.0.v2"):
    """One event file of this name: step -> tag -> value, or a list of values that came one after another."""
    before = set(folder.glob("*"))
    writer = tf.summary.create_file_writer(str(folder))
    for step, values in entries.items():
        with writer.as_default(step=step):
            tf.summary.histogram("episode/head", [0.0, 2.0])
            for tag, value in values.items():
                for one in np.atleast_1d(value):
                    tf.summary.scalar(tag, one)
    writer.close()
    (made,) = set(folder.glob("*")) - before
    return made.rename(folder / name)
