"""Who calls whom: everything in one process, or in many."""
