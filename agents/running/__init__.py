"""Runs: everything in one process, or in many."""
