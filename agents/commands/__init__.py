"""The commands that a person types: train.py, and `python -m agents COMMAND`."""
