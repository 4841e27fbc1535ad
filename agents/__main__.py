"""`python -m agents COMMAND`: what can be done with runs. Training has a program of its own, train.py."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Sequence

from agents.errors import KNOWN, UsageError, shorten_error, suggest
from agents.monitoring.progress import nobody_reads
from agents.running.startup import quiet

COMMANDS = {
    "play": "play what a run has learned, with a video if wanted",
    "export": "write what a run has learned as a SavedModel",
    "report": "make one page about many runs",
    "doctor": "check this machine and what is installed on it",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command; returns its exit code: 2 if what was asked for is refused, 130 on Ctrl-C."""
    name, *arguments = (sys.argv[1:] if argv is None else list(argv)) or ["--help"]
    program = "python -m agents"
    try:
        if name in ("-h", "--help"):
            print("usage: python -m agents COMMAND ...\n")
            print(*(f"  {known:<8} {what}" for known, what in COMMANDS.items()), sep="\n")
            print("\nOf each: python -m agents COMMAND --help. To train: python train.py --help")
            return 0
        if name not in COMMANDS:
            raise UsageError(f"There is no command {name!r}. {suggest(name, COMMANDS)}")
        program += f" {name}"
        quiet()  # before TensorFlow is imported
        code = importlib.import_module(f"agents.commands.{name}").main(arguments)
        sys.stdout.flush()
        return code
    except KNOWN as error:
        if nobody_reads(error):
            return 128 + signal.SIGPIPE
        print(f"{program}: {shorten_error(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
