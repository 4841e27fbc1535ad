"""Ray's replay as one object: what is written goes the way of a collector in another process, in calls."""

from agents.replay.ray_replay import RayClient, RayTable, RayWriter
from tests.agents.running.stand_in_ray import Calls


class ThroughRay(RayTable):
    """A table, and clients of it."""

    def __init__(self, *args, losses=(), **settings):
        super().__init__(*args, **settings)
        self.calls = Calls(self, losses)
        self.client = self.another_client(0)

    def another_client(self, collector):
        return RayClient(self._layout, self.calls, collector, self._settings.patience)

    def writer(self):
        return Writer(self.client)

    def put_statistics(self, report, key=None):
        if key is not None:
            return super().put_statistics(report, key)
        self.client.put_statistics(report)
        return self.client.end_round()


class Writer(RayWriter):
    """One whose round ends with each flush."""

    def __init__(self, client):
        made = client.writer()
        super().__init__(made._stream, made._layout, made._written)
        self.flush = client.end_round
