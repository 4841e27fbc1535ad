"""Every setting that a person can bind with gin: its kind, range and unit, checked before any work starts.

What several settings must be together (a capacity that holds the first sequences, say) their owners check, and what is
not bound has a default that fits.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

from agents.commands import configuration
from agents.commands.flags import nearest
from agents.errors import UsageError


class Setting(NamedTuple):
    """What may be bound to a name."""

    expected: str  # in words
    fits: Callable[[Any], bool]
    example: str  # as one writes it


def whole(least: int, unit: str, example: int, most: int = 2**62, optional: bool = False) -> Setting:
    """A whole number; Python counts True and False among them, people do not. None too, if `optional`."""
    words = (
        f"a whole number of at least {least:,}" if most == 2**62 else f"a whole number from {least} to {most}"
    )
    return Setting(
        f"{words}{f' ({unit})' if unit else ''}{', or None' if optional else ''}",
        lambda value: (optional and value is None) or (_is_whole(value) and least <= value <= most),
        str(example),
    )


def number(
    least: float,
    unit: str,
    example: float,
    most: float = math.inf,
    above: bool = False,
    optional: bool = False,
) -> Setting:
    """A finite number; larger than `least` if `above`, of either sign if that is -inf. None too, if `optional`."""
    words = "a number"
    if least > -math.inf:
        words += (" above" if above else " of at least") + f" {least:g}"
    if most < math.inf:
        words = f"a number from {least:g} to {most:g}" + (f", and not {least:g}" if above else "")

    def fits(value: Any) -> bool:
        if value is None:
            return optional
        real = isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
        return real and (value > least if above else value >= least) and value <= most

    return Setting(
        f"{words}{f' ({unit})' if unit else ''}{', or None' if optional else ''}", fits, f"{example:g}"
    )


def flag(optional: bool = False) -> Setting:
    """True or False. None too, if `optional`."""
    words = "True, False or None" if optional else "True or False"
    return Setting(words, lambda value: isinstance(value, bool) or (optional and value is None), "True")


def one_of(*names: str, optional: bool = False) -> Setting:
    """One of these strings. None too, if `optional`."""
    return Setting(
        f"one of {', '.join(map(repr, names))}{', or None' if optional else ''}",
        lambda value: (optional and value is None) or (isinstance(value, str) and value in names),
        repr(names[0]),
    )


def several(of: Setting, what: str, example: str) -> Setting:
    """A tuple or list, not empty, of values that each fit."""
    return Setting(
        f"a tuple of {what}, each {of.expected}",
        lambda value: isinstance(value, tuple | list) and len(value) > 0 and all(map(of.fits, value)),
        example,
    )


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_head(value: Any) -> bool:
    discount = number(0.0, "", 0.99, most=1.0)
    return (
        isinstance(value, tuple | list)
        and len(value) == 2
        and discount.fits(value[0])
        and isinstance(value[1], bool)
    )


def _makes_a_scaling(value: Any) -> bool:
    from rbs_tf.scalings import Scaling

    return issubclass(value, Scaling) if isinstance(value, type) else callable(value)


def _makes_a_layer(value: Any) -> bool:
    import tensorflow as tf

    return issubclass(value, tf.keras.layers.Layer) if isinstance(value, type) else callable(value)


STRATEGIES = ("default", "mirrored", "tpu")
BACKENDS = ("reverb", "local")  # of the replay
_TORSO = Setting(
    "a network for observations, or None for the one that fits them",
    lambda value: value is None or _makes_a_layer(value),
    "@networks.small_torso",
)
_DTYPE = one_of("float32", "bfloat16")
_SIGMA_V = number(0.0, "reward units", 0.01, above=True)
_PIXELS = whole(1, "pixels", 84, most=4096, optional=True)

SETTINGS = {
    "train.env": Setting(
        "the name of an environment", lambda value: isinstance(value, str) and value != "", "'pong'"
    ),
    "train.updates": whole(1, "updates in total", 10_000),
    "train.environment_steps": whole(1, "environment steps", 1_000_000, optional=True),
    "train.seed": whole(0, "", 0),
    "train.strategy": one_of(*STRATEGIES),
    "train.scaling": Setting("a scaling", _makes_a_scaling, "@scalings.return_based"),
    "train.num_envs": whole(1, "environments", 32),
    "train.batch_size": whole(1, "sequences", 32),
    "train.steps_per_round": whole(1, "steps of each environment", 10),
    "train.steps_per_update": number(0.0, "environment steps", 4, above=True, optional=True),
    "train.eval_interval": whole(0, "updates; 0: at the end alone", 1000),
    "train.eval_repeat_action_probability": number(0.0, "", 0.25, most=1.0, optional=True),
    "train.eval_envs": whole(1, "episodes side by side", 8),
    "train.final_eval_rounds": whole(0, "episodes of each environment", 4),
    "train.checkpoint_interval": whole(1, "updates", 1000),
    "train.summary_interval": whole(0, "updates; 0: never", 100),
    "train.publish_interval": whole(1, "updates", 100),
    "train.weights_interval": whole(1, "steps of each environment", 400),
    "train.step_timeout": number(0.0, "seconds", 120, above=True),
    "train.max_faults": whole(0, "", 10),
    "environments.make.full_action_set": flag(),
    "environments.make.max_episode_steps": whole(1, "environment steps", 27_000, optional=True),
    "environments.make.repeat_action_probability": number(0.0, "", 0.25, most=1.0, optional=True),
    "environments.make.img_height": _PIXELS,
    "environments.make.img_width": _PIXELS,
    "environments.make.grayscale": flag(optional=True),
    "environments.make.stack_num": whole(1, "frames", 4, most=256, optional=True),
    "environments.make.fire_on_new_life": flag(optional=True),
    "environments.make.terminal_on_life_loss": flag(optional=True),
    "Heads.pairs": several(
        Setting("(its discount from 0 to 1, whether it sees clipped rewards)", _is_head, "(0.997, False)"),
        "heads",
        "((0.997, False),)",
    ),
    "Heads.reward_multiplier": number(0.0, "", 100, above=True),
    "HeadBandit.window": whole(1, "episodes", 200),
    "MultiHeadPolicy.epsilons": several(number(0.0, "", 0.05, most=1.0), "probabilities", "(0.01, 0.1, 0.4)"),
    "RecurrentMultiHeadAgent.learning_rate": number(0.0, "", 2e-4, above=True),
    "RecurrentMultiHeadAgent.adam_epsilon": number(0.0, "", 1e-6, above=True),
    "RecurrentMultiHeadAgent.target_update_period": whole(1, "updates", 400),
    "RecurrentMultiHeadAgent.double_q": flag(),
    "RecurrentMultiHeadAgent.priority_eta": number(0.0, "", 0.9, most=1.0),
    "RecurrentMultiHeadAgent.importance_exponent": number(0.0, "", 0.6),
    "RecurrentMultiHeadAgent.evaluation_epsilon": number(0.0, "", 0.01, most=1.0),
    "RecurrentMultiHeadAgent.jit_compile": flag(optional=True),
    "SequenceShape.burn_in": whole(0, "environment steps", 20),
    "SequenceShape.length": whole(1, "environment steps", 80),
    "SequenceShape.period": whole(1, "environment steps", 40),
    "SequenceShape.n_step": whole(1, "environment steps", 5),
    "Collector.max_report_steps": whole(1, "environment steps", 27_000),
    "Replay.backend": one_of(*BACKENDS, optional=True),
    "Replay.capacity": whole(1, "observations", 4_000_000),
    "Replay.min_sequences": whole(1, "sequences", 1000),
    "Replay.replay_ratio": number(0.0, "samples per sequence", 1.0, above=True),
    "Replay.error_buffer": number(1.0, "samples", 10_000),
    "Replay.sampler": one_of("prioritized", "uniform"),
    "Replay.priority_exponent": number(0.0, "", 0.9),
    "Replay.read_ahead": whole(0, "batches", 1, most=1000, optional=True),
    "Replay.compression": whole(0, "zlib's level; 0: none", 3, most=9, optional=True),
    "Replay.patience": number(0.0, "seconds", 300, above=True),
    "Replay.port": whole(1, "", 8000, most=65_535, optional=True),
    "RecurrentQNetwork.torso": _TORSO,
    "RecurrentQNetwork.image_torso": _TORSO,
    "RecurrentQNetwork.normalise_torso": one_of("none", "centre", "centre_and_scale"),
    "RecurrentQNetwork.lstm_units": whole(1, "units", 512, most=2**20),
    "RecurrentQNetwork.post_lstm_units": whole(1, "units", 256, most=2**20),
    "RecurrentQNetwork.head_hidden": whole(1, "units", 256, most=2**20),
    "RecurrentQNetwork.scale_gradient": flag(),
    "RecurrentQNetwork.reward_input": one_of("clip", "rms"),
    "ConvTorso.channels": several(whole(1, "", 32, most=2**20), "numbers of channels", "(16, 32)"),
    "ConvTorso.kernel_sizes": several(whole(1, "pixels", 3, most=4096), "sizes", "(8, 4)"),
    "ConvTorso.strides": several(whole(1, "pixels", 1, most=4096), "strides", "(4, 2)"),
    "ConvTorso.units": whole(1, "units", 256, most=2**20),
    "ConvTorso.padding": one_of("same", "valid"),
    "ConvTorso.compute_dtype": _DTYPE,
    "MlpTorso.units": several(whole(1, "units", 128, most=2**20), "layers", "(64, 64)"),
    "MlpTorso.compute_dtype": _DTYPE,
    "atari_torso.compute_dtype": _DTYPE,
    "dqn_torso.compute_dtype": _DTYPE,
    "small_torso.compute_dtype": _DTYPE,
    "cross_head.step": number(0.0, "", 0.001, most=1.0, above=True),
    "cross_head.min_scale": number(0.0, "reward units", 0.01, above=True),
    "error_based.step": number(0.0, "", 0.001, most=1.0, above=True),
    "error_based.window": whole(1, "batches", 100, most=1_000_000, optional=True),
    "error_based.min_scale": number(0.0, "reward units", 1e-4, above=True),
    "gymnasium.epsilon": number(0.0, "", 1e-8, above=True),
    "hl_gauss.v_min": number(-math.inf, "reward units", -10.0),
    "hl_gauss.v_max": number(-math.inf, "reward units", 10.0),
    "hl_gauss.bins": whole(3, "bins", 51, most=2**12),
    "hl_gauss.deviation": number(0.0, "widths of a bin", 0.75, above=True),
    "horizon.sigma_v": _SIGMA_V,
    "pop_art.step_size": number(0.0, "", 0.001, most=1.0, above=True),
    "pop_art.min_scale": number(0.0, "reward units", 0.001, above=True),
    "pop_art.max_scale": number(0.0, "reward units", 1000, above=True),
    "pop_art.start_at_first_targets": flag(),
    "return_based.sigma_v": _SIGMA_V,
    "return_based.target_network_term": flag(),
    "return_based.value_bias": flag(),
    "return_based.half_life": number(0.0, "environment steps", 1e6, above=True, optional=True),
    "return_out.sigma_v": _SIGMA_V,
    "return_out.half_life": number(0.0, "environment steps", 1e6, above=True, optional=True),
    "return_std.sigma_v": _SIGMA_V,
    "reward_std.sigma_v": _SIGMA_V,
    "simba_v2.epsilon": number(0.0, "", 1e-8, above=True),
    "simba_v2.max_return": number(0.0, "", 5.0, above=True),
    "two_hot.bins": whole(3, "bins, an odd number", 255, most=2**12),
    "two_hot.limit": number(0.0, "", 20.0, most=80.0, above=True),
}


def check() -> None:
    """Checks everything that is bound now; configurables of other people's modules are theirs to check.

    Raises:
      UsageError: the first setting that does not fit, or that is not for a person to set.
    """
    for name, value in configuration.bound():
        if name not in SETTINGS:
            raise UsageError(f"{name} is set by the program itself. {nearest(name, SETTINGS)}")
        setting = SETTINGS[name]
        if not setting.fits(value):
            raise UsageError(
                f"{name} = {_shown(value)}: expected {setting.expected}. Write for example: {name} = {setting.example}"
            )


def _shown(value: Any) -> str:
    text = f"@{value.__name__}" if callable(value) and hasattr(value, "__name__") else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
