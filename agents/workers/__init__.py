"""The parts of a run, collector, learner and evaluator, and the one place that builds them."""
