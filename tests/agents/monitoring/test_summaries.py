"""What TensorBoard finds in a real run's folder, and that its page shows it."""

import contextlib
import html
import http.server
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata

from agents.commands import configuration
from agents.heads import Heads
from agents.monitoring import summaries
from agents.running.embedded import EmbeddedRun
from agents.workers.settings import Training
from tests import browser
from tests.agents.running.test_embedded import REPOSITORY, configured

TABLE = REPOSITORY / "docs/tensorboard.md"
HEADS = ("clipped_0.9", "unclipped_1")
BINDINGS = (
    "Heads.pairs = ((0.9, True), (1.0, False))",
    "Heads.reward_multiplier = 100.0",
    "train.env = 'CartPole-v1'",
    "train.eval_interval = 10",
    "train.final_eval_rounds = 1",
    "train.summary_interval = 1",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 10 updates that was resumed for 10 more: its folder, and the loss scales that were drawn last."""
    root = tmp_path_factory.mktemp("runs") / "cart"
    for updates in (10, 20):
        with configured(*BINDINGS, f"train.updates = {updates}"), EmbeddedRun(root) as embedded:
            embedded.run()
            scales = embedded.learner.loss_scales()
    return SimpleNamespace(root=root, scales=scales)


@pytest.fixture(scope="module")
def events(run):
    """Run, as TensorBoard calls it -> tag -> events."""
    found = {}
    for name in (".", "train", "eval"):
        accumulator = EventAccumulator(str(run.root / name), size_guidance={"tensors": 0})
        accumulator.Reload()
        found[name] = {tag: accumulator.Tensors(tag) for tag in accumulator.Tags()["tensors"]}
    return found


@pytest.fixture(scope="module")
def table():
    """Every row of the table of tags: (run, tag) -> in which runs it is written."""
    rows = re.findall(r"^\| `(\S+)` \| (\S+) \|.*\| ([^|]+) \|$", TABLE.read_text(), re.MULTILINE)
    assert len(rows) == len({(run, tag) for tag, run, _ in rows}) > 30
    return {(run, tag): written for tag, run, written in rows}


def values(events):
    return np.array([tf.make_ndarray(event.tensor_proto) for event in events])


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
    for statement in configuration.scalings(REPOSITORY / "configs").values():
        with configured(statement):
            shown |= {f"scaling/{name}/<head>" for name in Training().scaling(2).summaries()}
    rest = {"waits/learner", "waits/collectors", "episode/human_normalised_score", "scaling/log10_sigma"}
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
    assert [category.title for category in layout.category if not category.closed] == [
        "Returns",
        "Loss scales of all heads",
        "What errors are scaled by",
    ]


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


def test_histograms_hold_the_logarithms_of_all_heads(events):
    for tag, histogram in (
        ("scaling/sigma", "scaling/log10_sigma"),
        ("td_error/unscaled", "td_error/log10_unscaled"),
        ("td_error/scaled", "td_error/log10_scaled"),
    ):
        logarithms = np.log10([values(events["train"][f"{tag}/{head}"]) for head in HEADS])
        buckets = values(events["train"][histogram])
        np.testing.assert_array_equal(buckets[..., 2].sum(axis=1), len(HEADS))
        np.testing.assert_allclose(buckets[:, 0, 0], logarithms.min(axis=0), atol=1e-5)
        np.testing.assert_allclose(buckets[:, -1, 1], logarithms.max(axis=0), atol=1e-5)


def test_a_scale_of_nothing_has_a_place_in_the_histogram():
    per_head = {"scaling/sigma": np.array([0.0, 10.0])}
    summary = tf.compat.v1.Summary.FromString(summaries.update_summary(HEADS, per_head, {}))
    (histogram,) = (value for value in summary.value if value.tag == "scaling/log10_sigma")
    assert tf.make_ndarray(histogram.tensor)[[0, -1], [0, 1]].tolist() == [-12.0, 1.0]


def test_the_figure_of_an_evaluation_shows_the_latest_updates_errors(run, events):
    figures = events["eval"]["loss_scales"]
    assert [event.step for event in figures] == [10, 10, 20, 20]
    picture = tf.io.decode_png(figures[-1].tensor_proto.string_val[2]).numpy()
    np.testing.assert_array_equal(picture, summaries.loss_scales_figure(HEADS, run.scales))
    assert run.scales.updates == 20
    for kind, drawn in (("unscaled", run.scales.before), ("scaled", run.scales.after)):
        # Those of this start alone: there is nothing of the first one in a checkpoint.
        errors = [values(events["train"][f"td_error/{kind}/{head}"])[10:] for head in HEADS]
        np.testing.assert_allclose(drawn, np.sqrt(np.mean(np.square(errors), axis=1)), rtol=1e-6)


def test_what_is_red_in_the_figure_is_before_scaling_and_what_is_green_after_it():
    scales = summaries.LossScales(1, before=np.array([1.0, 1.0]), after=np.array([100.0, 100.0]))
    red, green, blue = np.moveaxis(summaries.loss_scales_figure(HEADS, scales).astype(int), 2, 0)
    height = {
        "before": np.median(np.nonzero((red > 200) & (green < 60) & (blue < 60))[0]),
        "after": np.median(np.nonzero((green > 140) & (red < 60) & (blue < 60))[0]),
    }
    assert height["after"] < height["before"], "rows count from the top"


def test_a_head_without_errors_does_not_spoil_the_figure():
    scales = summaries.LossScales(1, np.zeros(2), np.array([1.0, 0.0]))
    picture = summaries.loss_scales_figure(HEADS, scales)
    assert picture.shape[2] == 3 and picture.std() > 0


def test_without_matplotlib_there_is_no_figure_and_one_line_says_why(run, monkeypatch):
    assert summaries.figures_note() == ""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert summaries.loss_scales_figure(HEADS, run.scales) is None
    assert 'pip install "rbs-tf[plots]"' in summaries.figures_note()


def test_settings_tell_runs_apart():
    for bindings, expected in (
        (('include "configs/scaling/return_half_life.gin"',), "return_based half_life=100000"),
        (("train.scaling = @scalings.none",), "none"),
        (
            ("train.scaling = @scalings.error_based", "scalings.error_based.window = 9"),
            "error_based window=9",
        ),
        (("rate = 0.5", "RecurrentMultiHeadAgent.learning_rate = %rate"), "return_based"),
    ):
        with configured(*bindings):
            settings = summaries.settings(Heads(((0.5, True),)))
        assert settings["scaling"] == expected and settings["heads"] == 1, bindings
        assert settings["learning_rate"] == (0.5 if "rate = 0.5" in bindings else 1e-3), bindings


# Elements keep what they show in shadow roots, which no dump of a document holds.
FRAME = b"""<iframe width="1400" height="3000"></iframe><pre></pre>
<script>
function words(node) {
  if (["STYLE", "SCRIPT"].includes(node.nodeName)) return [];
  if (node.nodeType === Node.TEXT_NODE) return [node.data.trim()];
  return [...(node.shadowRoot ? [node.shadowRoot] : []), ...node.childNodes].flatMap(words);
}
const frame = document.querySelector("iframe");
frame.src = "/" + location.hash;
setInterval(() => {
  document.querySelector("pre").textContent = words(frame.contentDocument.body).filter(Boolean).join("\\n");
}, 500);
</script>"""


@contextlib.contextmanager
def tensorboard(logdir):
    """A real one, behind a server that adds the page /frame to it, which writes out its words; the address."""
    command = (
        sys.executable,
        "-m",
        "tensorboard.main",
        f"--logdir={logdir}",
        "--port=0",
        "--load_fast=false",
    )
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            address = next(
                filter(None, (re.search(r"http://localhost:\d+", line) for line in process.stderr))
            )[0]

            class Handler(http.server.BaseHTTPRequestHandler):
                def do_GET(self):
                    status, kind, body = 200, "text/html", FRAME
                    if self.path != "/frame":
                        try:
                            with urllib.request.urlopen(address + self.path) as answer:
                                kind, body = answer.headers["Content-Type"], answer.read()
                        except urllib.error.HTTPError as error:
                            status, body = error.code, error.read()
                    self.send_response(status)
                    self.send_header("Content-Type", kind)
                    self.end_headers()
                    self.wfile.write(body)

                def log_message(self, *_):
                    pass

            with http.server.ThreadingHTTPServer(("localhost", 0), Handler) as server:
                threading.Thread(target=server.serve_forever, daemon=True).start()
                yield f"http://localhost:{server.server_port}"
                server.shutdown()
        finally:
            process.kill()


def words_of(document):
    return html.unescape(re.search(r"<pre>(.*)</pre>", document, re.DOTALL)[1]).splitlines()


@pytest.mark.slow
def test_tensorboard_opens_on_charts_that_hold_all_heads(run):
    with tensorboard(run.root) as address:
        words = words_of(browser.dom(f"{address}/frame#custom_scalars"))
    assert {"Returns", "Return per episode", "RMS TD error before scaling", "sigma"} <= set(words)
    assert {f"td_error/scaled/{head} (train)" for head in HEADS} <= set(words)
