"""`replay` as a command: what it prints and exits with; a log cannot harm a terminal."""

import argparse
import csv
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

import simulator
from engine.errors import InputError
from engine.limits import LimitTable
from engine.profile import Profile
from simulator.cli import main
from simulator.commands import logs as cli
from simulator.options import ReplayOptions
from simulator.rows import Result, RunRecorder
from simulator.rows.invariants import Violation
from tests.simulator.logs.test_tools import IP

LINE = '203.0.113.7 - - [17/May/2015:10:05:{second:02d} +0000] "GET /x HTTP/1.1" 200 1 "-" "-"'


def run(*words: str | Path) -> int:
    parser = argparse.ArgumentParser()
    cli.add_replay(parser)
    return cli.run_replay(parser.parse_args([str(word) for word in words]))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "access.log"
    lines = [LINE.format(second=n % 60) for n in range(60)]
    file.write_text("\n".join([*lines, "\x1b[31mred", *lines[:3]]))
    return file


def test_it_says_who_when_by_which_clause_and_for_how_long(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(log, "--out", tmp_path / "out") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "read access.log as combined:"
    assert lines[6].startswith("lines: 63 read, 1 skipped, from 2015-05-17T10:05:00Z to 2015-05")
    assert lines[8:10] == [
        "skipped: access.log:61: identity is missing, truncated or malformed",
        "limits default, profile default, fidelity limits, speed 1, seed 0",
    ]
    assert lines[10] == (
        "63 requests from 1 address with 1 key, over 59 s of log: 13 would have been refused"
        " (20.6 %)."
    )
    assert (
        "203.0.113.7 key-0001 LIM-PUBLIC 13 2015-05-17 10:05:47 2015-05-17 10:05:59 20 s" in lines
    )
    assert lines[-4].startswith("self-checks: passed")
    assert lines[-2] == (
        f"repeat with: python -m simulator replay {log} --out {tmp_path / 'out'} --force"
    )
    assert lines[-1] == f"report: {tmp_path / 'out' / 'report.html'}"


def test_several_nodes_are_named(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = tmp_path / "nodes.toml"
    profile.write_text('[nodes]\ncount = 2\nsharing = "none"\n')
    assert run(log, "--profile", profile, "--out", tmp_path / "out") == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"limits default, profile {profile}, fidelity limits, speed 1, seed 0" in lines
    assert any(
        line.startswith("2 nodes, round-robin; ")
        and line.endswith(
            "13 attempts were admitted beyond the exact limits, and 0 below them were refused."
        )
        for line in lines
    )


def test_broken_invariants_are_told_in_words(
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broken = [Violation("order", "row 3 comes before row 2")]
    monkeypatch.setattr(RunRecorder, "_sums", lambda _: broken)
    assert run(log, "--quiet", "--out", tmp_path / "out") == 1
    assert capsys.readouterr().err == "broken invariant: order: row 3 comes before row 2\n"


def test_quiet_prints_the_report_alone(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(log, "--quiet", "--out", tmp_path / "out") == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == (f"{tmp_path / 'out' / 'report.html'}\n", "")


def test_the_command_that_it_prints_repeats_it(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "old.toml").write_text(
        '[[rule]]\nid = "LIM-IP"\ncounter = "ip"\nrate = "5/1m"\naction = "throttle"\n'
    )
    flags = ("--as", "legacy", "--tenant", "test", "--speed", "2.5", "--format", "combined")
    assert run(log, *flags, "--against", tmp_path / "old.toml", "--out", tmp_path / "out") == 0
    first = capsys.readouterr().out
    assert "Changes by address" in first
    before = (tmp_path / "out" / "summary.json").read_bytes()
    command = next(line for line in first.splitlines() if line.startswith("repeat with: "))
    assert run(*command.split()[6:]) == 0
    again = capsys.readouterr().out
    assert [line for line in again.splitlines() if not line.startswith("self-checks")] == [
        line for line in first.splitlines() if not line.startswith("self-checks")
    ]
    assert (tmp_path / "out" / "summary.json").read_bytes() == before


def test_what_a_log_says_is_neither_markup_nor_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hostile.jsonl"
    file.write_text(
        "\n".join(
            f'{{"t": {n}, "ip": "[red]x[/red]", "method": "GET",'
            ' "path": "/\\u001b[2J<script>alert(1)</script>"}'
            for n in range(60)
        )
    )
    assert run(file, "--out", tmp_path / "out") == 0
    shown = capsys.readouterr().out
    assert "[red]x[/red]" in shown
    assert "\x1b" not in shown
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "<script" not in page
    assert "\x1b" not in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--limits", "none.toml"), "none.toml: no such file"),
        (("--against", "none.toml"), "none.toml: no such file"),
        (("--profile", "none.toml"), "none.toml: no such file"),
        (("--map", "none.toml"), "none.toml: no such file"),
        (
            ("--speed", "fast"),
            "speed = 'fast' must be a decimal number above 0, such as 1000 or 0.5",
        ),
        (
            ("--time-column", "when"),
            (
                "--time-column = 'when' must go with csv, jsonl or parquet; the combined format has"
                " its time in its place"
            ),
        ),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    log: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        run(log, *words, "--out", tmp_path / "out")
    assert str(caught.value) == message
    assert not (tmp_path / "out").exists()


def test_kind_and_map_exclude_one_another(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(log, "--as", "public", "--map", "map.toml")
    assert caught.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err


def test_what_a_log_of_fewer_columns_does_not_tell_has_no_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dash beside refusals would say that there was no first one, and nobody locked out."""
    (tmp_path / "one.log").write_text(f"{LINE.format(second=1)}\n" * 60)
    assert run(tmp_path / "one.log", "--out", tmp_path / "whole") == 0
    assert "locked out" in capsys.readouterr().out
    words = ("--columns", "decisions", "--out", tmp_path / "out")
    assert run(tmp_path / "one.log", *words) == 0
    shown = capsys.readouterr().out
    assert " clause       offered   refused    share   addresses " in shown
    assert "–" not in shown


def test_one_request_is_told_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.log").write_text(LINE.format(second=1))
    assert run(tmp_path / "one.log", "--out", tmp_path / "out") == 0
    shown = capsys.readouterr().out
    assert "1 request from 1 address with 1 key" in shown
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "None of 1 request would have been refused." in page
    assert "1 requests" not in page


_MAP_LOG = """\
time,client_ip,url,method,host,key
2026-01-01T00:00:00Z,203.0.113.1,/tokenize,POST,pay.acme.test,KEY
2026-01-01T00:00:01Z,203.0.113.1,/tokenize,POST,www.example.test,
"""
_MAP = """
time = { field = "time" }
address = "client_ip"
key = { field = "key" }
path = "url"
tenant = { field = "host", lookup = { "pay.acme.test" = "acme" }, default = "others" }
tenant_kind = { field = "host", lookup = { "pay.acme.test" = "test" }, default = "production" }
application_kind = { value = "private" }
"""


def test_a_map_may_say_the_kind_of_tenants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The documented example was refused: the command always said a kind of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "map.toml").write_text(_MAP)
    (tmp_path / "log.csv").write_text(_MAP_LOG.replace("KEY", "key_abc"))
    assert main(["replay", "log.csv", "--map", "map.toml", "--out", "o"]) == 0
    rows = Result.load("o").requests
    assert rows["tenant"].tolist()[0] == "acme"
    assert rows["key"].isna().tolist() == [False, True]
    capsys.readouterr()
    assert main(["replay", "log.csv", "--map", "map.toml", "--tenant", "test", "--out", "p"]) == 2
    assert "the map says tenant_kind" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [["--map", "map.toml"], []])
def test_a_column_of_empty_keys_is_no_key(
    flags: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It became one invented key, which all requests then shared."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "map.toml").write_text(_MAP)
    (tmp_path / "log.csv").write_text(_MAP_LOG.replace("KEY", "").replace("url", "path"))
    (tmp_path / "map.toml").write_text(_MAP.replace('"url"', '"path"'))
    assert main(["replay", "log.csv", *flags, "--out", "o"]) == 0
    rows = Result.load("o").requests
    assert rows["key"].isna().all()
    (tmp_path / "bare.csv").write_text(
        "\n".join(line.rpartition(",")[0] for line in _MAP_LOG.replace("url", "path").splitlines())
    )
    assert main(["replay", "bare.csv", "--out", "bare"]) == 0
    assert not Result.load("bare").requests["key"].isna().any()  # it says nothing of keys


# --- the plan of a change ------------------------------------------------------------------------


SECOND_NS = 10**9
AT_NS = 1_749_471_000 * SECOND_NS
TODAY = LimitTable.default()
NEW = TODAY.replace_rule("LIM-PUBLIC", rate="20/1m")


def log_of(**counts: int) -> pd.DataFrame:
    """Return a log of each key's requests, one a second from 12:10:00 on, line by line."""
    rows = [
        {
            "t_ns": AT_NS + second * SECOND_NS,
            "key": key,
            "ip": f"203.0.113.{place}",
            "method": "GET",
            "path": "/tokens",
        }
        for place, (key, count) in enumerate(counts.items(), 1)
        for second in range(count)
    ]
    return pd.DataFrame(rows)


def plan(**options: Any) -> dict[str, Any]:
    found = simulator.replay(log_of(a=45, b=22, c=5), limits=NEW, against=TODAY, **options)
    against = found.summary["against"]
    assert isinstance(against, dict)
    return against


@pytest.mark.parametrize("fidelity", ["limits", "compiled"])
def test_the_plan_names_who_is_newly_refused_from_when_and_for_how_long(fidelity: str) -> None:
    """20 a minute: `a` is refused from second 20 on, `b` in seconds 20 and 21; each block is 10 s.

    A block starts anew at second 30 and 40, while the window is full. Whoever is told to wait until
    second 60, when the window has room, is locked out until then.
    """
    against = plan(fidelity=fidelity)
    assert (against["lost"], against["gained"], against["keys_newly_refused"]) == (27, 0, 2)
    assert against["newly_refused"] == [
        {
            "clause": "LIM-PUBLIC",
            "key": key,
            "ip": ip,
            "newly_refused": refused,
            "first": "2025-06-09T12:10:20Z",
            "locked_out_ns": 40 * SECOND_NS,
        }
        for key, ip, refused in (("key-0001", "203.0.113.1", 25), ("key-0002", "203.0.113.2", 2))
    ]


@pytest.mark.parametrize(
    ("share", "keys", "broken"),
    [
        ("37.5%", None, []),
        ("37%", None, ["27 of 72 requests are newly refused, 37% allowed"]),
        (0.375, 2, []),
        (None, 1, ["2 keys are newly refused, 1 allowed"]),
        (
            "0",
            0,
            [
                "27 of 72 requests are newly refused, 0 allowed",
                "2 keys are newly refused, 0 allowed",
            ],
        ),
    ],
)
def test_a_gate_is_broken_where_more_is_newly_refused_than_allowed(
    share: Any, keys: int | None, broken: list[str]
) -> None:
    against = plan(allow_newly_refused=share, allow_newly_refused_keys=keys)
    assert against["gate"]["broken"] == broken


def test_a_gate_needs_the_limits_of_today() -> None:
    with pytest.raises(InputError, match="must go with --against"):
        simulator.replay(log_of(a=1), allow_newly_refused="1%")


def test_a_share_is_exact_as_it_is_written() -> None:
    """29 of 100 are 29 %, though 0.29 times 100 is less than 29 in floating point."""
    assert ReplayOptions(log_of(a=1), allow_newly_refused="29%").newly_refused_limit == Fraction(
        29, 100
    )


def test_the_command_is_a_gate_for_ci(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log.parquet"
    log_of(a=45, b=22, c=5).to_parquet(file)
    (tmp_path / "new.toml").write_text(
        '[[rule]]\nid = "LIM-PUBLIC"\ncounter = "ip+key"\nrate = "20/1m"\n'
        'action = "block"\nblock = "10s"\nmatch = { application = "public" }\n'
    )
    words = ["replay", str(file), "--limits", str(tmp_path / "new.toml"), "--against", "default"]
    words += ["--out", str(tmp_path / "out"), "--force"]
    assert main([*words, "--allow-newly-refused-keys", "2"]) == 0
    printed = capsys.readouterr().out
    assert "gate: met" in printed
    assert "Newly refused, by harm (2 keys)" in printed
    assert main([*words, "--allow-newly-refused", "1%", "--format", "json"]) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["against"]["gate"]["broken"] == [
        "27 of 72 requests are newly refused, 1% allowed"
    ]
    assert captured.err.splitlines()[-1] == "gate: 27 of 72 requests are newly refused, 1% allowed"
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "Newly refused" in page
    assert main([*words, "--allow-newly-refused", "1"]) == 2


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("speed", [1, 2])
def test_the_refused_requests_are_written_with_line_and_instant(
    tmp_path: Path, suffix: str, speed: int
) -> None:
    """Lines are those of a log out of order; instants are its own, whatever the speed."""
    lines = [
        f"2025-06-09T12:10:{second:02d}Z,{IP},GET,/tokens"
        for second in sorted(range(59, -1, -1), key=lambda second: second % 7)
    ]
    source = tmp_path / "log.csv"
    source.write_text("time,ip,method,path\n" + "\n".join(lines) + "\n")
    file = tmp_path / f"refused{suffix}"
    result = simulator.replay(source, refused=file, speed=speed, out=tmp_path / "out")
    if suffix == ".csv":
        with file.open() as stream:
            rows = list(csv.DictReader(stream))
    else:
        rows = pq.read_table(file).to_pylist()
    refused = result.summary["totals"]["refused"]
    assert len(rows) == refused == 10
    for row in rows:
        stamp = str(row["time"]).replace(" ", "T")[:19]
        assert lines[int(row["line"]) - 2].startswith(stamp)
        assert (row["address"], row["clause"], row["path"]) == (IP, "LIM-PUBLIC", "/tokens")
        assert int(row["wait_ns"]) > 0
    assert [str(row["time"])[17:19] for row in rows] == [f"{second}" for second in range(50, 60)]


def test_several_nodes_let_in_what_each_alone_counts() -> None:
    """Two nodes with counters of their own admit up to twice the rate (D-NODES)."""
    local = Profile().replace(nodes={"count": 2, "sharing": "none"})
    shared = simulator.replay(log_of(a=60)).summary["totals"]["refused"]
    alone = simulator.replay(log_of(a=60), profile=local).summary["totals"]["refused"]
    assert (shared, alone) == (10, 0)
    compiled = simulator.replay(log_of(a=60), profile=local, fidelity="compiled").summary
    assert (compiled["fidelity"], compiled["totals"]["refused"]) == ("limits", 0)
    with pytest.raises(InputError, match="fidelity = 'engine' is one node"):
        simulator.replay(log_of(a=60), profile=local, fidelity="engine")
