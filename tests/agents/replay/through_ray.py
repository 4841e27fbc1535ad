"""Ray's replay as one object: what is written goes the way of a collector in another process, in calls."""

import math

from agents.replay.ray_replay import RayClient, RayTable, RayWriter, Shard, ShardedTable
from tests.agents.running.stand_in_ray import Calls


class ThroughRay(RayTable):
    """A table, and clients of it."""

    def __init__(self, *args, losses=(), **settings):
        super().__init__(*args, **settings)
        self.calls = Calls(self, losses)
        self.client = self.another_client(0)

    def another_client(self, collector):
        shard = None
        if isinstance(self, ShardedTable):
            shard = self.handles[collector % len(self.handles)]
        return RayClient(self._layout, self.calls, shard, collector, self._settings.patience)

    def writer(self):
        return Writer(self.client)

    def put_statistics(self, report, key=None):
        if key is not None:
            return super().put_statistics(report, key)
        self.client.put_statistics(report)
        return self.client.end_round()


class ThroughShards(ThroughRay, ShardedTable):
    """The same with two shards."""

    def __init__(self, *args, losses=(), capacity, **settings):
        own = settings | {"capacity": capacity // 2, "min_sequences": 1, "error_buffer": math.inf}
        own["folders"] = None
        self.shards = [Shard(*args, seed=seed, **own) for seed in (1, 2)]
        self.handles = [Calls(shard, losses) for shard in self.shards]
        super().__init__(self.handles, *args, capacity=capacity, **settings)


class Writer(RayWriter):
    """One whose round ends with each flush."""

    def __init__(self, client):
        made = client.writer()
        super().__init__(made._stream, made._layout, made._written)
        self.flush = client.end_round
