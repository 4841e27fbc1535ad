"""Set-up that every test shares. It runs before any test module imports TensorFlow."""

import os

from hypothesis import settings

from rbs_tf.startup import quiet

quiet()
if "PYTEST_XDIST_WORKER" in os.environ:
    # The workers share the cores; each with a pool as wide as the machine would only wait for the others.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")

settings.register_profile("default", deadline=None)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
