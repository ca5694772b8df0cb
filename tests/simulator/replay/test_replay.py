"""What a replay gives back: exact decisions, waits and blocks, and who gains by a change."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import simulator
from engine.errors import InputError
from engine.limits import LimitTable
from engine.profile import LimitsProfile, Profile
from simulator.play.replay import replay_arrivals
from simulator.play.simulation import Fidelity
from simulator.rows import Result
from simulator.study import replay as _replay
from simulator.study.replay import replay

SECOND_NS = 10**9


def seconds(*instants: str) -> pd.DataFrame:
    """Return a log of POST /tokenize by one key, at these seconds."""
    t_ns = [int(Fraction(at) * SECOND_NS) for at in instants]
    return pd.DataFrame({"t_ns": t_ns, "ip": "192.0.2.1", "method": "POST", "path": "/tokenize"})


def refused(result: Result) -> list[float]:
    rows = result.requests
    return [t / SECOND_NS for t in rows["t_ns"][rows["outcome"].isin(["refused", "blocked"])]]


def test_a_public_key_one_request_a_second() -> None:
    """E1 of the worked examples: LIM-PUBLIC, sliding log, keep."""
    result = replay(seconds(*map(str, range(120))))
    assert refused(result) == [*range(50, 60), *range(110, 120)]
    first = result.requests.iloc[50]
    assert (first["outcome"], first["rule"], first["wait_ns"]) == (
        "blocked",
        "LIM-PUBLIC",
        10 * SECOND_NS,
    )
    assert result.clauses.loc["LIM-PUBLIC", "blocked_ns"] == 20 * SECOND_NS


def test_the_same_log_at_ten_times_the_speed() -> None:
    log = seconds(*map(str, range(120)))
    fast = replay(log, speed="10")
    slow = replay(seconds(*(f"{n}/10" for n in range(120))))
    assert fast.requests.equals(slow.requests)
    assert fast.summary["replay"]["speed"] == "10"


def test_a_replay_lasts_until_the_last_block_ends() -> None:
    """E2: 51 at once; the block and the window's room are known to the nanosecond."""
    result = replay(seconds(*["0"] * 51))
    assert result.requests["wait_ns"].iloc[50] == 60 * SECOND_NS
    assert result.summary["duration_ns"] == 60 * SECOND_NS + 1


