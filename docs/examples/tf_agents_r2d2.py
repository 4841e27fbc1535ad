"""The paper's agent in a TF-Agents pipeline of one's own: python docs/examples/tf_agents_r2d2.py --reward-scale=1000

A recurrent DQN of ten heads on an environment class of one's own, whose rewards are of two sizes, with prioritised
replay in Reverb. It runs in a clone with TensorFlow 2.15, for which there is Reverb. docs/tf_agents.md explains it.
"""

import argparse
import tempfile

import gymnasium
import numpy as np
import reverb
import tensorflow as tf
from tf_agents.metrics.py_metrics import AverageReturnMetric
from tf_agents.policies.py_tf_eager_policy import PyTFEagerPolicy
from tf_agents.replay_buffers.reverb_replay_buffer import ReverbReplayBuffer
from tf_agents.replay_buffers.reverb_utils import ReverbAddTrajectoryObserver
from tf_agents.specs import tensor_spec
from tf_agents.train.actor import Actor
from tf_agents.train.learner import Learner
from tf_agents.train.utils import train_utils

from agents import RecurrentMultiHeadAgent, SequenceShape
from networks import RecurrentQNetwork
from rbs_tf import environments

STEPS_PER_RUN, WARM_UP = 40, 50  # environment steps; sequences


class Corridor(gymnasium.Env):
    """Eight steps, each of which pays 1 for walking; then one of two doors, which the first step showed, pays 100."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (3,))
    action_space = gymnasium.spaces.Discrete(3)  # to walk, and to open one of two doors

    def __init__(self, reward_scale: float = 1.0):
        self._reward_scale = reward_scale

    def _observation(self) -> np.ndarray:
        sign = np.eye(2)[self._door - 1] if self._at == 0 else np.zeros(2)
        return np.array([self._at / 8, *sign], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._at, self._door = 0, int(self.np_random.integers(1, 3))
        return self._observation(), {}

    def step(self, action):
        reward = 1.0 if action == 0 else 0.0
        if self._at == 8:
            reward = 100.0 if action == self._door else 0.0
        self._at += 1
        return self._observation(), self._reward_scale * reward, self._at > 8, False, {}


def train(
    reward_scale: float = 1.0, scaling: str = "units", seed: int = 0, steps: int = 10_000, every: int = 0
) -> list[float]:
    """Trains on `Corridor`, where 108 is the best; returns mean returns of the last 20 episodes, every `every` steps.

    With the scaling "sigma" errors are divided, head by head; with "units" outputs are in units of the return, too.
    """
    tf.keras.utils.set_random_seed(seed)
    gymnasium.register("Corridor-v0", Corridor)
    env = environments.make("Corridor-v0", seed=seed, env_kwargs={"reward_scale": reward_scale})
    spec, action_spec = map(tensor_spec.from_spec, (env.time_step_spec(), env.action_spec()))
    seen = (spec.observation, tf.TensorSpec((), tf.int32), spec.reward)  # the previous action and reward, too
    sizes = {"lstm_units": 32, "post_lstm_units": 32, "head_hidden": 32}
    train_step = train_utils.create_train_step()
    agent = RecurrentMultiHeadAgent(
        spec,
        action_spec,
        RecurrentQNetwork(seen, num_actions=env.num_actions, num_heads=10, **sizes),
        tf.keras.optimizers.Adam(1e-3),
        # --- return-based scaling ---
        scaling={"off": None, "sigma": "return", "units": "return_out"}[scaling],
        # ---
        shape=SequenceShape(burn_in=0, length=10, period=10, n_step=3),
        seed=seed,
        train_step_counter=train_step,
    )
    rows = agent.train_sequence_length
    table = reverb.Table(
        "sequences",
        sampler=reverb.selectors.Prioritized(0.9),
        remover=reverb.selectors.Fifo(),
        max_size=10_000,
        rate_limiter=reverb.rate_limiters.MinSize(WARM_UP),
        signature=tensor_spec.add_outer_dim(agent.collect_data_spec, rows),
    )
    server = reverb.Server([table])
    replay = ReverbReplayBuffer(agent.collect_data_spec, "sequences", rows, local_server=server)
    ends = {"pad_end_of_episodes": True, "tile_end_of_episodes": True}  # or short episodes would be left out
    writer = ReverbAddTrajectoryObserver(replay.py_client, "sequences", rows, stride_length=10, **ends)
    priorities = reverb.TFClient(f"localhost:{server.port}")

    def write(trajectory):  # Reverb's observer takes single steps, without the axis of environments
        writer(tf.nest.map_structure(lambda column: np.asarray(column)[0], trajectory))

    def weighted(experience, info):
        chances = tf.cast(info.probability[:, 0], tf.float32)
        return {"experience": experience, "weights": (chances / tf.reduce_min(chances)) ** -0.6}, info

    def hand_back_priorities(experience, loss_info):
        new = tf.cast(loss_info.extra.priorities, tf.float64)
        priorities.update_priorities("sequences", experience[1].key[:, 0], new)

    policy = PyTFEagerPolicy(agent.collect_policy, use_tf_function=True, batch_time_steps=False)
    returns = AverageReturnMetric(buffer_size=20)
    observers = [write, returns, *agent.observers]
    actor = Actor(env, policy, train_step, steps_per_run=STEPS_PER_RUN, observers=observers)
    learner = Learner(
        tempfile.mkdtemp(),
        train_step,
        agent,
        experience_dataset_fn=lambda: replay.as_dataset(sample_batch_size=16, num_steps=rows).map(weighted),
        after_train_strategy_step_fn=hand_back_priorities,
        use_kwargs_in_agent_train=True,
        run_optimizer_variable_init=False,
    )
    found = []
    for step in range(STEPS_PER_RUN, steps + 1, STEPS_PER_RUN):
        actor.run()
        writer.flush()
        if table.info.current_size >= WARM_UP:
            learner.run(iterations=10)
        if every and step % every == 0:
            found.append(float(returns.result()) / reward_scale)
            print(f"step {step:,}  return of the last 20 episodes {found[-1]:.4g}", flush=True)
    server.stop()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reward-scale", type=float, default=1.0, help="rewards are multiplied by it")
    parser.add_argument("--scaling", choices=("off", "sigma", "units"), default="units")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    train(options.reward_scale, options.scaling, options.seed, options.steps, every=600)


if __name__ == "__main__":
    main()
