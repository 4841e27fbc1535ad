"""Networks of the agent: torsos, a recurrent core, dueling heads, and the Q-network made of them."""

from networks.any_network import AnyNetwork
from networks.dueling_heads import DuelingHeads
from networks.recurrent_core import RecurrentCore
from networks.recurrent_q_network import RecurrentQNetwork
from networks.reward_input import RewardInput
from networks.torsos import ConvTorso, MlpTorso, atari_torso, dqn_torso, small_torso

__all__ = [
    "AnyNetwork",
    "ConvTorso",
    "DuelingHeads",
    "MlpTorso",
    "RecurrentCore",
    "RecurrentQNetwork",
    "RewardInput",
    "atari_torso",
    "dqn_torso",
    "small_torso",
]
