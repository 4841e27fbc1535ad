"""What commands turn into one sentence and an exit code."""


class UsageError(Exception):
    """A request that cannot be met; the message says what can."""


class RunFolderError(RuntimeError):
    """A run folder that cannot be used; the message names it and says what to do."""


class EnvironmentFault(RuntimeError):
    """An environment did what it must not; the message names it, its step, and who played there."""
