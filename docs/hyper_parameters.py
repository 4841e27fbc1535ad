"""Writes agent.md's table of hyper-parameters from settings and gin files: `python -m docs.hyper_parameters`."""

import re
from pathlib import Path

import tensorflow as tf

import agents.running.embedded  # noqa: F401  registers everything that a configuration may name
from agents.commands import configuration, parameters
from agents.heads import TEN_HEADS
from networks.torsos import torso_for
from rbs_tf.settings import in_force

ROOT = Path(__file__).parents[1]
PAGE, BEGIN, END = ROOT / "docs/agent.md", "<!-- hyper-parameters -->\n", "<!-- end -->\n"
CONFIGS = {"atari": 160, "atari_small": 84, "quickstart": 10}  # and the sides of the images that they are for
OWNERS = (
    *("ConvTorso", "RecurrentQNetwork", "Heads", "HeadBandit", "MultiHeadPolicy"),
    *("SequenceShape", "Replay", "RecurrentMultiHeadAgent", "train"),
)


def table() -> str:
    """A line for each setting that the paper has a value for."""
    declared = {name: setting for name, setting in parameters.declared().items() if setting.setting.paper}
    names = sorted(declared, key=lambda name: OWNERS.index(name.split(".")[0]))
    values = {config: settings_of(config, names) for config in CONFIGS}
    meanings = parameters.meanings()
    lines = [
        "| parameter | is | paper | " + " | ".join(f"`{config}`" for config in CONFIGS) + " |",
        "|---" * (3 + len(CONFIGS)) + "|",
    ]
    for name in names:
        meaning = re.split(r"[.;] ", f"{meanings[name]} ")[0]
        cells = [f"`{name}`", meaning, declared[name].setting.paper]
        lines.append(f"| {' | '.join(cells + [values[config][name] for config in CONFIGS])} |")
    return "\n".join(lines) + "\n"


def settings_of(config: str, names: list[str]) -> dict[str, str]:
    """What the settings are under a config."""
    configuration.parse([ROOT / f"configs/{config}.gin"], [], ROOT)
    torso = torso_for(tf.TensorSpec((CONFIGS[config], CONFIGS[config], 1)))()
    *convolutions, _, linear = torso._stages
    of_torso = {
        "ConvTorso.channels": tuple(layer.filters for layer in convolutions),
        "ConvTorso.kernel_sizes": tuple(layer.kernel_size[0] for layer in convolutions),
        "ConvTorso.strides": tuple(layer.strides[0] for layer in convolutions),
        "ConvTorso.units": linear.units,
    }
    values = {name: of_torso.get(name) or in_force(name) for name in names}
    return {name: "ten" if value == TEN_HEADS else f"`{value}`" for name, value in values.items()}


def with_table(text: str) -> str:
    """The page with the table of today."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
