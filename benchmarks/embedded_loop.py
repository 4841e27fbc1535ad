"""The whole embedded loop against TF-Agents' stock recurrent DQN loop: environment steps per CPU second, all included.

    .venv/bin/python -m benchmarks.embedded_loop

MinAtar's Space Invaders, a network twice the quickstart's (ours with ten heads), one core, no evaluation, summaries or
checkpoints. The rival is built as tf_agents/examples/dqn/dqn_train_eval_rnn.py builds it: one environment, `PyDriver`,
a policy in a `tf.function`, `ReverbAddTrajectoryObserver`, a uniform table, `Learner`. Equal are the sizes of network,
windows and batch, the stride of the windows (the example writes one at every step, which costs more), and the updates
per environment step: ours come from `Replay.updates_due`, and the rival makes as many. Two ratios, for an update costs
both sides about the same: one where updates are most of the cost, and the paper's, which trains a window about once.
"""

from __future__ import annotations

from benchmarks.side_by_side import ROUNDS, Row, one_core, publish, row, times

one_core()

from agents.running.startup import quiet  # noqa: E402

quiet()

import collections  # noqa: E402
import math  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from contextlib import ExitStack  # noqa: E402

import gin  # noqa: E402
import minatar  # noqa: E402
import numpy as np  # noqa: E402
import reverb  # noqa: E402
from tf_agents.drivers import py_driver  # noqa: E402
from tf_agents.environments import py_environment  # noqa: E402
from tf_agents.policies import py_tf_eager_policy  # noqa: E402
from tf_agents.replay_buffers import reverb_replay_buffer, reverb_utils  # noqa: E402
from tf_agents.specs import array_spec  # noqa: E402
from tf_agents.train import learner as tf_agents_learner  # noqa: E402
from tf_agents.trajectories import time_step as ts  # noqa: E402

from agents.storage.run_folder import REPOSITORY  # noqa: E402
from agents.targets import SequenceShape  # noqa: E402
from agents.workers.collector import Collector  # noqa: E402
from agents.workers.learner import Learner  # noqa: E402
from agents.workers.parts import Training  # noqa: E402
from benchmarks import workloads  # noqa: E402

Clock = collections.Counter  # name of a part -> what it has taken in CPU seconds, or how often it has run
PARTS = ("environment", "acting", "writing", "update")
NETWORK = """
RecurrentQNetwork.lstm_units = 128
RecurrentQNetwork.head_hidden = 64
"""  # workloads.SMALL
# One update for 5 steps of 16 environments.
HIGH_RATIO = """
Replay.replay_ratio = 32.0
train.batch_size = 16
"""
# One update for about 640 steps of 32 environments: the paper's ratio, on windows of a size that suits the game.
PAPERS_RATIO = """
SequenceShape.length = 40
SequenceShape.period = 20
Replay.min_sequences = 64
Replay.replay_ratio = 1.0
train.num_envs = 32
train.batch_size = 32
train.steps_per_round = 20
"""


def clocked(clock: Clock, name: str, call: Callable) -> Callable:
    """`call`, which adds its CPU time to `clock[name]` and itself to `clock[name + "s"]`."""

    def timed(*args, **options):
        start = time.process_time()
        result = call(*args, **options)
        clock[name] += time.process_time() - start
        clock[name + "s"] += 1
        return result

    return timed


def folder(closing: ExitStack) -> str:
    """An empty one."""
    return closing.enter_context(tempfile.TemporaryDirectory())


def ours(training: Training, closing: ExitStack, clock: Clock) -> Callable[[], None]:
    """A round of `agents.running.embedded` per call: some steps of all environments, then the updates that are due."""
    environment = training.environment(training.num_envs, 0)
    agent, replay = training.agent(environment), training.replay(environment)
    closing.callback(replay.stop)
    learner = Learner(folder(closing), agent, replay, training.batch_size, 0)
    collector = Collector(
        environment, agent.collect_policy, agent.heads, replay, SequenceShape(), agent.initial_priorities
    )
    collector._act = clocked(clock, "acting", collector._act)
    environment.step = clocked(clock, "environment", environment.step)
    update = clocked(clock, "update", learner.update)

    def run() -> None:
        steps = collector.environment_steps
        collector.run(training.steps_per_round)
        learner.drain_statistics()
        while replay.updates_due(learner.updates, training.batch_size):
            update()
        clock["steps"] += collector.environment_steps - steps

    return run


class _MinAtar(py_environment.PyEnvironment):
    """One MinAtar game as TF-Agents has environments, with nothing between."""

    def __init__(self, name: str, seed: int):
        super().__init__(handle_auto_reset=True)
        self._game = minatar.Environment(name)
        self._game.seed(seed)

    def observation_spec(self) -> array_spec.BoundedArraySpec:
        return array_spec.BoundedArraySpec(self._game.state_shape(), np.uint8, 0, 1)

    def action_spec(self) -> array_spec.BoundedArraySpec:
        return array_spec.BoundedArraySpec((), np.int32, 0, self._game.num_actions() - 1)

    def _reset(self) -> ts.TimeStep:
        self._game.reset()
        return ts.restart(self._observation())

    def _step(self, action: np.ndarray) -> ts.TimeStep:
        reward, ended = self._game.act(int(action))
        return (ts.termination if ended else ts.transition)(self._observation(), reward)

    def _observation(self) -> np.ndarray:
        return self._game.state().view(np.uint8)


