"""What the learner does beside its updates."""

import numpy as np

from agents.learner import Learner
from agents.replay import Replay, StatisticsReport
from rbs_tf import ReturnMoments
from rbs_tf.joint_moments import JointMoments
from rbs_tf.scalings import Scaling
from tests.agents.test_agent import PAIRS, SHAPE, make_agent

H = len(PAIRS)


class Remembering(Scaling):
    """Keeps what it is told."""

    def observe(self, moments, *, n_step, joint):
        self.told = moments, n_step, joint


def test_reports_of_every_kind_of_statistics_are_merged_and_handed_on(tmp_path):
    agent = make_agent(scaling=Remembering)
    observation, state = agent.time_step_spec.observation, agent.network.state_spec
    replay = Replay(SHAPE, observation, state, H, capacity=100, min_sequences=1)
    learner = Learner(str(tmp_path), agent, replay, batch_size=1, summary_interval=0)
    rng, rows = np.random.default_rng(0), []
    for steps in (7, 1, 30):
        # Each kind gets samples of its own, so that none may stand for another.
        samples = rng.normal(size=(6, steps, H))
        moments, n_step = ReturnMoments.from_episode(*samples[:2]), ReturnMoments.from_steps(*samples[2:4])
        joint = JointMoments.from_steps(*samples[4:])
        episodes = np.zeros((0, 4))
        replay.put_statistics(
            StatisticsReport(moments.to_array(), n_step.to_array(), joint.to_array(), episodes)
        )
        rows.append(samples)
    learner.drain_statistics()
    moments, n_step, joint = agent.scaling.told
    everything = np.concatenate(rows, axis=1)
    for found, expected in (
        (moments.to_array()[:5], ReturnMoments.from_steps(*everything[:2]).to_array()[:5]),
        (n_step.to_array(), ReturnMoments.from_steps(*everything[2:4]).to_array()),
        (joint.to_array(), JointMoments.from_steps(*everything[4:]).to_array()),
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    agent.scaling.told = None
    learner.drain_statistics()
    assert agent.scaling.told is None, "nothing has arrived since"
    replay.stop()
