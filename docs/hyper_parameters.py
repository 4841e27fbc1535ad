"""Writes agent.md's table of hyper-parameters from settings and gin files: `python -m docs.hyper_parameters`."""

import re
from pathlib import Path

import tensorflow as tf

import agents.settings  # noqa: F401  registers everything that a configuration may name
from agents import configuration
from agents.heads import TEN_HEADS
from agents.settings import Settings, list_settings
from networks.torsos import choose_torso

ROOT = Path(__file__).parents[1]
PAGE, BEGIN, END = ROOT / "docs/agent.md", "<!-- hyper-parameters -->\n", "<!-- end -->\n"
CONFIGS = {"atari": 160, "atari_small": 84, "quickstart": 10}  # and the sides of the images that they are for
OWNERS = {  # and the part of `Settings` that each is
    "RecurrentQNetwork": "network",
    "Heads": "heads",
    "HeadBandit": "bandit",
    "MultiHeadPolicy": "policy",
    "SequenceShape": "shape",
    "Replay": "replay",
    "RecurrentMultiHeadAgent": "agent",
    "train": "train",
}
# Of `ConvTorso`: what it is, the paper's value.
TORSO = {
    "channels": ("of each convolution", "32, 64, 128, 128"),
    "kernel_sizes": ("of each convolution", "7, 5, 5, 3"),
    "strides": ("of each convolution", "4, 2, 2, 1"),
    "units": ("of the linear layer: D", "512"),
}


def table() -> str:
    """A line for each setting that the paper has a value for."""
    columns = [values(config) for config in CONFIGS]
    lines = [
        "| parameter | what it is | paper | " + " | ".join(f"`{config}`" for config in CONFIGS) + " |",
        "|---" * (3 + len(CONFIGS)) + "|",
    ]
    about = {f"ConvTorso.{name}": of for name, of in TORSO.items()}
    for owner in OWNERS:
        for name, field, meaning in list_settings():
            if name.startswith(f"{owner}.") and field.metadata["paper"]:
                about[name] = re.split(r"[.;] ", f"{meaning} ")[0], field.metadata["paper"]
    for name, (meaning, paper) in about.items():
        cells = [f"`{name}`", meaning, paper, *(column[name] for column in columns)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def values(config: str) -> dict[str, str]:
    """What the settings are under a config, by their names."""
    configuration.parse([ROOT / f"configs/{config}.gin"], [], ROOT)
    settings = Settings.from_gin()
    torso = choose_torso(tf.TensorSpec((CONFIGS[config], CONFIGS[config], 1)))()
    *convolutions, _, linear = torso._stages
    found = {
        "ConvTorso.channels": tuple(layer.filters for layer in convolutions),
        "ConvTorso.kernel_sizes": tuple(layer.kernel_size[0] for layer in convolutions),
        "ConvTorso.strides": tuple(layer.strides[0] for layer in convolutions),
        "ConvTorso.units": linear.units,
    }
    for owner, part in OWNERS.items():
        found |= {f"{owner}.{name}": value for name, value in vars(getattr(settings, part)).items()}
    return {name: "ten" if value == TEN_HEADS else f"`{value}`" for name, value in found.items()}


def with_table(text: str) -> str:
    """The page with the table of today."""
    before, rest = text.split(BEGIN)
    return before + BEGIN + table() + END + rest.split(END)[1]


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
