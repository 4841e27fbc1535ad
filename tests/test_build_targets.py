"""The Bazel targets in BUILD, read without Bazel: what they hold and what they depend on."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.source_tree import ROOT, imported_distributions, imported_modules, repository_files

LAYERS = ["train", "agents", "networks", "rbs_tf"]  # each imports from those to its right


@dataclass(frozen=True)
class Target:
    rule: str
    name: str
    srcs: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    deps: tuple[str, ...] = ()


def read_build(files: set[str]) -> list[Target]:
    """Evaluates BUILD as the Python that it nearly is, with rules that only note down what they are given."""
    targets = []

    def glob(include, exclude=()):
        def matches(patterns):
            return {str(path.relative_to(ROOT)) for each in patterns for path in ROOT.glob(each)} & files

        assert matches(include), f"glob({include}) matches no file"
        return sorted(matches(include) - matches(exclude))

    def rule(kind):
        def declare(name, srcs=(), data=(), deps=(), **_):
            targets.append(Target(kind, name, tuple(srcs), tuple(data), tuple(deps)))

        return declare

    rules = {kind: rule(kind) for kind in ("py_binary", "py_library", "py_test")}
    others = {"glob": glob, "load": lambda *_: None, "package": lambda **_: None}
    exec(compile((ROOT / "BUILD").read_text(), "BUILD", "exec"), rules | others)
    return targets


FILES = repository_files()
TARGETS = {target.name: target for target in read_build(FILES)}


def with_dependencies(name: str) -> set[str]:
    """Names of the target's own local dependencies, and theirs."""
    local = {dep[1:] for dep in TARGETS[name].deps if dep.startswith(":")}
    return local.union(*(with_dependencies(dep) for dep in local))


def test_every_python_file_belongs_to_exactly_one_target():
    owners = Counter(source for target in TARGETS.values() for source in target.srcs)
    python_files = {name for name in FILES if name.endswith(".py")}
    assert {name: owners[name] for name in python_files | owners.keys() if owners[name] != 1} == {}
    assert owners.keys() == python_files


def test_every_named_file_exists_and_every_test_file_is_a_test_target():
    for target in TARGETS.values():
        missing = {name for name in target.srcs + target.data if not (ROOT / name).is_file()}
        assert missing == set(), target.name
        assert {dep[1:] for dep in target.deps if dep.startswith(":")} <= TARGETS.keys(), target.name
    tests = {name for name in FILES if name.startswith("tests/") and Path(name).name.startswith("test_")}
    assert tests == {s for target in TARGETS.values() if target.rule == "py_test" for s in target.srcs}


@pytest.mark.parametrize("layer", LAYERS)
def test_dependencies_run_one_way_and_name_what_the_files_import(layer):
    assert with_dependencies(layer) <= set(LAYERS[LAYERS.index(layer) + 1 :])
    target = TARGETS[layer]
    local = {f":{name}" for name in imported_modules(target.srcs) & set(LAYERS) - {layer}}
    external = {f"@pypi//{name.replace('-', '_')}" for name in imported_distributions(target.srcs)}
    assert local | external <= set(target.deps)