def stock(
    training: Training, closing: ExitStack, clock: Clock, steps_per_update: Callable[[], float]
) -> Callable[[int], None]:
    """The stock loop, past its first 1000 steps: makes so many more per call, and the updates among them."""
    shape = SequenceShape()
    environment = _MinAtar(training.env.removeprefix("minatar/"), training.seed)
    agent = workloads.stock_agent(workloads.SMALL)
    table = reverb.Table(
        "uniform",
        sampler=reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=10_000,
        rate_limiter=reverb.rate_limiters.MinSize(1),
    )
    server = reverb.Server([table])
    closing.callback(server.stop)
    replay = reverb_replay_buffer.ReverbReplayBuffer(
        agent.collect_data_spec, table.name, shape.rows, local_server=server
    )
    observer = reverb_utils.ReverbAddTrajectoryObserver(
        replay.py_client, table.name, shape.rows, stride_length=shape.period, pad_end_of_episodes=True
    )
    learner = tf_agents_learner.Learner(
        folder(closing),
        agent.train_step_counter,
        agent,
        lambda: replay.as_dataset(sample_batch_size=training.batch_size, num_steps=shape.rows),
        summary_interval=0,
        checkpoint_interval=2**62,
    )
    policy = py_tf_eager_policy.PyTFEagerPolicy(agent.collect_policy, use_tf_function=True)
    policy.action = clocked(clock, "acting", policy.action)
    environment.step = clocked(clock, "environment", environment.step)
    update = clocked(clock, "update", learner.run)
    write = clocked(clock, "writing", observer)
    state = environment.reset(), policy.get_initial_state(1)

    def collect(steps: int) -> None:
        nonlocal state
        state = py_driver.PyDriver(environment, policy, [write], max_steps=steps).run(*state)
        clock["steps"] += steps

    def run(steps: int) -> None:
        end = clock["steps"] + steps
        while clock["steps"] < end:
            due = math.ceil((clock["updates"] + 1) * steps_per_update())
            if (wanted := min(end, due) - clock["steps"]) > 0:
                collect(wanted)
            if clock["steps"] >= due:
                update()

    collect(1000)
    clock.clear()
    return run


def breakdown(clock: Clock) -> str:
    """CPU milliseconds per step of the parts that were clocked."""
    return ", ".join(f"{part} {1e3 * clock[part] / clock['steps']:.3g}" for part in PARTS if clock[part])


def measure(name: str, bindings: str, rounds_per_call: int, reach: str) -> Row:
    """Both loops under the quickstart's configuration with such changes."""
    gin.clear_config()
    bindings = NETWORK + bindings
    gin.parse_config_files_and_bindings([str(REPOSITORY / "configs/quickstart.gin")], bindings)
    training, our_clock, stock_clock = Training(), Clock(), Clock()
    steps = rounds_per_call * training.num_envs * training.steps_per_round
    with ExitStack() as closing:
        our_round = ours(training, closing, our_clock)
        while our_clock["updates"] < 3:
            our_round()
        rival = stock(training, closing, stock_clock, lambda: our_clock["steps"] / our_clock["updates"])
        rival(math.ceil(3 * our_clock["steps"] / our_clock["updates"]))
        our_clock.clear(), stock_clock.clear()
        our_times, stock_times = times(
            lambda: [our_round() for _ in range(rounds_per_call)], lambda: rival(steps), warm_up=0
        )
    updates = [1e3 * clock["updates"] / clock["steps"] for clock in (our_clock, stock_clock)]
    wanted = stock_clock["steps"] * updates[0] / 1e3
    if abs(stock_clock["updates"] - wanted) > max(1.0, 0.02 * wanted):
        raise RuntimeError(f"{name}: not the same work: {updates} updates per 1000 steps")
    return row(
        f"embedded loop, {name}, ten heads",
        "TF-Agents' stock DQN-RNN loop, one head",
        our_times,
        stock_times,
        unit="environment steps per cpu-s",
        work=(our_clock["steps"] / ROUNDS, steps),
        reach=reach,
        note=f"{updates[0]:.3g} and {updates[1]:.3g} updates per 1000 steps; cpu-ms per step: "
        f"ours {breakdown(our_clock)}; stock {breakdown(stock_clock)}.",
    )


def main() -> None:
    publish(measure("a replay ratio of 32", HIGH_RATIO, 1, ""))
    publish(measure("paper's replay ratio", PAPERS_RATIO, 2, "at least 5"))


if __name__ == "__main__":
    main()
