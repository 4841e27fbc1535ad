"""Set-up that every test shares. It runs before any test module imports TensorFlow."""

import importlib.util
import os
import sys

import pytest
from hypothesis import settings

from agents.running.startup import quiet

quiet()
if "PYTEST_XDIST_WORKER" in os.environ:
    # The workers share the cores; each with a pool as wide as the machine would only wait for the others.
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")

# Of the clusters that tests make themselves: Ray's own niceness starves its workers beside other tests.
os.environ.setdefault("RAY_worker_niceness", "0")

collect_ignore = []
if importlib.util.find_spec("reverb") is None:
    # What Reverb is part of, or the full stack's versions. What needs Ray skips itself.
    collect_ignore += [
        "agents/commands/test_doctor.py",
        "agents/replay/test_reverb_replay.py",
        "agents/running/test_startup.py",
        "agents/storage/test_checkpoint.py",
        "agents/workers/test_collector.py",
        "agents/workers/test_evaluator.py",
        "agents/workers/test_learner.py",
        "agents/workers/test_step_statistics.py",
    ]


def pytest_collection_modifyitems(items):
    """Leaves out cases with Reverb where it is not installed."""
    if importlib.util.find_spec("reverb") is None:
        for item in items:
            parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
            if "'reverb'" in repr([*parameters]):
                item.add_marker(pytest.mark.skip("Reverb is not installed"))


@pytest.fixture(autouse=True)
def nothing_configured():
    """Commands that a test has run in this process have left gin's configuration behind, and its lock."""
    yield
    if "gin" in sys.modules:
        sys.modules["gin"].clear_config()


# The same examples in every run, so that the suite is repeatable; tests/test_properties.py looks for others.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("exploring", deadline=None, print_blob=True)
settings.load_profile("repeatable")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """--dist=loadfile, with two exceptions.

    Tests that share nothing with their file go to whichever worker is free. Files that start runs of half a dozen
    processes go to one worker, so that there is one such run at a time.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            if "test_every_scaling.py" in nodeid:
                return nodeid
            return "cluster" if "test_cluster" in nodeid else super()._split_scope(nodeid)

    return Scheduling(config, log)
