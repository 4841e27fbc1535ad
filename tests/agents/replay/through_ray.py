"""Ray's replay as one object: what is written goes the way of a collector in another process, in calls."""

from agents.replay.ray_replay import RayClient, RayTable
from tests.agents.running.stand_in_ray import Calls


class ThroughRay(RayTable):
    """A table, and clients of it; a round ends with each flush and each report."""

    def __init__(self, *args, losses=(), **options):
        super().__init__(*args, **options)
        self.calls = Calls(self, losses)
        self.client = self.another_client()

    def another_client(self):
        return RayClient(self._layout, self.calls)

    def writer(self):
        writer = self.client.writer()
        writer.flush = self.client.end_round
        return writer

    def put_statistics(self, report):
        self.client.put_statistics(report)
        self.client.end_round()
