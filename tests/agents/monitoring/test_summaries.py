"""What TensorBoard finds in a real run's folder, and that its page shows it."""

import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata

from agents import configuration
from agents.monitoring import summaries
from agents.running.embedded import EmbeddedRun
from agents.settings import Settings
from tests.agents.quickstart import REPOSITORY, configured, tensors, values

TABLE = REPOSITORY / "docs/tensorboard.md"
HEADS = ("clipped_0.9", "unclipped_1")
BINDINGS = (
    "Heads.pairs = ((0.9, True), (1.0, False))",
    "Heads.reward_multiplier = 100.0",
    "train.env = 'CartPole-v1'",
    "train.eval_interval = 5",
    "train.summary_interval = 1",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run that was begun, and resumed for 10 updates: its folder, and the loss scales that were drawn last."""
    root = tmp_path_factory.mktemp("runs") / "cart"
    for updates in (0, 10):
        rounds = f"train.final_eval_rounds = {min(updates, 1)}"
        with configured(*BINDINGS, rounds, f"train.updates = {updates}"), EmbeddedRun(root) as embedded:
            embedded.run()
            scales = embedded.learner.loss_scales()
    return SimpleNamespace(root=root, scales=scales)


@pytest.fixture(scope="module")
def events(run):
    """Run, as TensorBoard calls it -> tag -> events."""
    return {name: tensors(run.root / name) for name in (".", "train", "eval")}


@pytest.fixture(scope="module")
def table():
    """Every row of the table of tags: (run, tag) -> "always", or in which runs only it is written."""
    rows = re.findall(r"^\| `(\S+)` \| (\S+) \| [^|]+ \|(?: ([^|]+) \|)?$", TABLE.read_text(), re.MULTILINE)
    assert len(rows) == len({(run, tag) for tag, run, _ in rows}) > 30
    return {(run, tag): written or "always" for tag, run, written in rows}


def steps_and_values(events):
    return [event.step for event in events], values(events).tolist()


def string(event):
    return event.tensor_proto.string_val[0]


def with_pattern(tag):
    tag = re.sub(r"^(torso/dead_units)/.*", r"\1/<layer>", tag)
    return re.sub(rf"/({'|'.join(map(re.escape, HEADS))})$", "/<head>", tag)


def test_every_tag_stands_in_the_table_and_the_other_way_round(events, table):
    written = {(run, with_pattern(tag)) for run, tags in events.items() for tag in tags}
    assert written == {row for row, when in table.items() if when == "always"}


def test_what_other_scalings_write_stands_in_the_table_and_the_other_way_round(table):
    shown = set()
    for statement in configuration.list_scalings(REPOSITORY / "configs").values():
        with configured(statement):
            shown |= {f"scaling/{name}/<head>" for name in Settings.from_gin().train.scaling(2).summaries()}
    rest = {"waits/learner", "episode/human_normalised_score"}
    rows = {tag for (_, tag), written in table.items() if written != "always" or tag.startswith("scaling/")}
    assert rows == shown | rest


def test_every_chart_of_the_layout_shows_something_and_all_heads_share_one(events):
    layout = layout_pb2.Layout.FromString(string(events["."]["custom_scalars__config__"][0]))
    scalars = {tag for run in ("train", "eval") for tag in events[run]}
    matches = {
        chart.title: [tag for tag in scalars if re.match(chart.multiline.tag[0], tag)]
        for category in layout.category
        for chart in category.chart
    }
    assert all(matches.values()), matches
    assert sorted(matches["sigma"]) == [f"scaling/sigma/{head}" for head in HEADS]
    assert matches["Return per episode"] == ["episode/return"]
    assert matches["Return per episode over environment steps"] == ["episode/return_vs_environment_steps"]
    assert [category.title for category in layout.category if not category.closed] == [
        "Returns",
        "Loss scales of all heads",
        "What errors are scaled by",
    ]


def test_returns_are_also_over_environment_steps_in_training_and_in_evaluations_of_a_resumed_run(events):
    collected = dict(zip(*steps_and_values(events["train"]["environment_steps"]), strict=True))
    for run in ("train", "eval"):
        updates, returns = steps_and_values(events[run]["episode/return"])
        steps, same = steps_and_values(events[run]["episode/return_vs_environment_steps"])
        assert same == returns and len(steps) > 1 and steps == sorted(steps), run
    # Those of evaluations are at the steps of their updates.
    assert updates == [5, 10] and steps == [collected[5], collected[10]]


def test_configuration_and_hparams_are_there_once_though_the_run_was_resumed(run, events):
    assert {tag: len(found) for tag, found in events["."].items()} == dict.fromkeys(events["."], 1)
    text = string(events["."]["operative_config"][0])
    assert text.startswith(b"```\n") and b"train.env = 'CartPole-v1'" in text
    assert b"ReturnBasedScaling" not in text and b"train.scaling = @scalings.return_based" in text
    accumulator = EventAccumulator(str(run.root))
    accumulator.Reload()
    content = accumulator.SummaryMetadata(hparams_metadata.SESSION_START_INFO_TAG).plugin_data.content
    session = hparams_metadata.parse_session_start_info_plugin_data(content)
    shown = {name: getattr(value, value.WhichOneof("kind")) for name, value in session.hparams.items()}
    expected = {"env": "CartPole-v1", "scaling": "return_based", "heads": 2, "reward_multiplier": 100.0}
    expected |= {"seed": 0, "learning_rate": 1e-3, "batch_size": 4, "n_step": 5, "double_q": False}
    assert expected.items() <= shown.items()
    content = accumulator.SummaryMetadata(hparams_metadata.EXPERIMENT_TAG).plugin_data.content
    experiment = hparams_metadata.parse_experiment_plugin_data(content)
    assert {info.name for info in experiment.hparam_infos} == shown.keys()
    metrics = {(info.name.group, info.name.tag) for info in experiment.metric_infos}
    assert metrics == {("eval", "episode/return"), ("train", "episode/return"), ("eval", "value_error/mean")}
    assert all(tag in events[group] for group, tag in metrics)


def test_half_a_layer_of_dead_units_is_no_note_and_more_is():
    shares = {"torso/dead_units/conv_0": 0.5, "loss": 9.0}
    assert summaries.dead_units_note(shares) is None
    note = summaries.dead_units_note(shares | {"torso/dead_units/conv_1": 0.75})
    assert note.startswith("75% of the units of the torso's layer conv_1 put out 0 in every state")


def test_the_figure_of_an_evaluation_shows_the_latest_updates_errors(run, events):
    figures = events["eval"]["loss_scales"]
    assert [event.step for event in figures] == [5, 10]
    picture = tf.io.decode_png(figures[-1].tensor_proto.string_val[2]).numpy()
    np.testing.assert_array_equal(picture, summaries.loss_scales_figure(HEADS, run.scales))
    assert run.scales.updates == 10
    for kind, drawn in (("unscaled", run.scales.before), ("scaled", run.scales.after)):
        errors = [values(events["train"][f"td_error/{kind}/{head}"]) for head in HEADS]
        np.testing.assert_allclose(drawn, np.sqrt(np.mean(np.square(errors), axis=1)), rtol=1e-6)


def test_without_matplotlib_there_is_no_figure_and_one_line_says_why(run, monkeypatch):
    assert summaries.figures_note() == ""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert summaries.loss_scales_figure(HEADS, run.scales) is None
    assert "pip install matplotlib" in summaries.figures_note()
    monkeypatch.undo()
    without_errors = summaries.LossScales(1, 10, np.zeros(2), np.array([1.0, 0.0]))
    assert summaries.loss_scales_figure(HEADS, without_errors).std() > 0


def test_settings_tell_runs_apart():
    for bindings, expected in (
        (('include "configs/scaling/return_half_life.gin"',), "return_based half_life=100000"),
        (
            ("train.scaling = @scalings.error_based", "scalings.error_based.step = 0.5"),
            "error_based step=0.5",
        ),
        (("kind = @scalings.none", "again = %kind", "train.scaling = %again"), "none"),
        (("rate = 0.5", "RecurrentMultiHeadAgent.learning_rate = %rate"), "return_based"),
    ):
        with configured(*bindings):
            settings = summaries.columns(Settings.from_gin())
        assert settings["scaling"] == expected and settings["heads"] == 2, bindings
        assert settings["learning_rate"] == (0.5 if "rate = 0.5" in bindings else 1e-3), bindings
