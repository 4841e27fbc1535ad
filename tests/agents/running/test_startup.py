"""What a user sees on the terminal before the first line of our own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

QUIET = "from agents.running.startup import quiet; quiet(); quiet()"

IMPORTS = """
import tensorflow, tf_agents, reverb, gymnasium, ale_py
import ale_py.vector_env
from tf_agents.agents import tf_agent
from tf_agents.train import learner
from tf_agents.replay_buffers import reverb_replay_buffer
"""

FIRST_STEPS = """
import tensorflow as tf, reverb, ale_py.vector_env
from tf_agents.utils import common
tf.function(common.safe_has_state)(tf.zeros(3))
ale_py.vector_env.AtariVectorEnv("pong", num_envs=1).reset()
server = reverb.Server([reverb.Table.queue("queue", 1)])
client = reverb.Client(f"localhost:{server.port}")
client.insert([1.0], {"queue": 1.0})
list(client.sample("queue"))
server.stop()
"""


def run(*statements: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the statements in a Python of their own, in an environment that says nothing about verbosity."""
    inherited = {k: v for k, v in os.environ.items() if k not in ("TF_CPP_MIN_LOG_LEVEL", "RBS_TF_VERBOSE")}
    return subprocess.run(
        [sys.executable, "-c", "\n".join(statements)],
        cwd=ROOT,
        env=inherited | environment,
        capture_output=True,
        text=True,
    )


PYTHONS = "python's own\nWARNING:root:logged\nafter\nWARNING:root:logged after\n"


def test_imports_and_reverbs_log_stay_off_the_terminal_and_python_on_it(tmp_path):
    program = f"""
import logging, sys
from agents.running.startup import redirect_native_messages
with redirect_native_messages({str(tmp_path / "native.log")!r}):
    exec({FIRST_STEPS!r})
    print("python's own", file=sys.stderr)
    logging.warning("logged")
print("after", file=sys.stderr)
logging.warning("logged after")
"""
    finished = run(QUIET, IMPORTS, program)
    assert (finished.stdout, finished.stderr, finished.returncode) == ("", PYTHONS, 0)
    assert "Started replay server" in (tmp_path / "native.log").read_text()


def test_nothing_is_silenced_with_rbs_tf_verbose(tmp_path):
    program = f"""
import os
from agents.running.startup import redirect_native_messages
with redirect_native_messages({str(tmp_path / "log")!r}):
    os.write(2, b"of a library")
print(os.environ.get("TF_CPP_MIN_LOG_LEVEL"))
"""
    finished = run(QUIET, program, RBS_TF_VERBOSE="1")
    assert (finished.stdout, finished.stderr) == ("None\n", "of a library")
    assert not (tmp_path / "log").exists()


def test_the_module_imports_no_tensorflow_and_keeps_the_users_level_errors_and_pythons_streams():
    program = """
import os, sys
print(os.environ["TF_CPP_MIN_LOG_LEVEL"], {"tensorflow", "numpy", "tf_agents"} & sys.modules.keys())
print("err", file=sys.stderr)
sys.exit("stopped")
"""
    finished = run(QUIET, program, TF_CPP_MIN_LOG_LEVEL="1")
    assert (finished.stdout, finished.stderr, finished.returncode) == ("1 set()\n", "err\nstopped\n", 1)
