"""Trains an agent: `python train.py --help` shows what can be asked for."""

import sys

from agents.command_line import main
from rbs_tf.startup import quiet

if __name__ == "__main__":
    quiet()  # before main imports TensorFlow
    sys.exit(main(sys.argv[1:]))
