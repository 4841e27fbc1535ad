"""Sequences of experience: how they are cut and written, and the replays that hold them."""
