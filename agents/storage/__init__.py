"""What a run keeps on disk: its folder, checkpoints, statistics and best weights."""
