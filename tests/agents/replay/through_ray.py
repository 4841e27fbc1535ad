"""Ray's replay as one object: what is written goes the way of a collector in another process, in calls."""

from agents.replay.ray_replay import RayClient, RayTable
from tests.agents.running.stand_in_ray import Calls


class ThroughRay(RayTable):
    """A table, and clients of it."""

    def __init__(self, *args, losses=(), **options):
        super().__init__(*args, **options)
        self.calls = Calls(self, losses)
        self.client = self.another_client()

    def another_client(self):
        return RayClient(self._layout, self.calls)

    def writer(self):
        return self.client.writer()

    def end_round(self):
        self.client.end_round()

    def put_statistics(self, report):
        self.client.put_statistics(report)
        self.client.end_round()
