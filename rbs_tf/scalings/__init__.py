"""Scalings of TD errors behind one interface."""

from rbs_tf.extras import needed_by

with needed_by("rbs_tf.scalings"):
    from rbs_tf.scalings.categorical import CategoricalScaling, HLGauss, TwoHot
    from rbs_tf.scalings.clip import ClippedRewards
    from rbs_tf.scalings.cross_head import CrossHeadScaling
    from rbs_tf.scalings.error import ErrorBasedScaling
    from rbs_tf.scalings.false_friends import Horizon, ReturnStd, RewardStd
    from rbs_tf.scalings.gymnasium_normalise import GymnasiumNormalise
    from rbs_tf.scalings.pop_art import PopArt
    from rbs_tf.scalings.return_based import ReturnBasedScaling
    from rbs_tf.scalings.return_out import ReturnOut
    from rbs_tf.scalings.scaling import ErrorContext, HeadLayer, Scaling
    from rbs_tf.scalings.signed_hyperbolic import SignedHyperbolic

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
    "PopArt",
    "ReturnBasedScaling",
    "ReturnOut",
    "ReturnStd",
    "RewardStd",
    "Scaling",
    "SignedHyperbolic",
    "TwoHot",
]
