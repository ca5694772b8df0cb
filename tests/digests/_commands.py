"""What commands print and write, as text that is equal wherever and whenever they ran.

Each case is the lines of one session in a folder that holds only the files that it names, such as a
run, its repetition with other limits and the comparison of the two. The text holds what was
printed, the exit codes and every file that was written, Parquet files as their columns, but for
what differs from machine to machine: durations, the versions of packages and the last digits of
numbers with a point.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from importlib import import_module
from pathlib import Path
from typing import Final
from unittest import mock

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from simulator.progress import tell_line
from tests.drawn import Seeded, outside_scenario_text, scenario_text

__all__ = ["HERE", "SESSIONS", "printed", "same_everywhere"]

_PLAIN: Final = {"COLUMNS": "100", "NO_COLOR": "1", "PYTHON_COLORS": "0", "TERM": "dumb"}
_READABLE: Final = {".html", ".json", ".toml", ".txt", ".csv", ".md", ".xml", ".sarif"}
_NUMBER: Final = re.compile(r"-?\d+\.\d{5,}(?:e[-+]?\d+)?")
_LEFT: Final = re.compile(r", about [^\n,]* left")
_CHECKED: Final = re.compile(r"([;(]) ?\d+\.\d\d s\)")
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


def _access_log(rows: int) -> str:
    """Return a combined log with keys after the agent, out of order, and with faulty lines."""
    ips = [*(f"198.51.100.{number}" for number in range(4)), f"2001:db8{':1234' * 6}"]
    lines = []
    for place in range(rows):
        at = pd.Timestamp(1_767_225_600 + (place ^ 1) // 90, unit="s")
        request = ("GET /tokens/abc?x=1", "POST /tokenize", "GET /me", "DELETE /keys")[place % 4]
        lines.append(
            f"{ips[place * 3 % 5]} - - [{at:%d/%b/%Y:%H:%M:%S} +0000]"
            f' "{request} HTTP/1.1" {429 if place % 7 == 0 else 200}'
            f' 12 "-" "curl/8" "key_{place * 5 % 6}" 0.{place % 9}'
        )
    lines[40:40] = ["", "garbage", lines[3].replace("Jan", "Jam"), lines[4][:60], lines[5] + ' "x']
    return "\n".join(lines) + "\n"


_MAP: Final = """
time = { field = "time", unit = "iso" }
address = "ip"
key = { field = "key", pattern = "-([0-9])", default = "none" }
method = "method"
path = "path"
tenant = { field = "key", lookup = { "secret-0" = "one", "secret-1" = "two" }, default = "three" }
tenant_kind = { field = "key", lookup = { "secret-1" = "test" }, default = "production" }
application = { field = "key", default = "none" }
application_kind = { field = "key", lookup = { "secret-1" = "legacy" }, default = "public" }
"""
_PATTERN: Final = r"""
line = '^(?P<ip>\S+) .*\[(?P<at>[^]]+)\] "(?P<line>[^"]+)" \d+ \d+ "-" "[^"]*" "(?P<key>[^"]+)"'
time = { field = "at", unit = "clf" }
address = "ip"
request = "line"
key = "key"
application_kind = { value = "private" }
"""


def _drawn(text: Callable[[Seeded], str], seed: int) -> str:
    return text(Seeded(seed))


_FILES: Final[dict[str, Callable[[], str]]] = {
    "log.csv": lambda: _log(3_000, 40_000_000).to_csv(index=False),
    "short.jsonl": lambda: (
        _log(400, 40_000_000)
        .assign(key=lambda rows: [f"secret-{place % 7 % 3}" for place in rows.index])
        .to_json(orient="records", lines=True)
    ),
    "access.log": lambda: _access_log(600),
    "map.toml": lambda: _MAP,
    "pattern.toml": lambda: _PATTERN,
    "wrong.toml": lambda: _MAP.replace("method =", "request =").replace('path = "path"', ""),
    "slow.toml": lambda: '[limits]\nthrottle = "delay"\n',
    **{f"drawn-{seed}.toml": partial(_drawn, scenario_text, seed) for seed in range(12)},
    **{f"outside-{seed}.toml": partial(_drawn, outside_scenario_text, seed) for seed in range(12)},
}
"""Name → the text of a file that a session may name."""

_VARIED: Final = "clients.browsers.count"
_GRID: Final = "--set clients[0].count=1,3 --set rules.LIM-PUBLIC.rate=2/1s,9/1s"
_RANGES: Final = " ".join(
    f"--set {text}"
    for text in ("clients[0].count=1..4", "rules.LIM-IP.rate=1/1s..9/1s", "duration=2s..9s")
)
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
    "run drawn": tuple(
        f"simulator run {kind}-{seed}.toml --fidelity {fidelity} --out {kind}-{seed}"
        for kind, seed, fidelity in (
            *(("drawn", seed, "compiled") for seed in (1, 4, 5)),
            *(("outside", 3, "compiled"), ("outside", 4, "engine")),
        )
    ),
    "run warm up": (
        "simulator run shared-office --fidelity limits --warm-up 20s --no-check --out one",
        "simulator run drawn-3.toml --fidelity compiled --replications 3 --strict --columns key",
        "simulator run drawn-3.toml --fidelity compiled --replications 3 --columns decisions",
        "simulator run drawn-3.toml --fidelity compiled --out one",
        "simulator run outside-5.toml --fidelity compiled --replications 2 --quiet --force",
    ),
    "replay logs": (
        "simulator replay access.log --out one",
        "simulator replay access.log --map pattern.toml --fidelity engine --out two",
        "simulator replay short.jsonl --map map.toml --profile slow.toml --out three",
        "simulator replay short.jsonl --map map.toml --fidelity compiled --quiet --out four",
        "simulator replay log.csv --map wrong.toml",
        "simulator replay short.jsonl --time-column tme",
        "simulator replay short.jsonl --format combined",
        "simulator compare one two --json",
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
    "fit map": (
        "simulator fit short.jsonl --map map.toml --runs 9 --out made.toml",
        "simulator fit access.log --as management --quiet --out half.toml --holdout 30%",
        "simulator fit short.jsonl --tenant test --runs 3 --out made.toml",
        "simulator fit short.jsonl --tenant test --runs 3 --out made.toml --force",
    ),
    "fit half": ("simulator fit log.csv --as private --out made.toml --holdout 50%",),
    "sweep": (
        "simulator sweep checkout --set clients.shoppers.count=20,40 --out one --quiet",
        "simulator sweep checkout --set clients.shoppers.count=20..40 --sample lhs:3 --out two",
    ),
    "sweep again": (
        f"simulator sweep drawn-6.toml {_GRID} --replications 2 --workers 2 --out one",
        f"simulator sweep drawn-6.toml {_GRID} --replications 2 --workers 1 --out one",
        f"simulator sweep drawn-6.toml {_GRID} --replications 3 --out one",
        f"simulator sweep drawn-6.toml {_RANGES} --sample lhs:4 --fidelity limits --out two",
        f"simulator sweep drawn-6.toml {_RANGES} --out three",
        "simulator sweep drawn-6.toml --set clients[9].count=1 --quiet --out four",
        "simulator sweep drawn-6.toml --set rules.LIM-PUBLIC.rate=1/1s..3/2s --sample lhs:2",
        "simulator sweep drawn-6.toml --set seed=5..1 --sample lhs:2",
        "simulator sweep drawn-6.toml --set seed=1 --sample some",
    ),
    "capacity of rates": tuple(
        f"simulator capacity {words}"
        for words in (
            "checkout --vary clients.shoppers.count --between 1 400 --keep goodput>1/1s --quiet",
            "drawn-0.toml --vary rules.LIM-IP.rate --between 1/1s 40/1s --keep refused_share<=0.5",
            "bulk-import --vary duration --between 1s 30s --keep refused_share<0.5 --strict",
            (
                "drawn-1.toml --vary clients[0].count --between 1 9 --keep refused_share<=0.45"
                " --quiet --most-replications 6 --strict --tolerance 0.2"
            ),
            "everyday --vary clients[0].name --between 1 2 --keep refused_share<1",
            "everyday --vary seed --between 2 1 --keep refused_share<1",
        )
    ),
    "capacity": (f"simulator capacity shared-office --vary {_VARIED} --between 10 200 {_KEPT}",),
    "compare": (
        "engine limits --toml",
        "simulator compare shared-office checkout --limits here.toml --replications 3 --out one",
        "simulator compare shared-office --limits here.toml --replications 3 --json",
    ),
    "compare profiles": (
        "engine limits --toml",
        (
            "simulator compare drawn-8.toml outside-6.toml --profile slow.toml --limits here.toml"
            " --replications 4 --out one"
        ),
        "simulator compare drawn-8.toml --profile slow.toml --json --replications 3",
        "simulator compare drawn-8.toml --profile slow.toml --precision 0.3",
        "simulator compare checkout everyday",
        "simulator compare one",
    ),
    "advise log": (
        (
            "simulator advise access.log --as public --replications 4 --out one --refused 20%"
            " --most-replications 6"
        ),
        (
            "simulator advise drawn-9.toml --for g0 --replications 4 --seed 3 --quiet"
            " --most-replications 9"
        ),
        "simulator advise drawn-9.toml --for nobody",
        "simulator advise short.jsonl --map map.toml --replications 4 --most-replications 5",
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


HERE: Final = Path(__file__).parents[2].resolve().as_uri()


def printed(name: str) -> str:
    """Return what a session prints and writes."""
    said = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        words = set(" ".join(SESSIONS[name]).split())
        for file in sorted(words & _FILES.keys()):
            Path(file).write_text(_FILES[file]())
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
            elif path.suffix == ".parquet":
                said.append(_columns_of(path))
        text = "\n".join(said).replace(os.path.realpath(folder), "…").replace(folder, "…")
        text = text.replace(HERE, "…")  # schemas are named by where this checkout is
    return same_everywhere(text)


def _columns_of(path: Path) -> str:
    """Return how a Parquet file is written, and what its columns hold."""
    file = pq.ParquetFile(path)
    said = [str(file.schema_arrow.remove_metadata()), str(file.metadata.num_row_groups)]
    for place, name in enumerate(file.schema_arrow.names):
        column = file.read([name]).column(0)
        values = repr(column.to_pylist())
        if column.type in {pa.float64(), pa.string()}:
            values = same_everywhere(values)
        digest = hashlib.sha256(values.encode()).hexdigest()[:12]
        chunk = file.metadata.row_group(0).column(place) if file.metadata.num_row_groups else None
        said.append(f"{name} {digest} {chunk and (chunk.compression, sorted(chunk.encodings))}")
    return "\n".join(said)


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
        mock.patch("simulator.progress.TELL_EVERY_S", math.inf),
        mock.patch("simulator.play.simulation._note_once", lru_cache(tell_line)),
        mock.patch.object(sys, "argv", words),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        yield


def same_everywhere(text: str) -> str:
    """Return a text without durations, and with at most four digits of a long number."""
    text = _LEFT.sub("", _CHECKED.sub(r"\1… s)", _TOOK.sub(r"\1…", text)))
    return _NUMBER.sub(lambda found: f"{float(found[0]):.4g}", text)
