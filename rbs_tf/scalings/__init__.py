"""Scalings of TD errors, each in a file of its own behind one interface."""

from rbs_tf.extras import needed_by

with needed_by("rbs_tf.scalings"):
    from rbs_tf.scalings.categorical import CategoricalScaling
    from rbs_tf.scalings.clip import ClippedRewards
    from rbs_tf.scalings.cross_head import CrossHeadScaling
    from rbs_tf.scalings.error import ErrorBasedScaling
    from rbs_tf.scalings.gymnasium_normalise import GymnasiumNormalise
    from rbs_tf.scalings.hl_gauss import HLGauss
    from rbs_tf.scalings.horizon import Horizon
    from rbs_tf.scalings.joint import JointScaling
    from rbs_tf.scalings.max_reward import MaxReward
    from rbs_tf.scalings.mean_abs_reward import MeanAbsReward
    from rbs_tf.scalings.pop_art import PopArt
    from rbs_tf.scalings.pop_art_first import PopArtFirst
    from rbs_tf.scalings.return_based import ReturnBasedScaling
    from rbs_tf.scalings.return_out import ReturnOut
    from rbs_tf.scalings.return_std import ReturnStd
    from rbs_tf.scalings.return_support import ReturnSupport
    from rbs_tf.scalings.reward_std import RewardStd
    from rbs_tf.scalings.scaling import ErrorContext, HeadLayer, Scaling
    from rbs_tf.scalings.signed_hyperbolic import SignedHyperbolic
    from rbs_tf.scalings.simba_v2 import SimbaV2
    from rbs_tf.scalings.two_hot import TwoHot

__all__ = [
    "CategoricalScaling",
    "ClippedRewards",
    "CrossHeadScaling",
    "ErrorBasedScaling",
    "ErrorContext",
    "GymnasiumNormalise",
    "HLGauss",
    "HeadLayer",
    "Horizon",
    "JointScaling",
    "MaxReward",
    "MeanAbsReward",
    "PopArt",
    "PopArtFirst",
    "ReturnBasedScaling",
    "ReturnOut",
    "ReturnStd",
    "ReturnSupport",
    "RewardStd",
    "Scaling",
    "SignedHyperbolic",
    "SimbaV2",
    "TwoHot",
]
