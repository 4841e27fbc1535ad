"""What an agent may do to its TD errors, each choice in a file of its own behind one interface."""

from rbs_tf.scalings.return_based import ReturnBasedScaling
from rbs_tf.scalings.scaling import ErrorContext, Scaling

__all__ = ["ErrorContext", "ReturnBasedScaling", "Scaling"]
