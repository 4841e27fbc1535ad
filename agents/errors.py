"""What commands turn into one sentence and an exit code."""

from rbs_tf.errors import EnvironmentFault as EnvironmentFault


class UsageError(Exception):
    """A request that cannot be met; the message says what can."""


class RunFolderError(RuntimeError):
    """A run folder that cannot be used; the message names it and says what to do."""
