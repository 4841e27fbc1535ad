"""That the whole agent learns, on a problem of seconds."""

from agents.running.embedded import EmbeddedRun
from tests.agents.quickstart import configured

BOTH = (
    "Heads.reward_multiplier = 1.0",
    "environments.make.max_episode_steps = None",
    "SequenceShape.burn_in = 1",
    "SequenceShape.length = 6",
    "RecurrentMultiHeadAgent.target_update_period = 50",
    "Replay.capacity = 20000",
    "Replay.replay_ratio = 8.0",
    "train.num_envs = 16",
    "train.final_eval_rounds = 1",
    "train.checkpoint_interval = 1000",
)
RECALL = (
    *BOTH,
    "train.env = 'tests.agents.environments:Recall-v0'",
    "RecurrentQNetwork.torso = @networks.MlpTorso",
    "networks.MlpTorso.units = (16,)",
    "SequenceShape.period = 3",
    "Heads.pairs = ((0.9, True), (0.9, False), (1.0, False))",
    "RecurrentMultiHeadAgent.learning_rate = 3e-3",
    "Replay.min_sequences = 100",
    "train.batch_size = 32",
    "train.eval_envs = 64",
)
# Pictures that are nearly the same in every state, and a step size at which plain layers die of them.
SPOT = (
    *BOTH,
    "train.env = 'tests.agents.environments:Spot-v0'",
    "RecurrentQNetwork.torso = @networks.dqn_torso",
    "RecurrentQNetwork.normalise_torso = 'centre'",
    "SequenceShape.period = 6",
    "Heads.pairs = ((0.0, True), (0.9, False))",
    "RecurrentMultiHeadAgent.learning_rate = 1e-3",
    "Replay.min_sequences = 200",
    "train.batch_size = 16",
    "train.eval_envs = 16",
)


def test_a_torso_whose_layers_are_centred_sees_what_little_differs(tmp_path):
    """Of 20. Without the setting it stays at 0, which is chance, and half of the units die."""
    with configured(*SPOT, "train.updates = 80"), EmbeddedRun(tmp_path) as run:
        result = run.run()
        dead, _ = run.agent.network.torso_activity(next(iter(run.replay.dataset(16)))[0].steps.observation)
    assert result.final_return > 15 and dead.numpy().max() < 0.3


def test_a_sign_seen_once_is_remembered_and_acted_on(tmp_path):
    """Chance is 500 per episode; without memory nothing better is possible."""
    with configured(*RECALL, "train.updates = 400"), EmbeddedRun(tmp_path) as run:
        result = run.run()
    assert result.final_return > 900
