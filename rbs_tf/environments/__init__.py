"""Environments: Atari, MinAtar and Gymnasium behind one batched TF-Agents `PyEnvironment`.

    environment = rbs_tf.environments.make("pong", num_envs=8, seed=0)
    time_step = environment.reset()                      # leaves [8, ...]
    time_step = environment.step(actions)                # actions int32 [8]

`batched.py` holds the environment class, `factory.py` how each family is set up, `names.py` what there is,
`wrappers.py` what makes one array of observations of other kinds.
"""

from rbs_tf.extras import explain_missing

with explain_missing("rbs_tf.environments"):
    from rbs_tf.environments.factory import check_name, make
    from rbs_tf.environments.names import list_environments

__all__ = [
    "check_name",
    "list_environments",
    "make",
]
