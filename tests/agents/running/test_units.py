"""Rewards times a power of two: with `return_out` and an input free of the unit, the same run, action by action."""

import functools

import gymnasium
import numpy as np
import pytest

from agents.running.embedded import EmbeddedRun
from rbs_tf.environments.factory import _register_minatar
from tests.agents.quickstart import COMPILED, configured

RMS = "RecurrentQNetwork.reward_input = 'rms'"
UPDATES = 20
BINDINGS = (
    "Heads.pairs = ((0.0, False), (1.0, False))",  # a clipped head would have a unit of its own
    "Heads.reward_multiplier = 1.0",
    "train.scaling = @scalings.return_out",
    "RecurrentMultiHeadAgent.target_update_period = 7",
    f"train.updates = {UPDATES}",
)
EXPONENTS = -10, 10
# Others that take their units from the rewards.
OTHERS = (
    ("train.scaling = @scalings.pop_art", "scalings.pop_art.start_at_first_targets = True"),
    ("scalings.return_out.half_life = 2000.0",),
)


def scaled_game(game, exponent):
    _register_minatar()
    return gymnasium.wrappers.TransformReward(gymnasium.make(game), lambda reward: 2.0**exponent * reward)


def story(root, game, exponent, *bindings):
    """Every action, and after all updates everything in network units; and what is in the unit of the rewards."""
    name = f"test/{game.split('/')[-1].split('-')[0]}{exponent}-v0"
    if name not in gymnasium.registry:
        gymnasium.register(name, functools.partial(scaled_game, game, exponent))
    with configured(*BINDINGS, f"train.env = '{name}'", *bindings), EmbeddedRun(root) as run:
        actions, losses, step, update = [], [], run.environment.step, run.learner.update

        def watched(action):
            actions.append(np.array(action))
            return step(action)

        run.environment.step = watched
        run.learner.update = lambda: losses.append(update().numpy())
        run.run()
        agent, mean_square = run.agent, 0.0
        if agent.network.reward_input is not None:
            mean_square = agent.network.reward_input.statistics.numpy()[1]
            target = agent.target_network.reward_input.statistics.numpy()[1]
            assert mean_square == target > 0.0
        trained = [*agent.network.trainable_variables, *agent.target_network.trainable_variables]
        return {
            "actions": np.array(actions),
            "losses": np.array(losses),
            "weights": np.concatenate([variable.numpy().ravel() for variable in trained]),
            "optimizer": np.concatenate([np.ravel(v.numpy()) for v in agent.optimizer.variables]),
            "priorities": run.replay._priorities,
            "bandit": agent.bandit.ratings,
        }, (mean_square, agent.scaling.online.scale.numpy())


# CartPole pays 1 at every step: nothing of its rewards varies.
@pytest.mark.parametrize(
    ("game", "bindings"),
    [
        ("CartPole-v1", ()),
        pytest.param("MinAtar/SpaceInvaders-v1", (COMPILED,), marks=pytest.mark.slow),
        *(pytest.param("MinAtar/SpaceInvaders-v1", scaling, marks=pytest.mark.slow) for scaling in OTHERS),
    ],
)
def test_the_unit_of_rewards_changes_no_action_and_no_update(tmp_path, game, bindings):
    (small, in_small), (large, in_large) = (
        story(tmp_path / str(exponent), game, exponent, RMS, *bindings) for exponent in EXPONENTS
    )
    (mean_square, scale), (larger_mean_square, larger_scale) = in_small, in_large
    assert len(small["losses"]) == UPDATES and np.ptp(small["actions"]) > 0 and (scale > 0).all()
    for name, expected in small.items():
        np.testing.assert_array_equal(large[name], expected, err_msg=name)
    assert larger_mean_square == 4.0**20 * mean_square
    np.testing.assert_array_equal(larger_scale, 2.0**20 * scale)


def test_clipped_heads_alone_do_not_tell_the_unit(tmp_path):
    refused = pytest.raises(ValueError, match='reward_input = "rms" takes its statistics from a head of')
    with configured(RMS, "Heads.pairs = ((0.9, True),)", "train.updates = 1"), refused:
        EmbeddedRun(tmp_path)
