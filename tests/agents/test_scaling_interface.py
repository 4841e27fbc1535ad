"""That the interface fits scalings which rewrite the heads' last layers and read outputs in other units (Pop-Art)."""

import functools

import numpy as np
import tensorflow as tf

from agents import configuration
from agents.scalings import PopArt, Scaling
from agents.scalings.making import named_scalings
from agents.settings import Settings
from tests.agents.quickstart import REPOSITORY, configured
from tests.agents.small_agent import SHAPE, as_sequence, make_agent, outputs_of, random_windows


def values_of(agent, sequence, target=False):
    outputs = outputs_of(agent.target_network if target else agent.network, sequence)
    return agent.scaling.values(tf.transpose(outputs, (0, 1, 3, 2)), target).numpy()


def test_a_scaling_may_change_units_under_the_agent():
    scaling = functools.partial(PopArt, step_size=0.3)
    agent = make_agent(scaling=scaling, learning_rate=0.0, target_update_period=3)
    sequence = as_sequence(random_windows())
    online, target = values_of(agent, sequence), values_of(agent, sequence, target=True)
    errors, scales = [], []
    for _ in range(4):
        found = agent.sequence_errors(sequence)
        errors.append((found.values - found.targets).numpy() * found.mask[..., None])
        agent.train(sequence)
        scales.append(agent.scaling.online.scale.numpy())
        np.testing.assert_allclose(values_of(agent, sequence), online, atol=1e-5)
        np.testing.assert_allclose(values_of(agent, sequence, target=True), target, atol=1e-5)
    assert (np.abs(np.diff(scales, axis=0)) > 1e-3).all(), "units change"
    np.testing.assert_array_equal(agent.scaling.target.scale, scales[2])
    for later in errors[1:]:
        np.testing.assert_allclose(later, errors[0], atol=1e-4)


class TellsNetworksApart(Scaling):
    """A user's own: the target network's outputs count in units of 7, and errors are the gap it was shown."""

    def values(self, outputs, target=False):
        return 7.0 * outputs if target else outputs

    def errors(self, targets, outputs, context):
        return context.value_gap + 0.0 * outputs


def test_a_scaling_sees_each_networks_values_in_their_own_units():
    agent, sequence = make_agent(scaling=TellsNetworksApart), as_sequence(random_windows())
    found = agent.sequence_errors(sequence)
    target, online = (values_of(agent, sequence, target).max(axis=2) for target in (True, False))
    trained = (target - online).transpose(1, 0, 2)[SHAPE.burn_in : SHAPE.burn_in + SHAPE.length]
    expected = np.where(found.mask[..., None], trained, 0.0)
    np.testing.assert_allclose(found.errors, expected, rtol=1e-4, atol=1e-6)


def test_every_scaling_of_the_code_can_be_named_and_every_name_is_that_of_a_scaling():
    chosen = set()
    for statement in configuration.list_scalings(REPOSITORY / "configs").values():
        with configured(statement):
            chosen.add(type(Settings.from_gin().train.scaling(2)).__name__)
    assert chosen == {kind.__name__ for kind in named_scalings().values()}
