"""The locks pin what pyproject.toml asks for, by hash, and agree with each other."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.house import _tidy
from tests.house._files import PACKAGES, python_files, tree

LOCKS = ("requirements/run.lock", "requirements/dev.lock", "requirements/uv.txt")
_PIN = re.compile(r"^([a-z0-9][\w.-]*)==(\S+)(?: ; (.+?))? \\$")


def _blocks(lock: Path) -> list[str]:
    """One text a pinned package: its line, and the indented lines that follow."""
    blocks: list[str] = []
    for line in lock.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith((" ", "#")):
            blocks[-1] += line
        else:
            blocks.append(line)
    return blocks


def _pins(lock: Path) -> set[tuple[str, str]]:
    """Name and version; a package may be pinned twice, under different markers."""
    matches = (_PIN.match(block.splitlines()[0]) for block in _blocks(lock))
    return {(match[1], match[2]) for match in matches if match}


@pytest.mark.parametrize("name", LOCKS)
def test_every_line_is_an_exact_pin_with_hashes(repository: Path, name: str) -> None:
    blocks = _blocks(repository / name)
    assert blocks
    for block in blocks:
        assert _PIN.match(block.splitlines()[0]), block
        assert "--hash=sha256:" in block, block


def test_what_runs_is_a_part_of_what_develops(repository: Path) -> None:
    run, dev, uv = (_pins(repository / name) for name in LOCKS)
    assert uv <= run <= dev


def test_the_locks_satisfy_the_project(repository: Path) -> None:
    asked = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    groups = asked["dependency-groups"]
    run = asked["project"]["dependencies"] + asked["build-system"]["requires"]
    extras = [
        line for lines in asked["project"]["optional-dependencies"].values() for line in lines
    ]
    dev = [*run, *extras, *(line for lines in groups.values() for line in lines)]
    for name, lines in (("requirements/run.lock", run), ("requirements/dev.lock", dev)):
        pins = _pins(repository / name)
        for line in lines:
            wanted = Requirement(line)
            if wanted.name == asked["project"]["name"]:  # another extra of its own
                assert wanted.extras <= set(asked["project"]["optional-dependencies"])
                continue
            versions = [Version(version) for pinned, version in pins if pinned == wanted.name]
            assert versions, f"{name} must pin {wanted.name}; run make lock"
            assert all(v in wanted.specifier for v in versions), f"{line}: {name} has {versions}"


def test_a_ceiling_names_the_test_that_needs_it(repository: Path) -> None:
    """An upper bound keeps a user from newer versions: only where a test would fail with them."""
    asked = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    extras = asked["project"]["optional-dependencies"].values()
    lines = [*asked["project"]["dependencies"], *(line for extra in extras for line in extra)]
    bounded = [
        line
        for line in lines
        if {bound.operator for bound in Requirement(line).specifier} & {"<", "<=", "==", "~="}
    ]
    assert bounded
    text = (repository / "pyproject.toml").read_text(encoding="utf-8")
    for line in bounded:
        comment = text.partition(f'"{line}"')[2].splitlines()[0]
        named = re.search(r"tests/[\w/]+\.py", comment)
        assert named, f"{line}: name the test in the comment beside it"
        assert (repository / named[0]).exists()


@pytest.mark.slow
def test_a_package_that_is_imported_is_not_excused(repository: Path) -> None:
    """What deptry is told to overlook is really imported nowhere in the packages."""
    asked = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    deptry = asked["tool"]["deptry"]
    names = deptry["package_module_name_map"]
    excused = {names.get(n, n.replace("-", "_")): n for n in deptry["per_rule_ignores"]["DEP002"]}
    imported = {
        name.split(".")[0]
        for path in python_files(*PACKAGES)
        for name in _tidy.imported_names(tree(path))
    }
    stale = sorted(excused[name] for name in imported & set(excused))
    assert stale == [], "imported now: take it off tool.deptry.per_rule_ignores"


def test_serve_has_its_parser_on_every_platform(repository: Path) -> None:
    """`engine.http.protocol` derives from uvicorn's protocol of httptools, wherever it runs."""
    asked = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    named = {
        wanted.name: wanted
        for wanted in map(Requirement, asked["project"]["optional-dependencies"]["server"])
    }
    assert named["httptools"].marker is None
    blocks = _blocks(repository / "requirements/dev.lock")
    (pin,) = (block for block in blocks if block.startswith("httptools=="))
    assert ";" not in pin.splitlines()[0]
