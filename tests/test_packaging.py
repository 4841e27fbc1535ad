"""What pip gets: the metadata, the lock file and the wheel."""

import email
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from setuptools.config.pyprojecttoml import read_configuration

from tests.source_tree import ELSEWHERE, ROOT, imported_distributions, repository_files


@pytest.fixture(scope="module")
def project():
    return read_configuration(ROOT / "pyproject.toml", expand=False)["project"]


@pytest.fixture(scope="module")
def version():
    """`__version__` of rbs_tf, read without importing it."""
    return re.search(r'^__version__ = "(.+)"$', (ROOT / "rbs_tf/__init__.py").read_text(), re.M)[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that pip builds from a copy of the project, `agents` and `networks` included."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "train.py"):
        shutil.copy(ROOT / name, source)
    for name in ("rbs_tf", "networks", "agents", "tests", "configs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    (source / "docs").mkdir()
    shutil.copy(ROOT / "docs/package.md", source / "docs")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(built), str(source)], check=True)
    (path,) = built.iterdir()
    return path


def packages(project, *extras):
    """What the extras ask for, all of them without arguments; those that they are made of stand for themselves."""
    listed = project["optional-dependencies"]
    asked = map(Requirement, sum((listed[extra] for extra in extras or listed), project["dependencies"]))
    return [required for required in asked if required.name != "rbs-tf"]


def of_the_clone():
    """What requirements.in asks for, which no wheel can use."""
    lines = (line.partition("#")[0].strip() for line in (ROOT / "requirements.in").read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def names(requirements):
    return {canonicalize_name(required.name) for required in requirements}


def holds(required, python):
    environment = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux"}
    return required.marker is None or required.marker.evaluate(environment | {"extra": ""})


def pins(python, lock="requirements.lock"):
    """{name: version} of the lock file's lines that hold for this version of Python."""
    held = [r for r in map(Requirement, (ROOT / lock).read_text().splitlines()) if holds(r, python)]
    return {r.name: Version(str(r.specifier).removeprefix("==")) for r in held}


def test_the_wheel_holds_rbs_tf_alone_and_every_module_and_table_of_it(wheel, version):
    info = f"rbs_tf-{version}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not name.startswith(f"{info}/")}
        assert archive.read(f"{info}/top_level.txt").split() == [b"rbs_tf"]
    patterns = ("**/*.py", "**/*.csv", "py.typed")
    found = (path for pattern in patterns for path in (ROOT / "rbs_tf").glob(pattern))
    assert packed == {str(path.relative_to(ROOT)) for path in found} and "rbs_tf/py.typed" in packed


def test_the_wheel_asks_for_numpy_alone_and_for_no_newest_python(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        fields = email.message_from_bytes(archive.read(metadata))
    assert (fields["License-Expression"], fields["Requires-Python"]) == ("Apache-2.0", ">=3.10")
    asked = map(Requirement, fields.get_all("Requires-Dist"))
    assert names(required for required in asked if holds(required, "3.13")) == {"numpy"}
    # What an index shows leads nowhere within the repository.
    assert re.findall(r"\]\((?!https://)[^)]*\)", fields.get_payload()) == []


def test_the_workflow_runs_the_tests_and_the_wheel_without_the_clone(wheel, tmp_path):
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    *_, ci = jobs["tests"]["steps"]
    *_, install, use = jobs["wheel"]["steps"]
    assert (ci["run"], install["run"]) == (".ci/run", "python -m pip install dist/*.whl")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    environment["PYTHONPATH"] = str(wheel)
    command = {"args": use["run"], "cwd": tmp_path, "env": environment, "capture_output": True, "text": True}
    assert f"{wheel}/rbs_tf" in subprocess.run(**command, shell=True, check=True).stdout


@pytest.mark.parametrize(
    ("newest", "python"), [("", "3.10"), ("", "3.11"), *(("-newest", f"3.1{k}") for k in (1, 2, 3))]
)
def test_lock_files_satisfy_the_metadata(project, newest, python):
    locked = pins(python, f"requirements{newest}.lock")
    # The newest one is of what the agent asks for on Python 3.13, on 3.11 beside older packages.
    agents = ("tensorflow", "gymnasium", "tf-agents", "atari", "minatar") if newest else ()
    # It has no tools for style, types, films and Weights & Biases.
    left_out = {"imageio-ffmpeg", "mypy", "pyyaml", "ruff", "wandb", "gym-notices"} if newest else set()
    for required in [*packages(project, *agents), *of_the_clone()]:
        if (
            required.name.replace("-", "_") not in ELSEWHERE
            and required.name not in left_out
            and (not newest or holds(required, "3.13"))
        ):
            assert locked[canonicalize_name(required.name)] in required.specifier, required
    assert ("dm-reverb" in locked) == (not newest) and ("tf-keras" in locked) == bool(newest)


def pages():
    return [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]


def test_every_extra_that_is_named_exists_and_one_place_changes_on_the_day_of_publication(project):
    sources = [path for folder in ("agents", "networks", "rbs_tf") for path in (ROOT / folder).rglob("*.py")]
    text = "\n".join(path.read_text() for path in [*pages(), *sources])
    named = re.findall(r"(?:rbs-tf|\.)\[([a-z-]+(?:,[a-z-]+)*)\]", text)
    assert len(named) > 5 and set(",".join(named).split(",")) <= project["optional-dependencies"].keys()
    # An extra of what is installed asks no index for it; the library comes from the clone, and one page says why.
    assert [page.name for page in pages() if re.search(r"pip install rbs-tf\b", page.read_text())] == []
    assert [page.name for page in pages() if "not published" in page.read_text()] == ["package.md"]


def test_the_citation_is_that_of_this_version(project, version):
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], cited["license"]) == (version, project["license"])


def test_what_the_packages_import_is_declared(project):
    # JAX and PyTorch, and MkDocs, are in environments of their own, which have requirements of their own.
    elsewhere = ("benchmarks/rivals/", "benchmarks/accelerators/compiling.py", "benchmarks/ppo_scales.py")
    elsewhere += ("rbs_tf/sb3.py",)
    files = {each for each in repository_files() if each.endswith(".py") and not each.startswith(elsewhere)}
    shipped = {each for each in files if each.startswith(("rbs_tf/", "networks/", "agents/", "train.py"))}
    extras = project["optional-dependencies"]
    assert imported_distributions(shipped) <= names([*packages(project), *of_the_clone()])
    assert imported_distributions(files) <= names([*packages(project), *of_the_clone()])
    # The package under the GPL is an extra of its own.
    assert [extra for extra in extras if "minatar" in names(packages(project, extra))] == ["minatar"]
