"""Trains an agent: `python train.py --help` shows what can be asked for."""

import gc
import os
import sys

from agents.commands.train import main
from agents.running.startup import quiet

if __name__ == "__main__":
    # Imports and tracing make millions of objects that stay; to look through them again and again takes a second.
    gc.set_threshold(100_000, 20, 20)
    sys.path.append(
        os.getcwd()
    )  # --env=module:Id and gin's imports find modules there, as in `python -m agents`
    quiet()  # before main imports TensorFlow
    sys.exit(main(sys.argv[1:]))
