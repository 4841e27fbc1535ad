"""Sequences of experience: their layout, how they are cut and written, and the replays that hold them."""
