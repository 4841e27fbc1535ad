"""TensorBoard's folders in a run's, and the tags that one place writes and another looks for.

Tags of values per head are followed by "/" and the head's name.
"""

TRAIN, EVALUATION = "train", "eval"
RETURN, STEPS, LOSS = "episode/return", "environment_steps", "loss"
# Whatever ends so has environment steps for its axis, all else updates: as in TF-Agents' `Metrics_vs_EnvironmentSteps`.
OVER_STEPS = "_vs_environment_steps"
UNSCALED, SCALED, VALUE_ERROR = "td_error/unscaled", "td_error/scaled", "value_error"
PROBABILITY, SIGMA, RATIO = "bandit/probability", "scaling/sigma", "replay/ratio"
DEAD, SPREAD = "torso/dead_units", "torso/feature_spread"  # the first is followed by "/" and the layer's name
UPDATE_RATE, STEP_RATE = "speed/updates_per_second", "speed/environment_steps_per_second"