def test_delay_is_played_by_the_profile() -> None:
    """E6: a private key on a test tenant, ten requests a second, delayed up to 10 s."""
    profile = Profile(limits=LimitsProfile(throttle="delay"))
    log = seconds(*(f"{n}/10" for n in range(250)))
    rows = {
        fidelity: replay(
            log, as_kind="private", tenant="test", profile=profile, fidelity=fidelity
        ).requests
        for fidelity in ("limits", "engine")
    }
    waits = (rows["limits"]["wait_ns"] // SECOND_NS).tolist()
    assert waits[0:50] == [0] * 50
    assert waits[50:100] == [5] * 50
    assert waits[100:150] == [10] * 50
    assert set(rows["limits"]["outcome"][150:200]) == {"refused"}
    assert waits[200:250] == [10] * 50
    columns = ["t_ns", "outcome", "rule", "wait_ns", "latency_ns"]
    assert rows["engine"][columns].equals(rows["limits"][columns])


def test_against_says_who_gains_and_who_loses() -> None:
    log = pd.DataFrame(
        {
            "t_ns": [0] * 90,
            "ip": ["203.0.113.7"] * 60 + ["203.0.113.8"] * 30,
            "key": ["a"] * 60 + ["b"] * 30,
            "method": "POST",
            "path": "/tokenize",
        }
    )
    old = LimitTable.default().replace_rule("LIM-PUBLIC", rate="20/1m")
    new = LimitTable.default().replace_rule("LIM-PUBLIC", rate="40/1m")
    against = replay(log, limits=new, against=old).summary["against"]
    assert {name: against[name] for name in ("refused_old", "refused_new", "gained", "lost")} == {
        "refused_old": 50,
        "refused_new": 20,
        "gained": 30,
        "lost": 0,
    }
    assert [(line["name"], line["gained"]) for line in against["ips"]] == [
        ("203.0.113.7", 20),
        ("203.0.113.8", 10),
    ]
    assert [(line["name"], line["gained"]) for line in against["keys"]] == [
        ("key-0001", 20),
        ("key-0002", 10),
    ]
    assert against["clauses"] == [
        {"clause": "LIM-PUBLIC", "refused_old": 50, "refused_new": 20, "gained": 30, "lost": 0}
    ]
    back = replay(log, limits=old, against=new).summary["against"]
    assert (back["gained"], back["lost"], back["ips_changed"]) == (0, 30, 2)


def test_fifty_addresses_are_named_and_all_are_counted() -> None:
    """Those with the most changed requests; of equal ones the first by name."""
    gained = {f"203.0.113.{number}": 1 + (number > 52) for number in range(1, 56)}
    addresses = [ip for ip, count in gained.items() for _ in range(count)]
    log = pd.DataFrame({"t_ns": 0, "ip": addresses * 30}).assign(
        key="a", method="POST", path="/tokenize"
    )
    old = LimitTable.default().replace_rule("LIM-PUBLIC", rate="1/1m")
    new = LimitTable.default().replace_rule("LIM-PUBLIC", rate="30/1m")
    against = replay(log, limits=new, against=old, fidelity="compiled").summary["against"]
    assert against["ips_changed"] == 55
    most = ["203.0.113.53", "203.0.113.54", "203.0.113.55"]
    assert [line["name"] for line in against["ips"]] == sorted(gained)[:50]
    few = LimitTable.default().replace_rule("LIM-PUBLIC", rate="60/1m")
    against = replay(log, limits=few, against=new, fidelity="compiled").summary["against"]
    assert [(line["name"], line["gained"]) for line in against["ips"]] == [(ip, 30) for ip in most]
    against = replay(log, limits=few, against=old, fidelity="compiled").summary["against"]
    names = [*most, *sorted(set(gained) - set(most))]
    assert [line["name"] for line in against["ips"]] == names[:50]


def test_a_shadow_rule_counts_and_refuses_nobody() -> None:
    table = LimitTable.default().replace_rule("LIM-PUBLIC", shadow=True)
    result = replay(seconds(*["0"] * 60), limits=table)
    assert refused(result) == []
    assert result.clauses.loc["LIM-PUBLIC", "shadow_refused"] == 10


def test_the_folder_holds_the_whole_answer(tmp_path: Path) -> None:
    result = replay(seconds(*["0"] * 60), out=tmp_path / "out")
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["report.html", "requests.parquet", "summary.json"]
    loaded = Result.load(tmp_path / "out")
    assert loaded.summary == json.loads((tmp_path / "out" / "summary.json").read_text())
    assert loaded.requests.equals(result.requests)
    again = replay(seconds(*["0"] * 60), out=tmp_path / "again")
    assert again.summary == result.summary
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("x")
    with pytest.raises(InputError, match="must be an empty folder; add --force to replace it"):
        replay(seconds("0"), out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_nothing_is_written_for_a_log_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        replay(tmp_path / "none.log", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_progress_is_told_by_stage() -> None:
    told: list[tuple[str, int, int | None]] = []
    replay(seconds("0", "1"), progress=lambda *report: told.append(report))
    assert told == [("reading", 2, None), ("deciding", 0, 2)]


def test_counting_by_status_needs_the_whole_engine() -> None:
    profile = Profile(limits=LimitsProfile(counted_statuses="success"))
    with pytest.raises(InputError, match="must go with fidelity engine"):
        replay(seconds("0"), profile=profile)
    replay(seconds("0"), profile=profile, fidelity="engine")


@pytest.mark.parametrize("fidelity", ["limits", "compiled"])
def test_what_is_first_decided_in_a_later_block_is_written_too(
    monkeypatch: pytest.MonkeyPatch, fidelity: Fidelity
) -> None:
    log = seconds(*["0"] * 60)
    whole = replay(log, fidelity=fidelity)
    monkeypatch.setattr(_replay, "replay_arrivals", partial(replay_arrivals, block_rows=7))
    assert replay(log, fidelity=fidelity).summary["sha256"] == whole.summary["sha256"]
    assert whole.summary["totals"]["refused"] == 10


@pytest.mark.parametrize("fidelity", ["limits", "compiled"])
def test_every_line_is_one_request_and_ends_well_when_it_is_let_in(fidelity: Fidelity) -> None:
    totals = replay(seconds(*["0"] * 60), fidelity=fidelity).summary["totals"]
    assert (totals["offered"], totals["requests"]) == (60, 60)
    assert (totals["admitted"], totals["succeeded"]) == (50, 50)


def test_with_the_whole_engine_an_error_is_no_success() -> None:
    log = seconds(*["0"] * 60).assign(method="GET", path=["/tokens"] * 30 + ["/nowhere"] * 30)
    found = replay(log, fidelity="engine", as_kind="private")
    rows = found.requests
    good = rows["outcome"].eq("admitted") & rows["status"].between(200, 299)
    totals = found.summary["totals"]
    assert 0 < good.sum() < totals["admitted"]
    assert (totals["requests"], totals["succeeded"]) == (60, good.sum())


@pytest.mark.parametrize(
    ("given", "word"), [({"x": 1}, "dict"), (5, "5"), (["limits.toml"], "['limits.toml']")]
)
def test_what_is_no_table_is_one_line_that_says_what_may_be_given(given: Any, word: str) -> None:
    for name, may_be in (
        ("limits", "a LimitTable, a file's path or 'default'"),
        ("against", "a LimitTable, a file's path or 'default'"),
        ("profile", "a Profile or a file's path"),
        ("map", "a LogMap or a file's path"),
    ):
        with pytest.raises(InputError) as caught:
            replay(seconds("0"), **{name: given})
        assert str(caught.value) == f"{name} = {word} must be {may_be}"


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("fidelity", "compile", "engine, limits, compiled; did you mean 'compiled'?"),
        ("fidelity", 7, "engine, limits, compiled"),
        ("tenant", "prod", "test, production"),
    ],
)
def test_another_word_is_refused_and_nothing_else_is_played_instead(
    tmp_path: Path, name: str, given: Any, words: str
) -> None:
    with pytest.raises(InputError) as caught:
        replay(seconds("0"), out=tmp_path / "out", **{name: given})
    assert str(caught.value) == f"{name} = {given!r} must be one of {words}"
    assert not (tmp_path / "out").exists()


def test_default_names_the_built_in_table_unless_a_file_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = seconds(*["0"] * 60)
    new = LimitTable.default().replace_rule("LIM-PUBLIC", rate="40/1m")
    against = replay(log, limits=new, against="default").summary["against"]
    assert (against["limits"], against["refused_old"], against["refused_new"]) == (
        "default",
        10,
        20,
    )
    found = replay(log, limits="default").summary
    assert (found["limits"], found["totals"]["refused"]) == ("default", 10)
    text = '[[rule]]\nid = "LIM-IP"\ncounter = "ip"\nrate = "5/1m"\naction = "throttle"\n'
    Path("default").write_text(text)
    assert replay(log, limits="default").summary["totals"]["refused"] == 55


# --- both fidelities -----------------------------------------------------------------------------


def frame(rows: int) -> pd.DataFrame:
    chance = np.random.Generator(np.random.Philox(5))
    return pd.DataFrame(
        {
            "time": np.sort(chance.integers(0, 120_000, rows)) / 1000 + 1_700_000_000,
            "ip": [f"192.0.2.{n}" for n in chance.integers(1, 9, rows)],
            "method": "POST",
            "path": chance.choice(["/tokenize", "/tokens", "/tokens/search"], rows),
        }
    )


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"algorithm": "gcra", "throttle": "delay"},
        {"algorithm": "sliding-counter", "count_refused": True, "compose": "lowest"},
    ],
)
def test_both_fidelities_decide_alike(limits: dict[str, object]) -> None:
    profile = Profile().replace(limits=limits)
    table = LimitTable.default().replace_rule("LIM-CREATE", rate="20/10s", shadow=True)
    source = frame(3_000)
    one, other = (
        simulator.replay(source, limits=table, profile=profile, fidelity=fidelity)
        for fidelity in ("limits", "compiled")
    )
    assert one.table.equals(other.table)
    assert one.violations == other.violations == ()
    assert one.summary | {"fidelity": "compiled"} == other.summary
    assert one.summary["totals"]["refused"] + one.summary["totals"]["delayed"] > 0


# --- IPv6 prefixes -------------------------------------------------------------------------------


@pytest.mark.parametrize("fidelity", ["limits", "compiled", "engine"])
@pytest.mark.parametrize("pseudonymise", [False, True])
def test_clients_of_one_prefix_are_one_client(
    tmp_path: Path, fidelity: str, *, pseudonymise: bool
) -> None:
    """LIM-PUBLIC: 50 requests a minute of one address and key; 60 come from 60 addresses."""
    lines = [
        f"2026-01-01T00:00:{second:02d}Z,2001:db8::{second:x},key,GET,/logs" for second in range(60)
    ]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["time,address,key,method,path", *lines]) + "\n")
    for bits, admitted in ((128, 60), (64, 50)):
        result = replay(
            log,
            format="csv",
            as_kind="public",
            profile=Profile().replace(http={"ipv6_prefix_bits": bits}),
            fidelity=fidelity,  # type: ignore[arg-type] # reason: one of the three
            pseudonymise=pseudonymise,
        )
        assert int((result.requests["outcome"] == "admitted").sum()) == admitted
