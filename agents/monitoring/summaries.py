"""Figures, scalars, settings and layout of a run in TensorBoard; docs/tensorboard.md lists every tag.

The run folder itself gets one file of events, once: the layout of the page of custom scalars, the configuration, and
the settings by which the table of hparams compares runs. `train` and `eval` below it get the rest as the run goes.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import gin
import numpy as np
import tensorflow as tf
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.custom_scalar import summary as custom_scalar
from tensorboard.plugins.hparams import api_pb2, plugin_data_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata
from tensorboard.plugins.hparams import summary_v2 as hparams
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.plugins.text.summary_v2 import text_pb
from tf_agents.environments import py_environment

from agents.agent import RecurrentMultiHeadAgent
from agents.heads import Heads
from agents.monitoring import tags
from agents.storage.run_folder import unused
from rbs_tf import scores
from rbs_tf.settings import in_force, reference

FIGURE = "loss_scales"
# TensorBoard takes every file with `tfevents` in its name.
_FILE, _NEW = "events.out.tfevents.run", "tensorboard.new"

# What they are called in the table -> where gin has them.
_SETTINGS = {
    "env": "train.env",
    "seed": "train.seed",
    "reward_multiplier": "Heads.reward_multiplier",
    "learning_rate": "RecurrentMultiHeadAgent.learning_rate",
    "target_update_period": "RecurrentMultiHeadAgent.target_update_period",
    "double_q": "RecurrentMultiHeadAgent.double_q",
    "batch_size": "train.batch_size",
    "num_envs": "train.num_envs",
    "replay_ratio": "Replay.replay_ratio",
    "burn_in": "SequenceShape.burn_in",
    "length": "SequenceShape.length",
    "n_step": "SequenceShape.n_step",
    "lstm_units": "RecurrentQNetwork.lstm_units",
}
# What TensorBoard shows at once; the others can be ticked. It orders columns by this and then by name.
_FIRST = ("env", "heads", "reward_multiplier", "scaling", "seed")
_METRICS = (  # folder, tag, title
    (tags.EVALUATION, tags.RETURN, "greedy return"),
    (tags.EVALUATION, f"{tags.VALUE_ERROR}/mean", "value error"),
    (tags.TRAIN, tags.RETURN, "training return"),
)


class LossScales(NamedTuple):
    """RMS TD error of each head over the latest updates, float64 [H]; reward units before scaling, none after it.

    None and None: this start has made no update yet.
    """

    updates: int  # the newest of them
    steps: int  # of the environments, by then
    before: np.ndarray | None = None
    after: np.ndarray | None = None


def write_once(
    root_dir: str | os.PathLike,
    agent: RecurrentMultiHeadAgent,
    environment: py_environment.PyEnvironment,
    distributed: bool = False,
) -> None:
    """Writes what does not change in a run, unless an earlier start has. To be called once all has been constructed."""
    folder = pathlib.Path(root_dir).absolute()
    if (folder / _FILE).exists():
        return
    now = time.time()
    contents = (
        custom_scalar.pb(layout(agent, environment, distributed)),
        text_pb("operative_config", f"```\n{gin.operative_config_str()}```"),
        _columns(now),
        # Runs of equal settings in other folders are runs of their own.
        hparams.hparams_pb(settings(agent.heads), trial_id="/".join(folder.parts[-2:])),
    )
    new = unused(folder / _NEW)
    new.touch(exist_ok=False)
    with tf.io.TFRecordWriter(str(new)) as records:
        records.write(event_pb2.Event(wall_time=now, file_version="brain.Event:2").SerializeToString())
        for content in contents:
            event = event_pb2.Event(wall_time=now, step=0)
            event.summary.MergeFromString(content.SerializeToString())
            records.write(event.SerializeToString())
    new.replace(folder / _FILE)


def layout(
    agent: RecurrentMultiHeadAgent, environment: py_environment.PyEnvironment, distributed: bool = False
) -> layout_pb2.Layout:
    """The page of custom scalars: all heads in one chart, the charts that tell most first.

    Equal quantities have equal charts in all runs: TensorBoard merges the layouts of runs that it shows together.
    """
    human = {"Human-normalised score": "episode/human_normalised_score$"}
    waits = {"Share of time spent waiting": "waits/"}
    categories = {
        "Returns": {
            "Return per episode": f"{tags.RETURN}$",
            "Return per episode over environment steps": f"{tags.RETURN}{tags.OVER_STEPS}$",
            **(human if scores.has_score(environment.game) else {}),
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
            "Target": "target/",
        },
        "Choice of heads": {
            "Probability that a head acts": f"{tags.PROBABILITY}/",
            "Head that is evaluated": "episode/best_head$",
        },
        "Replay and speed": {
            "Times that a sequence is replayed": f"{tags.RATIO}$",
            "Updates per second": f"{tags.UPDATE_RATE}$",
            "Environment steps per second": f"{tags.STEP_RATE}$",
            **(waits if distributed else {}),
        },
        "Torso": {"Share of dead units": f"{tags.DEAD}/", "Spread of features": f"{tags.SPREAD}$"},
    }
    page = layout_pb2.Layout()
    for place, (title, charts) in enumerate(categories.items()):
        if charts:
            category = page.category.add(title=title, closed=place >= 3)
        for name, tag in charts.items():
            category.chart.add(title=name, multiline=layout_pb2.MultilineChartContent(tag=[tag]))
    return page


def settings(heads: Heads) -> dict[str, bool | int | float | str]:
    """Settings that tell one run from another: gin's, or the defaults of those that it does not set."""
    values = {name: in_force(parameter) for name, parameter in _SETTINGS.items()}
    plain = {name: of if isinstance(of, bool | int | float) else str(of) for name, of in values.items()}
    return {"scaling": _scaling(), "heads": len(heads), **plain}


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
    return 'TensorBoard gets no figures: they need matplotlib. Install it with: pip install ".[plots]"'


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


def _columns(now: float) -> summary_pb2.Summary:
    """The columns of the table of hparams: the same ones in all runs, for TensorBoard takes any run's for all."""
    names = ("scaling", "heads", *_SETTINGS)
    experiment = api_pb2.Experiment(
        # Without domains, which would hide runs of values that this one does not know.
        hparam_infos=[api_pb2.HParamInfo(name=name, differs=name in _FIRST) for name in names],
        metric_infos=[hparams.Metric(tag, group, title).as_proto() for group, tag, title in _METRICS],
        time_created_secs=now,
    )
    metadata = hparams_metadata.create_summary_metadata(
        plugin_data_pb2.HParamsPluginData(experiment=experiment)
    )
    summary = summary_pb2.Summary()
    tag, tensor = hparams_metadata.EXPERIMENT_TAG, hparams_metadata.NULL_TENSOR
    summary.value.add(tag=tag, metadata=metadata, tensor=tensor)
    return summary


def _scaling() -> str:
    """The scaling's name in gin with the options that are set, as in `return_based half_life=100000`."""
    name = (reference("train.scaling") or "scalings.return_based").strip("@()")
    words = [name.removeprefix("scalings.")]
    for option, parameter in inspect.signature(gin.get_configurable(name)).parameters.items():
        if option != "num_heads":
            value = in_force(f"{name}.{option}")
            if value != parameter.default:
                words.append(f"{option}={value}")
    return " ".join(words)
