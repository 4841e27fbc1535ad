"""What an agent may do to its TD errors, each choice in a file of its own behind one interface."""

from rbs_tf.scalings.cross_head import CrossHeadScaling
from rbs_tf.scalings.error import ErrorBasedScaling
from rbs_tf.scalings.pop_art import PopArt
from rbs_tf.scalings.return_based import ReturnBasedScaling
from rbs_tf.scalings.return_out import ReturnOut
from rbs_tf.scalings.scaling import ErrorContext, Scaling

__all__ = [
    "CrossHeadScaling",
    "ErrorContext",
    "ErrorBasedScaling",
    "PopArt",
    "ReturnBasedScaling",
    "ReturnOut",
    "Scaling",
]
