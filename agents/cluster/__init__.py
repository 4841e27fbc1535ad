"""The distributed mode: replay, learner, collectors and evaluator in processes of their own, placed by Ray."""
