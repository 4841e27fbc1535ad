"""The disk's side of a run: its folder, checkpoints, statistics and best weights."""
