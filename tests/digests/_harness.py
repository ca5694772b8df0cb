"""What the commands of the harness print and write about deployments of this process.

As `_commands`, but `run`, `replay`, `init` and the pytest plugin meet an engine on virtual time in
place of a server: the transport calls it directly, and everything else is as in a live run.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

import pytest

from conformance.cli import main
from conformance.faults.registry import fault_of
from conformance.wire.in_process import deploy
from engine import Engine, Profile
from engine.http.demo import demo_lines, write_target
from tests.conformance.live import in_place_of_http
from tests.digests._verdicts import CHANGES, plain_text, recorded

__all__ = ["HARNESS", "harness_text"]


class _Session(NamedTuple):
    """Commands, and the deployment that they meet; given: what `deploy` takes."""

    lines: tuple[str, ...]
    fault: str | None = None
    profile: Mapping[str, Any] = {}
    change: str | None = None
    """A name of `CHANGES`: what alters the answers."""
    has_key: bool = False
    """Whether the environment holds a key for `init`."""


_ASKED: Final = "--select TOK-JSON,QUO-RATE,LIM-SEARCH,ERR-429 --seed 9"
_BAD: Final = "--select QUO-TOKENIZE,TOK-TYPES,LIM-PROXY-HOST --no-limits"
_ALL: Final = "--format junit,sarif,annotations,json,html"
_OWN: Final = (
    "-p no:hypothesispytest -p no:schemathesis -p no:anyio -p no:cacheprovider --disable-warnings"
)
_PYTEST: Final = f"pytest --pyargs conformance -q -rA {_OWN} --target target.toml --target-seed 3"
_FILES: Final = "--target-out one --target-format json,sarif"
_COMPARED: Final = "--target-baseline one --target-only-new --junitxml two.xml"
HARNESS: Final[Mapping[str, _Session]] = {
    "of a good deployment": _Session(
        (
            "conformance check target.toml",
            "conformance check few.toml --select TOK-,LIM-PUBLIC --no-limits",
            "conformance check nothing.toml",
            "conformance run target.toml --plan --seed 5",
            f"conformance run target.toml {_ASKED} --out one",
            "conformance run target.toml --select TOK-JSON --seed 9 --out one",
            "conformance judge one",
            "conformance replay one TOK-",
            "conformance run expecting.toml --select TOK-TYPES --seed 2 --out two --strict",
            "conformance run wrong.toml --select TOK-TYPES --seed 2 --out three",
            "conformance run few.toml --select LIM-SEARCH,TOK-DEDUP --seed 2 --strict",
        )
    ),
    "of a bad deployment": _Session(
        (
            f"conformance run target.toml {_BAD} --seed 9 --out one {_ALL}",
            "conformance judge one --strict",
            "conformance replay one QUO-",
            "conformance replay one QUO- --target few.toml",
            f"conformance run target.toml {_BAD} --seed 8 --out two --baseline one --only-new",
            f"conformance run target.toml {_BAD},ERR-408 --seed 8 --out two --force --baseline one",
            "conformance run expecting.toml --select QUO- --seed 8 --out three --quiet",
            "conformance run target.toml --select QUO-CVC --seed 8 --baseline one --out four",
            "conformance run target.toml --only-new",
        ),
        fault="tokenize-one-more",
    ),
    "of schemas": _Session(
        ("conformance run target.toml --schema-only --seed 4 --out one --format json --quiet",),
        fault="odd-metadata-ignored",
    ),
    "of new targets": _Session(
        (
            "conformance init one/mine.toml --url http://in-process.example",
            "conformance init mine.toml --url http://in-process.example",
            "conformance check mine.toml",
            "conformance init mine.toml --url http://in-process.example",
            "conformance init other.toml --url in-process.example",
        ),
    ),
    "of new targets with a key": _Session(
        (
            "conformance init mine.toml --url http://in-process.example/",
            "conformance check mine.toml",
        ),
        profile={"tokens": {"container_form": "string"}},
        has_key=True,
    ),
    **{
        f"that meet {change}": _Session(
            (
                "conformance init mine.toml --url http://in-process.example",
                "conformance run target.toml --select TOK-TYPES,ERR-429 --seed 3 --quiet --out one",
                "conformance run few.toml --select TOK-TYPES,QUO-RATE --seed 3 --out two",
            ),
            change=change,
            has_key=True,
        )
        for change in (
            "status 404, all",
            "status 403, every fifth",
            "status 200, every second",
            "cut off, all",
            "cut off, every second",
            "no JSON, all",
            "no texts, all",
            "without id, all",
        )
    },
    "of pytest": _Session(
        (
            f"{_PYTEST} -k 'QUO- or TOK-TYPES or LIM-SEARCH' --target-no-limits {_FILES}",
            f"{_PYTEST} -k 'QUO-RATE or QUO-TOKENIZE' --target-strict {_COMPARED}",
            f"{_PYTEST} -k TOK-TYPES --target-format sarif --tb=no",
            f"{_PYTEST} -k 'QUO-TOKENIZE or TOK-TYPES' --target expecting.toml",
            f"{_PYTEST} -k TOK-TYPES --target wrong.toml",
            f"{_PYTEST} -k TOK-TYPES --target nothing.toml --tb=no",
        ),
        fault="tokenize-one-more",
    ),
}
"""Name → the session."""

_PLAIN: Final = {
    "CI": "",  # where it is set, pytest cuts no line
    "BUILD_NUMBER": "",
    "COLUMNS": "100",
    "NO_COLOR": "1",
    "PYTHON_COLORS": "0",
    "TERM": "dumb",
    "GITHUB_ACTIONS": "true",
}
_PASSED: Final = re.compile(
    r"in [0-9.]+s\b|,? ?\d+ warnings?(?:, )?|(?<= )(?:time|hostname)=\"[^\"]*\""
)
_PLACE: Final = re.compile(r"\S*(pytest_plugin\.py)(?::\d+)?")
_COORDINATE: Final = re.compile(r"(\b[xy]\W+)[\w-]{43}\b")
"""Of a key for encryption, which is new in each process."""
_SECRET: Final = b"in process" * 4


def harness_text(name: str) -> str:
    """Return what a session prints, writes and sends."""
    session = HARNESS[name]
    said = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        with _deployed(session), recorded() as sent:
            said += [f"$ {line}\n{_ran(shlex.split(line))}" for line in session.lines]
        for path in sorted(one for one in Path().rglob("*") if one.is_file()):
            said.append(f"+ {path}\n{path.read_text(encoding='utf-8')}")
        text = "\n".join([*said, str(sent)]).replace(os.path.realpath(folder), "…")
    text = _COORDINATE.sub(r"\1…", text.replace(folder, "…"))
    return plain_text(_PASSED.sub("", _PLACE.sub(r"\1", text)))


@contextlib.contextmanager
def _deployed(session: _Session) -> Iterator[None]:
    """Let the harness reach one deployment in place of any server; write its target files."""
    make: Any = Engine if session.fault is None else fault_of(session.fault).engine
    engine = deploy(engine=make, profile=Profile().replace(**session.profile), keys_a_role=2).engine
    lines = list(demo_lines(engine, _SECRET, 2, "https://destination.example"))
    key = next(line["key"] for line in lines if line["role"] == "private_reader")
    few = [line for line in lines if line["role"] in {"private_prod", "private_test"}]
    url = "http://in-process.example"
    write_target(Path("target.toml"), url, engine, lines)
    write_target(Path("few.toml"), url, engine, few)
    write_target(
        Path("wrong.toml"),
        url,
        engine,
        [{**line, "key": f"no key {at}"} for at, line in enumerate(few)],
    )
    expected = 'expected_failures = ["QUO-TOKENIZE", "TOK-TYPES"]\n'
    Path("expecting.toml").write_text(expected + Path("target.toml").read_text("utf-8"), "utf-8")

    told = key if session.has_key else ""
    with (
        in_place_of_http(engine, None if session.change is None else CHANGES[session.change]()),
        mock.patch.dict(os.environ, {**_PLAIN, "KEY_PRIVATE_PROD_1": told}),
    ):
        yield


def _ran(words: list[str]) -> str:
    """Run a command in this process; returns what it printed and its exit code."""
    out = io.StringIO()
    code: object = None
    with (
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        try:
            code = int(pytest.main(words[1:])) if words[0] == "pytest" else main(words[1:])
        except SystemExit as error:
            code = error.code
    return f"{out.getvalue()}\nexit {code}"
