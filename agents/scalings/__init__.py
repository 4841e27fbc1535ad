"""Scalings of TD errors behind one interface."""

from agents.scalings.categorical import CategoricalScaling, HLGauss, TwoHot
from agents.scalings.clip import ClippedRewards
from agents.scalings.cross_head import CrossHeadScaling
from agents.scalings.error import ErrorBasedScaling
from agents.scalings.false_friends import Horizon, ReturnStd, RewardStd
from agents.scalings.gymnasium_normalise import GymnasiumNormalise
from agents.scalings.pop_art import PopArt
from agents.scalings.return_based import ReturnBasedScaling
from agents.scalings.return_out import ReturnOut
from agents.scalings.scaling import ErrorContext, HeadLayer, Scaling
from agents.scalings.signed_hyperbolic import SignedHyperbolic

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
