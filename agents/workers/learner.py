"""Runs the agent's updates: statistics, then sample, update, hand back priorities."""

from __future__ import annotations

import collections
import contextlib
import functools
import math
import pathlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from agents.agent import RecurrentMultiHeadAgent
from agents.errors import writing
from agents.monitoring import summaries, tags
from agents.monitoring.diagnostics import LossExtra, torso_activity
from agents.replay.replay import Replay, StatisticsReport
from agents.sequences import Sequence, select_rows
from agents.storage.checkpoint import Checkpointer, Counters
from agents.storage.episodes import NAME, Episodes
from agents.storage.statistics_log import StatisticsLog
from agents.targets import transitions
from rbs_tf import ReturnMoments

_LATEST = 100  # updates that loss scales are taken over
_FRAMES = 1024  # that the torso is set from


class Learner:
    """One update at a time, each after every statistic that has arrived; owns the counters of the run.

    The newest checkpoint is restored on construction, and with it every statistic that the log has from after it.

    Args:
      root_dir: TensorBoard files go into its `train` folder, drained statistics into `statistics`.
      agent: updated in place, on all replicas of its strategy.
      replay: source of sequences and statistics.
      batch_size: sequences per update, of all replicas together.
      summary_interval: in updates; 0 writes none.
      checkpointer: of the agent and the replay; None: nothing is restored, and `save` must not be called.

    Attributes:
      resumed: whether there was a checkpoint.
      environment_steps: transitions that statistics have told of, all collectors and earlier starts together.
      episodes: finished episodes, likewise.
      summary_writer: writes into the `train` folder.
      note: something to tell the user once; None until there is.
    """

    def __init__(
        self,
        root_dir: str,
        agent: RecurrentMultiHeadAgent,
        replay: Replay,
        batch_size: int,
        summary_interval: int,
        checkpointer: Checkpointer | None = None,
    ):
        replicas = agent.strategy.num_replicas_in_sync
        self._agent = agent
        self._replay = replay
        self._checkpointer = checkpointer
        self._summary_interval = summary_interval
        self._events = pathlib.Path(root_dir, tags.TRAIN)
        self.batch_size = batch_size

        # A GPU puts compressed observations together itself, so that fewer bytes are copied to it.
        packed = bool(tf.config.list_physical_devices("GPU"))
        # With any other options TensorFlow draws ahead, and draws would miss the newest priorities.
        options = tf.distribute.InputOptions(
            experimental_fetch_to_device=False,
            experimental_replication_mode=tf.distribute.InputReplicationMode.PER_REPLICA,
        )
        with agent.strategy.scope():
            dataset = agent.strategy.distribute_datasets_from_function(
                lambda _: replay.dataset(batch_size // replicas, packed=packed), options
            )
            self._batches = iter(dataset)
        self.summary_writer = tf.summary.create_noop_writer()
        if summary_interval:
            self.summary_writer = tf.summary.create_file_writer(str(self._events), flush_millis=10_000)
        self._look_at_torso = tf.function(torso_activity, autograph=False)

        def train(sequence: Any) -> tuple[tf.Tensor, Any]:
            info = agent.strategy.run(agent.train, (sequence,))
            return agent.strategy.reduce(tf.distribute.ReduceOp.SUM, info.loss, axis=None), info

        # Pieces of packed observations differ in number: one trace serves them all.
        self._train = tf.function(train, autograph=False, reduce_retracing=True)
        restored = checkpointer.restore() if checkpointer else None

        def compile_ahead() -> None:
            with contextlib.suppress(Exception):  # the update raises it, too
                agent.compile_ahead(batch_size)

        # Compiling takes seconds, which pass while the replay fills.
        self._compiling = threading.Thread(target=compile_ahead)
        self._compiling.start()
        self.resumed = restored is not None
        _, counters = restored or (0, Counters())
        self.environment_steps = counters.environment_steps
        self.episodes = counters.episodes
        columns = ("environment_steps", "head", "epsilon", "return", "steps", "rewards")
        self._episodes = Episodes(self._events / NAME, columns, most=self.environment_steps)
        # The checkpoint lacks the reports that were drained after it: the log has them.
        self._log = StatisticsLog(root_dir, counters.statistics_log)
        self._take_in(self._log.reports())
        self.note: str | None = None
        self._mark = time.monotonic(), self.updates, self.environment_steps
        # RMS TD errors [H] of the latest updates, before and after scaling: tensors, as reading them would wait for the
        # update.
        self._errors: collections.deque[list[tf.Tensor]] = collections.deque(maxlen=_LATEST)

    @property
    def updates(self) -> int:
        """Updates so far, those of earlier starts included."""
        return int(self._agent.train_step_counter.numpy())

    def drain_statistics(self) -> list[float]:
        """Takes all that waits in the statistics queue into scaling and bandit; returns finished episodes' raw returns.

        Each report is on disk before it is used and leaves the queue after that: it counts at most once,
        wherever this process is killed.
        """
        reports = []
        for key, report in self._replay.statistics():
            if key not in self._log.keys:
                self._log.append(key, report)
                reports.append(report)
        return self._take_in(reports)

    def update(self) -> tf.Tensor:
        """One update; returns its loss (float32 scalar). To be called after `drain_statistics`.

        Raises:
          FloatingPointError: the loss is NaN or infinite, and so are the weights now.
          RunFolderError: the disk does not take what TensorBoard is to show.
        """
        self._compiling.join()
        if self.updates == 0 and self._agent.network.torso_is_centred:
            self._centre_torso()
        strategy = self._agent.strategy
        sequence, draw = next(self._batches)
        loss, info = self._train(sequence)
        keys = strategy.experimental_local_results(draw.key)
        priorities = strategy.experimental_local_results(info.extra.priorities)
        for key, new in zip(keys, priorities, strict=True):
            # No draw could use a NaN, whose cause is named below, by the loss.
            self._replay.update_priorities(key, tf.where(tf.math.is_finite(new), new, 0.0))
        self._errors.append(
            [self._read_mean(info.extra.per_head[tag]) for tag in (tags.UNSCALED, tags.SCALED)]
        )
        due = self._summary_interval and self.updates % self._summary_interval == 0
        if due:  # before the loss is checked, so that TensorBoard shows what led to a NaN
            self._summarise_update(info.extra, strategy.experimental_local_results(sequence)[0])
        if not np.isfinite(loss):
            raise FloatingPointError(
                f"The loss of update {self.updates} is {float(loss)}. The last checkpoint is from before; a smaller "
                "RecurrentMultiHeadAgent.learning_rate may help, in a new folder"
            )
        if due:
            self._summarise_rates()
        return loss

    def _centre_torso(self) -> None:
        """Sets the torsos' layers by rows of the replay, see `RecurrentQNetwork.set_torso_from`."""
        agent = self._agent
        seen = []
        draws = iter(self._replay.dataset(self.batch_size))
        for _ in range(math.ceil(_FRAMES / (self.batch_size * agent.shape.rows))):
            steps = agent.sequences(next(draws)[0]).steps
            # Of the rows after the burn-in those that begin a transition; the others are padding.
            begins = tf.transpose(transitions(steps, agent.heads, agent.shape).mask)
            rows = select_rows(steps.observation, agent.shape.burn_in, agent.shape.rows - 1)
            seen.append(tf.nest.map_structure(functools.partial(tf.boolean_mask, mask=begins), rows))
        agent.network.set_torso_from(tf.nest.map_structure(lambda *parts: tf.concat(parts, axis=0), *seen))
        agent.replace_target()

    def _read_mean(self, mean: Any) -> tf.Tensor:
        """Reads a mean over the whole batch, which is the same on all replicas."""
        return self._agent.strategy.experimental_local_results(mean)[0]

    def loss_scales(self) -> summaries.LossScales:
        """Loss scales of the latest updates of this start."""
        scales = summaries.LossScales(self.updates, self.environment_steps)
        if not self._errors:
            return scales
        errors = np.array([[error.numpy() for error in pair] for pair in self._errors], np.float64)
        before, after = np.sqrt(np.mean(np.square(errors), axis=0))
        return scales._replace(before=before, after=after)

    def save(self) -> None:
        """Writes a checkpoint; what waits in the statistics queue stays there."""
        assert self._checkpointer is not None, "a learner without a checkpointer has nowhere to save"
        with self._events_written():
            self.summary_writer.flush()
        counters = Counters(self.environment_steps, self.episodes, self._log.begin_file(self.updates))
        self._checkpointer.save(self.updates, counters)
        self._log.forget_saved(self._checkpointer.oldest)

    @contextlib.contextmanager
    def _events_written(self) -> Iterator[None]:
        """Summaries go into the `train` folder, at the current update."""
        with writing(self._events, tf.errors.OpError), self.summary_writer.as_default(step=self.updates):
            yield

    def _take_in(self, reports: list[StatisticsReport]) -> list[float]:
        if not reports:
            return []
        moments = [ReturnMoments.from_array(report["moments"]) for report in reports]
        merged = functools.reduce(ReturnMoments.merge, moments)
        self._agent.observe(merged)
        self.environment_steps += int(merged.count[0])
        episodes = np.concatenate([report["episodes"] for report in reports])
        self.episodes += len(episodes)
        if not len(episodes):
            return []
        returns, lengths, heads, epsilons, rewards = episodes.T  # the fields of `Episode`
        # Episodes choose the next heads, and are written into the table and TensorBoard.
        self._agent.update_bandit(heads.astype(int), returns)
        names = [self._agent.heads.names[int(head)] for head in heads]
        played = zip(
            names, epsilons.tolist(), returns.tolist(), lengths.astype(int), rewards.astype(int), strict=True
        )
        self._episodes.append((self.environment_steps, *episode) for episode in played)
        if self._summary_interval:
            with self._events_written():
                tf.summary.scalar(tags.RETURN, np.mean(returns))
                tf.summary.scalar(
                    f"{tags.RETURN}{tags.OVER_STEPS}", np.mean(returns), step=self.environment_steps
                )
                tf.summary.scalar("episode/length", np.mean(lengths))
                tf.summary.scalar("episode/epsilon", np.mean(epsilons))
                tf.summary.histogram("episode/head", heads)
        return returns.tolist()

    def _summarise_update(self, means: LossExtra, sequence: Sequence) -> None:
        agent = self._agent
        per_head = {tag: self._read_mean(mean).numpy() for tag, mean in means.per_head.items()}
        scalars = {tag: self._read_mean(mean).numpy() for tag, mean in means.scalars.items()}
        if agent.network.has_torso:
            observation = agent.sequences(sequence).steps.observation
            torso = self._look_at_torso(agent.network, observation, agent.shape)
            scalars |= {tag: value.numpy() for tag, value in torso.items()}
        state = {f"scaling/{name}": value for name, value in agent.scaling.summaries().items()}
        state[tags.PROBABILITY] = agent.collect_policy.head_probabilities
        per_head |= {tag: value.numpy() for tag, value in state.items()}
        if self.note is None:
            self.note = summaries.dead_units_note(scalars)
        summary = summaries.update_summary(self._agent.heads.names, per_head, scalars)
        with self._events_written():
            tf.summary.experimental.write_raw_pb(summary)

    def _summarise_rates(self) -> None:
        then, updates, steps = self._mark
        now = time.monotonic()
        self._mark = (now, self.updates, self.environment_steps)
        # The first `min_sequences` earn no samples; with them the ratio would be too low for a long time.
        earning = max(self._replay.inserted - self._replay.min_sequences, 1)
        with self._events_written():
            tf.summary.scalar(tags.STEPS, self.environment_steps)
            tf.summary.scalar("replay/sequences", self._replay.size)
            tf.summary.scalar(tags.RATIO, self._replay.sampled / earning)
            tf.summary.scalar(tags.STEP_RATE, (self.environment_steps - steps) / (now - then))
            tf.summary.scalar(tags.UPDATE_RATE, (self.updates - updates) / (now - then))
