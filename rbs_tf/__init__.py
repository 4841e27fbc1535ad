"""Return-based scaling of TD errors (Schaul et al. 2021), for TensorFlow, Keras, PyTorch, JAX and NumPy.

Importing this package imports no TensorFlow: each name below imports what it needs when it is first used.
Statistics and returns need only NumPy, so PyTorch, JAX and processes that only collect do without TensorFlow.
"""

import importlib
import sys
from typing import TYPE_CHECKING, Any

from rbs_tf.extras import explain_missing

if TYPE_CHECKING:
    from rbs_tf.collecting import collect_returns as collect_returns
    from rbs_tf.moments import ReturnMoments as ReturnMoments
    from rbs_tf.return_scaling import ReturnScaling as ReturnScaling
    from rbs_tf.returns import discounted_returns as discounted_returns
    from rbs_tf.scaled_loss import ScaledLoss as ScaledLoss
    from rbs_tf.tensor_moments import batch_sigma as batch_sigma
    from rbs_tf.unit_dense import UnitDense as UnitDense
    from rbs_tf.units import unit_ratio as unit_ratio

__version__ = "0.1.0"

# No module has one of these names: importing it would put the module in the name's place.
_MODULES = {
    "collect_returns": "rbs_tf.collecting",
    "ReturnMoments": "rbs_tf.moments",
    "ReturnScaling": "rbs_tf.return_scaling",
    "ScaledLoss": "rbs_tf.scaled_loss",
    "UnitDense": "rbs_tf.unit_dense",
    "batch_sigma": "rbs_tf.tensor_moments",
    "discounted_returns": "rbs_tf.returns",
    "unit_ratio": "rbs_tf.units",
}

_LIBRARIES = ("numpy", "torch", "jax", "sb3")

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name in _LIBRARIES:
        with explain_missing(f"rbs_tf.{name}"):
            return importlib.import_module(f"rbs_tf.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with explain_missing(f"rbs_tf.{name}"):
        value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def _register(_: Any) -> None:
    # Keras on another backend imports no TensorFlow.
    if sys.modules.get("tensorflow"):
        importlib.import_module("rbs_tf.return_scaling")
        importlib.import_module("rbs_tf.unit_dense")


# Keras loads saved layers whose class is registered. Importing the module registers it, here once Keras is imported.
try:
    from wrapt import when_imported  # type: ignore[import-untyped]  # comes with TensorFlow
except ImportError:
    pass
else:
    when_imported("keras")(_register)
    when_imported("tf_keras")(_register)


def __dir__() -> list[str]:
    return sorted({*_MODULES, *_LIBRARIES, "environments", "__version__"})
