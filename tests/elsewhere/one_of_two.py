"""One of two gloo processes, each fed its own episodes: `python -m tests.elsewhere.one_of_two RANK FOLDER`."""

import os
import sys
import time

import numpy as np

import rbs_tf


def episodes_of(rank):
    """Five episodes of that process."""
    rng = np.random.default_rng(rank)
    return [(rng.normal(5.0, 10.0**rank, length), np.full(length, 0.9)) for length in rng.integers(1, 20, 5)]


def main():
    import torch  # pytest looks at this file without it, too
    import torch.distributed as dist
    from torch import nn

    rank, place = int(sys.argv[1]), sys.argv[2]
    dist.init_process_group("gloo", init_method=f"file://{place}/meeting", rank=rank, world_size=2)
    model = nn.ModuleDict({"last": rbs_tf.torch.UnitLinear(3, 2), "scaled": rbs_tf.torch.ReturnScaling()})
    model.forward = lambda x: model["scaled"](1.0 - model["last"](x))
    if not rank:  # only this one loads; DDP hands it to the other
        model.load_state_dict(torch.load(f"{place}/state.pt"))
    parallel = nn.parallel.DistributedDataParallel(model)
    scaled, synced = model["scaled"], []
    for episode in episodes_of(rank):
        before = scaled.statistics.clone()
        scaled.merge_state(rbs_tf.ReturnMoments.from_episode(*episode))
        assert torch.equal(scaled.statistics, before)
        scaled.sync()
        synced.append(scaled.statistics.clone())  # before DDP hands round the first rank's
        model["last"].to_unit_(scaled.unit)
        parallel(torch.full((4, 3), 1.0 + rank)).square().mean().backward()
    scaled.sync()
    own = {"grad": model["last"].weight.grad, "synced": torch.stack(synced)}
    torch.save(model.state_dict() | own, f"{place}/{rank}.pt")
    while not os.path.exists(f"{place}/{1 - rank}.pt"):  # the other may still be receiving
        time.sleep(0.01)
    os._exit(
        0
    )  # DDP holds the group beyond its end, and gloo's threads then abort an exiting interpreter at times


if __name__ == "__main__":
    main()
