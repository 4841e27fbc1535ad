"""What a person types: train.py, and `python -m agents COMMAND`."""
