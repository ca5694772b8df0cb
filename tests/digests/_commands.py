"""What commands print and write, as text that is equal wherever and whenever they ran.

Each case is the lines of one session in an empty folder, such as a run, its repetition with other
limits and the comparison of the two. The text holds what was printed, the exit codes and every file
that was written, but for what differs from machine to machine: durations, the versions of packages
and the last digits of numbers with a point.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Final
from unittest import mock

import pandas as pd

__all__ = ["SESSIONS", "printed", "same_everywhere"]

_PLAIN: Final = {"COLUMNS": "100", "NO_COLOR": "1", "PYTHON_COLORS": "0", "TERM": "dumb"}
_READABLE: Final = {".html", ".json", ".toml", ".txt", ".csv", ".md", ".xml", ".sarif"}
_NUMBER: Final = re.compile(r"-?\d+\.\d{5,}(?:e[-+]?\d+)?")
_CHECKED: Final = re.compile(r"; \d+\.\d\d s\)")
_TOOK: Final = re.compile(r'("(?:took|check|decide|write|load)\w*_s(?:econds)?": )[\d.e-]+')


def _log(rows: int, step_ns: int) -> pd.DataFrame:
    """Return a log of a few keys and addresses, with waves, some refusals and a repeated row."""
    at_ns = 1_767_225_600 * 10**9
    lines = []
    for place in range(rows):
        at_ns += step_ns * (1 + (place * 7) % 5) * (4 if place % 200 > 150 else 1)
        lines.append(
            {
                "time": pd.Timestamp(at_ns, unit="ns", tz="UTC").isoformat(),
                "ip": f"203.0.113.{place * 5 % 4}",
                "key": f"secret-{place * 3 % 3}",
                "method": "GET" if place % 3 else "POST",
                "path": ("/tokens/abc", "/tokens", "/tokenize")[place % 3],
                "status": 429 if place % 11 == 0 else 200,
            }
        )
    return pd.DataFrame(lines)


_VARIED: Final = "clients.browsers.count"
_KEPT: Final = "--keep refused_share<80%"
SESSIONS: Final[dict[str, tuple[str, ...]]] = {
    "run everyday": ("simulator run everyday --fidelity compiled --out one --quiet",),
    "run checkout": ("simulator run checkout --fidelity limits --out one",),
    "run engine": ("simulator run management-loop --fidelity engine --out one --seed 3",),
    "run replicated": (
        "simulator run shared-office --fidelity compiled --replications 5 --out one",
        "simulator run shared-office --fidelity compiled --precision 0.2 --out two",
    ),
    "compare precisely": (
        "simulator run shared-office --fidelity compiled --replications 3 --out one --quiet",
        "simulator run shared-office --fidelity compiled --seed 40 --replications 3 --out two",
        "simulator compare one two",
        "simulator compare one two --precision 0.2 --most-replications 8",
        "simulator compare one two --json --strict",
    ),
    "run nodes": ("simulator run several-nodes --fidelity compiled --out one",),
    "run cold starts": ("simulator run cold-starts --fidelity compiled --out one",),
    "run slow destination": ("simulator run slow-destination --fidelity limits --out one",),
    "run few columns": (
        "simulator run retry-storm --fidelity compiled --columns t_ns,outcome,rule --out one",
    ),
    "replay csv": ("simulator replay log.csv --as public --out one",),
    "replay against": (
        "engine limits --toml",
        "simulator replay log.csv --as private --tenant test --against here.toml --out one",
        "simulator replay log.csv --as private --tenant test --speed 4 --out two",
        "simulator compare one two",
        "simulator compare one two --json",
    ),
    "fit": ("simulator fit log.csv --as public --out made.toml --runs 9",),
    "fit half": ("simulator fit log.csv --as private --out made.toml --holdout 50%",),
    "sweep": (
        "simulator sweep checkout --set clients.shoppers.count=20,40 --out one --quiet",
        "simulator sweep checkout --set clients.shoppers.count=20..40 --sample lhs:3 --out two",
    ),
    "capacity": (f"simulator capacity shared-office --vary {_VARIED} --between 10 200 {_KEPT}",),
    "compare": (
        "engine limits --toml",
        "simulator compare shared-office checkout --limits here.toml --replications 3 --out one",
        "simulator compare shared-office --limits here.toml --replications 3 --json",
    ),
    "advise": ("simulator advise shared-office --replications 5 --out one",),
    "advise verified": ("simulator advise legacy-migration --replications 4 --verify",),
    "coverage": ("simulator coverage",),
    "scenarios": ("simulator scenarios", "simulator init mine.toml", "simulator check mine.toml"),
    "check": tuple(
        f"simulator check {name}"
        for name in ("everyday", "cold-starts", "several-nodes", "month-end", "nothing")
    ),
    "limits": ("engine limits", "engine limits --toml", "engine limits --limits here.toml"),
    "profile": ("engine profile", "engine profile --profile here.toml"),
    "conformance": (
        "conformance list",
        "conformance explain TOK-ATOMIC",
        "conformance explain LIM-PUBLIC",
        "conformance explain AUTH-KINDS",
        "conformance init target.toml",
        "conformance check target.toml",
    ),
}
"""Name → the commands of a session."""


def printed(name: str) -> str:
    """Return what a session prints and writes."""
    said = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        _log(3_000, 40_000_000).to_csv("log.csv", index=False)
        before = {*Path().rglob("*")}
        for line in SESSIONS[name]:
            said.append(f"$ {line}\n{_ran(line.split())}")
            if line == "engine limits --toml":
                table = said[-1].partition("\n")[2].rpartition("\nexit ")[0]
                Path("here.toml").write_text(table.replace('rate = "', 'rate = "1', 1))
        for path in sorted(set(Path().rglob("*")) - before):
            said.append(f"+ {path}")
            if path.suffix in _READABLE:
                said.append(path.read_text(encoding="utf-8"))
        text = "\n".join(said).replace(os.path.realpath(folder), "…").replace(folder, "…")
    return same_everywhere(text)


def _ran(words: list[str]) -> str:
    """Run a command in this process; returns what it printed and its exit code."""
    main: Callable[[list[str]], int | None] = import_module(f"{words[0]}.cli").main
    out = io.StringIO()
    code: object = None
    with _quiet(out, words):
        try:
            code = main(words[1:])
        except SystemExit as error:
            code = error.code
    return f"{out.getvalue()}\nexit {code}"


@contextlib.contextmanager
def _quiet(out: io.StringIO, words: list[str]) -> Iterator[None]:
    with (
        mock.patch.dict(os.environ, _PLAIN),
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        yield


def same_everywhere(text: str) -> str:
    """Return a text without durations, and with at most four digits of a long number."""
    text = _CHECKED.sub("; … s)", _TOOK.sub(r"\1…", text))
    return _NUMBER.sub(lambda found: f"{float(found[0]):.4g}", text)
