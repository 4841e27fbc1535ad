"""Rewards times a power of two: with `return_out` and an input free of the unit, the same run, action by action."""

import functools

import gymnasium
import numpy as np
import pytest

from agents.errors import UsageError
from agents.running.embedded import EmbeddedRun, train
from rbs_tf.environments import ScaleRewards
from rbs_tf.environments.factory import _register_minatar
from tests.agents.running.test_embedded import COMPILED, configured
from tests.agents.running.test_resume import assert_same, go

# A clipped head would have a unit of its own.
UNCLIPPED = "Heads.pairs = ((0.0, False), (0.9, False), (1.0, False))"
RMS = "RecurrentQNetwork.reward_input = 'rms'"
BINDINGS = (
    UNCLIPPED,
    "Heads.reward_multiplier = 1.0",
    "train.scaling = @scalings.return_out",
    "RecurrentMultiHeadAgent.target_update_period = 10",
    "train.updates = 40",
    COMPILED,
)


def scaled_game(game, exponent, **options):
    _register_minatar()
    return ScaleRewards(gymnasium.make(game, **options), 2.0**exponent)


def scaled(game, exponent):
    """The name of a game whose rewards are those of another times 2^exponent."""
    name = f"test/{game.split('/')[-1].split('-')[0]}{exponent}-v0"
    if name not in gymnasium.registry:
        gymnasium.register(name, functools.partial(scaled_game, game, exponent))
    return name


def story(root, *bindings):
    """Every action, and after all updates everything in network units."""
    with configured(*BINDINGS, *bindings), EmbeddedRun(root) as run:
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
    "game", [pytest.param("MinAtar/SpaceInvaders-v1", marks=pytest.mark.slow), "CartPole-v1"]
)
def test_the_unit_of_rewards_changes_no_action_and_no_update(tmp_path, game):
    runs = {}
    for exponent in (-10, 0, 10):
        name = f"train.env = '{scaled(game, exponent)}'"
        runs[exponent] = story(tmp_path / str(exponent), RMS, name)
    of_one, (mean_square, scale) = runs[0]
    assert len(of_one["losses"]) == 40 and np.ptp(of_one["actions"]) > 0 and (scale > 0).all()
    for exponent in (-10, 10):
        found, (other_mean_square, other_scale) = runs[exponent]
        for name, expected in of_one.items():
            np.testing.assert_array_equal(found[name], expected, err_msg=name)
        assert other_mean_square == 4.0**exponent * mean_square
        np.testing.assert_array_equal(other_scale, 2.0**exponent * scale)


def test_a_clipped_input_shows_the_unit(tmp_path):
    runs = (
        story(tmp_path / str(exponent), f"train.env = '{scaled('MinAtar/SpaceInvaders-v1', exponent)}'")[0]
        for exponent in (-10, 0)
    )
    weights = [run["weights"] for run in runs]
    assert not np.array_equal(*weights)


def test_a_run_with_it_goes_on_bit_for_bit(tmp_path):
    whole = tmp_path / "whole", go(tmp_path / "whole", RMS)
    assert any("statistics" in name for name in whole[1]), "the input's are compared"
    go(tmp_path / "halves", RMS, interrupt_at=14)
    assert_same(tmp_path / "halves", go(tmp_path / "halves", RMS), whole)


def test_clipped_heads_alone_do_not_tell_the_unit(tmp_path):
    refused = pytest.raises(UsageError, match='reward_input = "rms" takes its statistics from a head of')
    with configured(RMS, "Heads.pairs = ((0.9, True),)", "train.updates = 1"), refused:
        train(tmp_path)
