"""Figures, scalars, settings and layout of a run in TensorBoard; docs/tensorboard.md lists every tag.

The run folder itself gets one file of events: the layout of the page of custom scalars, the configuration, and the
settings by which the table of hparams compares runs. `train` and `eval` below it get the rest as the run goes.
"""

from __future__ import annotations

import importlib.util
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import gin
import numpy as np
import tensorflow as tf
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import summary as custom_scalar
from tensorboard.plugins.hparams import api as hparams
from tensorboard.plugins.scalar.summary_v2 import scalar_pb

from agents.agent import RecurrentMultiHeadAgent
from agents.monitoring import tags
from agents.scalings.making import scaling_name
from agents.settings import Settings

FIGURE = "loss_scales"

_METRICS = (  # folder, tag, title
    (tags.EVALUATION, tags.RETURN, "greedy return"),
    (tags.EVALUATION, f"{tags.VALUE_ERROR}/mean", "value error"),
    (tags.TRAIN, tags.RETURN, "training return"),
)


class LossScales(NamedTuple):
    """Root mean square TD error of each head over the latest updates; None where this start has made no update yet."""

    updates: int  # the newest of them
    steps: int  # of the environments, by then
    before: np.ndarray | None = None  # float64 [H], before scaling, in reward units
    after: np.ndarray | None = None  # float64 [H], after it


def write_once(root_dir: str | os.PathLike, agent: RecurrentMultiHeadAgent, settings: Settings) -> None:
    """Writes what does not change in a run, unless an earlier start has. To be called once all has been constructed."""
    folder = pathlib.Path(root_dir).absolute()
    if any(folder.glob("*.tfevents.*")):
        return
    chosen = columns(settings)
    metrics = [hparams.Metric(tag, group, title) for group, tag, title in _METRICS]
    writer = tf.summary.create_file_writer(str(folder))
    with writer.as_default(step=0):
        tf.summary.experimental.write_raw_pb(custom_scalar.pb(layout(agent)).SerializeToString())
        tf.summary.text("operative_config", f"```\n{gin.operative_config_str()}```")
        # All runs have the same columns, because TensorBoard takes one run's columns for the table of all.
        hparams.hparams_config([hparams.HParam(name) for name in chosen], metrics)
        # Runs of equal settings in other folders are runs of their own.
        hparams.hparams(chosen, trial_id="/".join(folder.parts[-2:]))
    writer.close()


def layout(agent: RecurrentMultiHeadAgent) -> layout_pb2.Layout:
    """The page of custom scalars: all heads in one chart, the charts that tell most first.

    Equal quantities have equal charts in all runs: TensorBoard merges the layouts of runs that it shows together.
    """
    categories = {
        "Returns": {
            "Return per episode": f"{tags.RETURN}$",
            "Return per episode over environment steps": f"{tags.RETURN}{tags.OVER_STEPS}$",
        },
        "Loss scales of all heads": {
            "RMS TD error before scaling": f"{tags.UNSCALED}/",
            "RMS TD error after scaling": f"{tags.SCALED}/",
            "Loss": f"{tags.LOSS}/",
        },
        "What errors are scaled by": {name: f"scaling/{name}/" for name in agent.scaling.summaries()},
        "Values": {
            "Value error, relative to the spread of returns": f"{tags.VALUE_ERROR}/",
            "Value": "value/",
        },
        "Choice of heads": {"Probability that a head acts": f"{tags.PROBABILITY}/"},
        "Speed": {"Updates per second": f"{tags.UPDATE_RATE}$", "Steps per second": f"{tags.STEP_RATE}$"},
        "Torso": {"Share of dead units": f"{tags.DEAD}/"},
    }
    page = layout_pb2.Layout()
    for place, (title, charts) in enumerate(categories.items()):
        if charts:
            category = page.category.add(title=title, closed=place >= 3)
        for name, tag in charts.items():
            category.chart.add(title=name, multiline=layout_pb2.MultilineChartContent(tag=[tag]))
    return page


