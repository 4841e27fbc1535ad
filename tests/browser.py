"""Pages as a headless Chromium shows them: the document after its scripts have run.

A test that uses these is skipped where no Chromium is installed; where CI is set in the environment, it fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def dom(url: str, *flags: str) -> str:
    """The document of a page, http://... or file:///..., as HTML once its scripts have run; `flags`: Chromium's."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = f"no Chromium is installed (looked for {', '.join(NAMES)})"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(reason)
    command = [found, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    # A profile of its own: a second Chromium of the same profile would hand its page to the first, and end.
    with tempfile.TemporaryDirectory(prefix="chromium_", ignore_cleanup_errors=True) as profile:
        command += [f"--user-data-dir={profile}", "--virtual-time-budget=15000", "--dump-dom", *flags, url]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout
