"""Environments: Atari, MinAtar, bsuite and Gymnasium behind one batched TF-Agents `PyEnvironment`.

    environment = rbs_tf.environments.make("pong", num_envs=8, seed=0)
    time_step = environment.reset()                      # leaves [8, ...]
    time_step = environment.step(actions)                # actions int32 [8]

`batched.py` holds the environment class, `factory.py` how each family is set up, `names.py` what there is,
`wrappers.py` what makes one array of observations of other kinds, `rewards.py` wrappers that change rewards.
"""

from rbs_tf.extras import needed_by

with needed_by("rbs_tf.environments"):
    from rbs_tf.environments.factory import check_name, make
    from rbs_tf.environments.names import list_environments
    from rbs_tf.environments.rewards import (
        DriftRewards,
        MixedRewards,
        ScaleRewards,
        ShapedRewards,
        SpikeRewards,
    )

__all__ = [
    "DriftRewards",
    "MixedRewards",
    "ScaleRewards",
    "ShapedRewards",
    "SpikeRewards",
    "check_name",
    "list_environments",
    "make",
]
