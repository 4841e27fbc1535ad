"""What waits in a replay's statistics queue."""

from agents.replay.replay import Replay, StatisticsReport


def drained(replay: Replay) -> list[StatisticsReport]:
    """Everything, oldest first; the queue is empty then."""
    return [report for _, report in replay.statistics()]
