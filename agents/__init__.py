"""The paper's agent: a recurrent DQN with many heads, its replay, and all that trains, watches and plays it."""


class UsageError(Exception):
    """What was asked for cannot be done; the message says what can."""


class RunFolderError(RuntimeError):
    """The run folder cannot be used; the message names it and says what to do."""
