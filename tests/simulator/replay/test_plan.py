"""From a replay to a decision: the plan of a change, its gate, and the refused requests."""

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
from simulator.options import ReplayOptions
from tests.simulator.logs.test_tools import IP

SECOND_NS = 10**9
AT_NS = 1_749_471_000 * SECOND_NS
TODAY = LimitTable.default()
NEW = TODAY.replace_rule("LIM-PUBLIC", rate="20/1m")


def log(**counts: int) -> pd.DataFrame:
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
    found = simulator.replay(log(a=45, b=22, c=5), limits=NEW, against=TODAY, **options)
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
        simulator.replay(log(a=1), allow_newly_refused="1%")


def test_a_share_is_exact_as_it_is_written() -> None:
    """29 of 100 are 29 %, though 0.29 times 100 is less than 29 in floating point."""
    assert ReplayOptions(log(a=1), allow_newly_refused="29%").newly_refused_limit == Fraction(
        29, 100
    )


def test_the_command_is_a_gate_for_ci(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log.parquet"
    log(a=45, b=22, c=5).to_parquet(file)
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
    shared = simulator.replay(log(a=60)).summary["totals"]["refused"]
    alone = simulator.replay(log(a=60), profile=local).summary["totals"]["refused"]
    assert (shared, alone) == (10, 0)
    compiled = simulator.replay(log(a=60), profile=local, fidelity="compiled").summary
    assert (compiled["fidelity"], compiled["totals"]["refused"]) == ("limits", 0)
    with pytest.raises(InputError, match="fidelity = 'engine' is one node"):
        simulator.replay(log(a=60), profile=local, fidelity="engine")
