"""TensorBoard's events in Weights & Biases, too: `train.py --wandb`. Without the flag none of it is imported."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import os
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from agents.errors import UsageError
from agents.monitoring.tags import EVALUATION, TRAIN
from agents.storage import run_folder

if TYPE_CHECKING:
    from agents.settings import Settings


def require_wandb() -> None:
    """Raises UsageError if wandb is not installed."""
    if importlib.util.find_spec("wandb") is None:
        raise UsageError("--wandb needs Weights & Biases. Install it with: pip install wandb")


@contextlib.contextmanager
def synced(folder: str | os.PathLike, settings: Settings) -> Iterator[None]:
    """Sends the scalars and histograms that are written for TensorBoard meanwhile to the folder's run at W&B.

    There they are called `train/...` and `eval/...`; W&B's table of runs has the columns of TensorBoard's hparams.

    Args:
      folder: an opened run folder; gin's configuration has been parsed.
      settings: of the run.

    Raises:
      UsageError: W&B refuses the run, as it does without a login.
    """
    wandb = importlib.import_module("wandb")
    import gin
    import tensorflow as tf

    from agents.monitoring import summaries

    folder = pathlib.Path(folder).absolute()
    try:
        run = wandb.init(
            dir=str(folder),
            # The same in every start of a folder, wherever it lies; another one after `--anew`.
            id=hashlib.sha256(run_folder.first_start(folder).encode()).hexdigest()[:16],
            name=folder.name,
            project=os.environ.get("WANDB_PROJECT", "rbs_tf"),
            config=summaries.columns(settings) | {"gin": gin.config_str()},
            resume="allow",
            # Neither our line in the terminal, which is rewritten all the time, nor a last table of a hundred tags.
            settings=wandb.Settings(console="off", quiet=True),
        )
    except wandb.errors.Error as error:
        raise UsageError(
            f"Weights & Biases refused the run: {error}\nLog in with: wandb login. Or keep the run here, to be sent "
            "later: WANDB_MODE=offline"
        ) from error
    with run:
        # W&B reads a folder of events once it has seen a writer of it made, in this process, and once more for every
        # further writer. The run makes several, in a distributed one in other processes: these two stand for all.
        wandb.tensorboard.patch(root_logdir=str(folder))
        for name in (TRAIN, EVALUATION):
            tf.summary.create_file_writer(str(folder / name)).close()
        wandb.tensorboard.unpatch()
        yield
