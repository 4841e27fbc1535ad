"""The tables of the replay's Reverb server: what is in them, and which settings a checkpoint would override."""

from __future__ import annotations

from typing import Any

import reverb
import tensorflow as tf

from agents.replay.replay import Episode

SEQUENCES, STATISTICS, WEIGHTS = "sequences", "statistics", "weights"
SAMPLERS = {
    "prioritized": reverb.selectors.Prioritized,
    "uniform": lambda _: reverb.selectors.Uniform(),
}
_MOST_STATISTICS = 1_000_000


def sequences_table(
    signature: dict[str, tf.TensorSpec],
    sampler: str,
    priority_exponent: float,
    max_size: int,
    replay_ratio: float,
    min_sequences: int,
    error_buffer: float,
) -> reverb.Table:
    """Windows of experience; see `ReplaySettings`."""
    return reverb.Table(
        SEQUENCES,
        sampler=SAMPLERS[sampler](priority_exponent),
        remover=reverb.selectors.Fifo(),
        max_size=max_size,
        rate_limiter=reverb.rate_limiters.SampleToInsertRatio(
            replay_ratio, min_sequences, float(error_buffer)
        ),
        signature=signature,
    )


def statistics_table(moments_shape: tuple[int, ...]) -> reverb.Table:
    """A queue of `StatisticsReport`s.

    Not `Table.queue`: reading must not remove what the reader may not live to use.
    """
    return _in_order(
        STATISTICS,
        _MOST_STATISTICS,
        {
            "moments": tf.TensorSpec(moments_shape, tf.float64, "moments"),
            "episodes": tf.TensorSpec((None, len(Episode._fields)), tf.float64, "episodes"),
        },
    )


def weights_table() -> reverb.Table:
    """The newest weights alone."""
    return _in_order(
        WEIGHTS,
        1,
        {
            "step": tf.TensorSpec((), tf.int64, "step"),
            "data": tf.TensorSpec((None,), tf.uint8, "data"),
        },
    )


def _in_order(name: str, max_size: int, signature: dict[str, tf.TensorSpec]) -> reverb.Table:
    return reverb.Table(
        name,
        sampler=reverb.selectors.Fifo(),
        remover=reverb.selectors.Fifo(),
        max_size=max_size,
        rate_limiter=reverb.rate_limiters.MinSize(1),
        signature=signature,
    )


def settings(info: reverb.reverb_types.TableInfo) -> dict[str, Any]:
    """Settings that a checkpoint would override."""
    limiter = info.rate_limiter_info
    return {
        "capacity in sequences": info.max_size,
        "replay_ratio": limiter.samples_per_insert,
        "min_sequences": limiter.min_size_to_sample,
        "error_buffer": (limiter.min_diff, limiter.max_diff),
        "sampler": str(info.sampler_options).replace("\n", " ").strip(),
        "signature": {name: (tuple(spec.shape), spec.dtype.name) for name, spec in info.signature.items()},
    }
