"""The paper's agent: a recurrent DQN with many heads, its replay, and all that trains, watches and plays it."""


class UsageError(Exception):
    """A request that cannot be met; the message says what can."""


class RunFolderError(RuntimeError):
    """A run folder that cannot be used; the message names it and says what to do."""
