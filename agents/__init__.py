"""The paper's agent: a recurrent DQN with many heads, its replay, and all that trains, watches and plays it."""

# TensorBoard's folders in a run's, and the tags in them that one place writes and another one looks for. Those with
# values per head are followed by "/" and the head's name.
TRAIN, EVALUATION = "train", "eval"
RETURN, STEPS, LOSS = "episode/return", "environment_steps", "loss"
UNSCALED, SCALED, VALUE_ERROR = "td_error/unscaled", "td_error/scaled", "value_error"
PROBABILITY, SIGMA, RATIO = "bandit/probability", "scaling/sigma", "replay/ratio"
DEAD, SPREAD = "torso/dead_units", "torso/feature_spread"  # the first is followed by "/" and the layer's name
UPDATE_RATE, STEP_RATE = "speed/updates_per_second", "speed/environment_steps_per_second"


class UsageError(Exception):
    """A request that cannot be met; the message says what can."""


class RunFolderError(RuntimeError):
    """A run folder that cannot be used; the message names it and says what to do."""


class EnvironmentFault(RuntimeError):
    """An environment did what it must not; the message names it, its step, and who played there."""
