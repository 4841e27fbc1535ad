"""A trained policy, read from its run folder; nothing in there is changed or locked, and the run may go on."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gin

from agents.commands.configuration import explained, with_names_of_today, without_gin_trail
from agents.commands.flags import nearest
from agents.errors import RunFolderError, UsageError, local_path
from agents.storage.run_folder import BEST, CONFIG, REPOSITORY

if TYPE_CHECKING:
    import tensorflow as tf

    from agents.agent import RecurrentMultiHeadAgent
    from rbs_tf.environments.batched import GymnasiumVectorEnvironment

PRETRAINED = REPOSITORY / "pretrained"  # a slim run folder for each name


class Trained(NamedTuple):
    """The policy of a run."""

    name: str  # of the environment
    environment: GymnasiumVectorEnvironment
    agent: RecurrentMultiHeadAgent  # its `policy` acts only with `head`, as in evaluations
    head: int
    update: int
    weights: str  # which these are, in words
    chosen: str  # which head acts, in words

    def values(self, outputs: tf.Tensor) -> tf.Tensor:
        """Converts what heads put out, float32 [..., H], to values in the rewards that each of them sees.

        Those are the environment's own for unclipped heads, without the reward multiplier; for the others what was
        clipped, with it.
        """
        heads = self.agent.heads
        units = [1.0 if clip else heads.reward_multiplier for _, clip in heads.pairs]
        return self.agent.scaling.values(outputs) / units


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say which policy; they are the same whatever is done with it."""
    add = parser.add_argument
    add("run_dir", type=local_path, metavar="RUN_DIR", nargs="?", help="folder of a run of train.py")
    parser.add_argument(
        "--pretrained", metavar="NAME", help="in place of RUN_DIR: weights that come with the repository"
    )
    parser.add_argument(
        "--checkpoint",
        choices=("best", "latest"),
        default="best",
        help="the weights of the best evaluation (%(default)s), or the newest checkpoint",
    )
    parser.add_argument(
        "--head", metavar="NAME|INDEX", help="the head that acts (the one that the bandit rates best)"
    )


def find_folder(options: argparse.Namespace) -> Path:
    """The folder that the arguments of `add_arguments` name, checked; needs no TensorFlow.

    Raises:
      UsageError: they name none, or two, or there is nothing to read in it.
    """
    if (options.run_dir is None) == (options.pretrained is None):
        raise UsageError(
            "Which run is it? Give either the folder of a run as RUN_DIR, or --pretrained=NAME for weights that come "
            "with the repository."
        )
    folder = Path(options.run_dir) if options.pretrained is None else pretrained(options.pretrained)
    check_folder(folder, options.checkpoint)
    return folder


def pretrained(name: str) -> Path:
    """The folder of weights that come with the repository.

    Raises:
      UsageError: there are none of this name.
    """
    names = sorted(folder.name for folder in PRETRAINED.glob("*") if folder.is_dir())
    if name not in names:
        raise UsageError(f"There is no pretrained agent {name!r}. {nearest(name, names)}")
    return PRETRAINED / name


def check_folder(run_dir: str | os.PathLike, checkpoint: str = "best") -> None:
    """Raises UsageError if there is nothing to read there; needs no TensorFlow."""
    folder = Path(local_path(run_dir))
    if not folder.is_dir():
        raise UsageError(
            f"There is no folder {folder}. Write the one that train.py has called the run folder."
        )
    if not (folder / CONFIG).is_file():
        raise UsageError(f"{folder} is not the folder of a run: it holds no config.gin.")
    if any(folder.glob("checkpoints/*/manifest.json")):
        return
    if not (folder / BEST).is_file():
        raise UsageError(
            f"{folder} holds no weights yet: the first evaluation or checkpoint of the run writes them."
        )
    if checkpoint == "latest":
        raise UsageError(f"{folder} holds no checkpoint yet, only the weights of the best evaluation.")


def load(
    run_dir: str | os.PathLike,
    checkpoint: str = "best",
    head: str | None = None,
    seed: int = 0,
    num_envs: int = 1,
    camera: bool = False,
) -> Trained:
    """Builds what the run's config.gin says and gives it the run's weights. Replaces the gin configuration.

    Args:
      run_dir: the run folder.
      checkpoint: "best", or, if the run has kept none, and for "latest", the newest checkpoint.
      head: name or index; None: the one that the bandit rated best.
      seed: of the environments.
      num_envs: environments in the batch.
      camera: put one beside an Atari game, see `WithCamera`, unless the agent sees the console's own picture.

    Raises:
      UsageError: a head that there is not, an environment that cannot be made, or no weights that can be used.
    """
    check_folder(run_dir, checkpoint)
    import agents.running.embedded  # noqa: F401  registers everything that a configuration may name
    from agents.commands.video import WithCamera
    from agents.replay.memory import ATARI_FRAME
    from agents.storage import best
    from agents.storage.checkpoint import read_newest
    from agents.workers import build
    from agents.workers.settings import Settings
    from rbs_tf.environments.names import RAW_FRAMES

    with gin.unlock_config():
        gin.clear_config()
        try:
            gin.parse_config(with_names_of_today((Path(run_dir) / CONFIG).read_text()))
            settings = Settings.configured()
            environment: Any = build.build_eval_environment(settings, num_envs, seed)
            if camera and environment.game and environment.observation_spec().shape != ATARI_FRAME:
                filming = build.build_eval_environment(settings, num_envs, seed, **RAW_FRAMES)
                environment = WithCamera(environment, filming)
        except Exception as error:  # gin's, Python's or the environment's own: the file may say anything
            why = explained(without_gin_trail(error))
            raise UsageError(f"The run cannot be built from {run_dir}/config.gin: {why}") from error
    try:
        agent = build.build_agent(settings, environment)
        found = best.load(run_dir, agent.acting_variables) if checkpoint == "best" else None
        if found is not None:
            update, mean = found.update, f"{found.mean_return:.4g} per episode in {found.episodes} episodes"
            weights = f"Best evaluation so far: {mean}, at update {update:,}."
        else:
            update = read_newest(run_dir, build.trackables(agent))
            weights = f"Newest checkpoint: update {update:,}."
            if checkpoint == "best":
                weights = f"The run has kept no best weights. {weights}"
        index = _head_index(agent, head)
        let_act(agent, index)
    except RunFolderError as error:
        environment.close()
        raise UsageError(str(error)) from error
    why = "the bandit's best" if head is None else "as asked for"
    chosen = f"Acting: head {agent.heads.names[index]}, {why}."
    return Trained(settings.train.env, environment, agent, index, update, weights, chosen)


def _head_index(agent: RecurrentMultiHeadAgent, head: str | None) -> int:
    import numpy as np

    names = agent.heads.names
    if head is None:
        return int(np.argmax(agent.policy.head_probabilities))
    if head in names:
        return names.index(head)
    if head.isdecimal() and int(head) < len(names):
        return int(head)
    raise UsageError(f"There is no head {head!r}. {nearest(head, names)} Or write its number, from 0.")


def let_act(agent: RecurrentMultiHeadAgent, head: int) -> None:
    """Lets only one head act in `agent.policy`."""
    import numpy as np

    agent.policy.head_probabilities.assign(np.eye(len(agent.heads), dtype=np.float32)[head])