def columns(settings: Settings) -> dict[str, bool | int | float | str]:
    """Settings that tell one run from another, by the names of the table's columns.

    The scaling is its name in gin with the options that are bound, as in `return_based half_life=100000`.
    """
    scaling = settings.train.scaling
    options = [f" {name}={value}" for name, value in gin.get_bindings(scaling).items()]
    return {
        "scaling": scaling_name(scaling) + "".join(options),
        "heads": len(settings.heads),
        "env": settings.train.env,
        "seed": settings.train.seed,
        "reward_multiplier": settings.heads.reward_multiplier,
        "learning_rate": settings.agent.learning_rate,
        "target_update_period": settings.agent.target_update_period,
        "double_q": settings.agent.double_q,
        "batch_size": settings.train.batch_size,
        "num_envs": settings.train.num_envs,
        "replay_ratio": settings.replay.replay_ratio,
        "burn_in": settings.shape.burn_in,
        "length": settings.shape.length,
        "n_step": settings.shape.n_step,
        "lstm_units": settings.network.lstm_units,
    }


def update_summary(
    names: Sequence[str], per_head: Mapping[str, np.ndarray], scalars: Mapping[str, np.ndarray]
) -> bytes:
    """Everything that TensorBoard shows of an update, as one serialised `Summary`.

    Args:
      names: of the heads, H.
      per_head: tag -> [H].
      scalars: tag -> number.
    """
    summary = summary_pb2.Summary()
    shown = {
        f"{tag}/{name}": of for tag, heads in per_head.items() for name, of in zip(names, heads, strict=True)
    }
    for tag, value in {**shown, **scalars}.items():
        summary.MergeFrom(scalar_pb(tag, value))
    return summary.SerializeToString()


def dead_units_note(scalars: Mapping[str, np.ndarray]) -> str | None:
    """A sentence on the layer of the torso that has most dead units, if they are more than half of its units."""
    shares = ((float(share), tag) for tag, share in scalars.items() if tag.startswith(f"{tags.DEAD}/"))
    share, tag = max(shares, default=(0.0, ""))
    if share <= 0.5:
        return None
    return (
        f"{share:.0%} of the units of the torso's layer {tag.removeprefix(f'{tags.DEAD}/')} put out 0 in every state "
        "of a batch: they learn no more, and the run may get stuck. See docs/tensorboard.md#dead-units"
    )


def figures_note() -> str:
    """Why there are no figures; empty if there are."""
    if importlib.util.find_spec("matplotlib") is not None:
        return ""
    return "TensorBoard gets no figures: they need matplotlib. Install it with: pip install matplotlib"


def loss_scales_figure(names: Sequence[str], scales: LossScales) -> np.ndarray | None:
    """Draws what scaling does to each head's errors: uint8 [height, width, 3]; None without any, or matplotlib."""
    if figures_note() or scales.before is None or scales.after is None:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from agents.monitoring.figure import new_figure

    figure, ((axes,),) = new_figure(panel=(4.8, 3.8))
    figure.set_dpi(150)
    series = (  # the first is larger: where nothing is scaled both lie on one another
        ("before scaling", scales.before, "tab:red", "o", 10),
        ("after scaling", scales.after, "tab:green", "s", 6),
    )
    for label, values, colour, marker, size in series:
        shown = np.where(values > 0.0, values, np.nan)  # a head that has no errors has no place on a log axis
        if not np.isnan(shown).all():
            span = np.nanmax(shown) / np.nanmin(shown)
            label += f": largest = {span:{',.0f' if span >= 10 else '.2g'}} x smallest"
        axes.plot(names, shown, marker=marker, color=colour, lw=2, ms=size, label=label)
    axes.axhline(1.0, color="gray", ls=":", zorder=0)
    axes.tick_params(axis="x", rotation=40)
    title = f"Errors of each head, last updates up to {scales.updates:,}"
    axes.set(yscale="log", ylabel="RMS TD error", title=title)
    axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center")
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
