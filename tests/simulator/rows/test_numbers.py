"""Summaries and metrics say what their definitions say, recounted from the rows in plain Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import InputError
from engine.limits import LimitTable, Subject
from engine.messages import Outcome
from engine.profile import LimitsProfile
from simulator.rows import Result, RunHeader, RunRecorder, out_folder
from simulator.rows.metrics import frame_of, lines_of
from simulator.rows.record import RequestIdentity
from simulator.rows.result import measure
from simulator.scenario import loads
from simulator.scenario.conditions import Condition
from simulator.study.runs import line_of, run

S = 1_000_000_000


@pytest.fixture(scope="module")
def result() -> Result:
    """The built-in scenario, by the limits alone."""
    return run("everyday", fidelity="limits")


def _measured(result: Result, metric: str, labels: dict[str, str] | None = None) -> float:
    narrowed = tuple((labels or {}).items())
    return measure(result, Condition(metric=metric, labels=narrowed, compare=">=", bound=0))


def test_the_totals_are_the_rows(result: Result) -> None:
    rows = result.table.to_pylist()
    totals = result.summary["totals"]
    refused = [row for row in rows if row["outcome"] in {"refused", "blocked"}]
    assert totals["offered"] == len(rows)
    assert totals["refused"] == len(refused)
    assert totals["blocked"] == sum(row["outcome"] == "blocked" for row in rows)
    assert totals["offered"] == totals["admitted"] + totals["refused"] + totals["pending"]
    firsts = sum(row["attempt"] == 1 for row in rows)
    assert totals["requests"] == firsts
    assert totals["succeeded"] == totals["admitted"]


def test_the_table_by_clause_is_the_rows(result: Result) -> None:
    rows = result.table.to_pylist()
    for line in result.summary["clauses"]:
        refused = [
            row
            for row in rows
            if row["rule"] is not None and row["rule"].partition(".")[0] == line["clause"]
        ]
        assert line["refused"] == len(refused)
        assert line["keys"] == len({row["key"] for row in refused} - {None})
        by_both = line["refused"] + line["refused_by_others"]
        assert line["offered"] == line["admitted"] + by_both
        assert line["ips"] == len({row["ip"] for row in refused})
        assert line["first_refusal_ns"] == min((row["t_ns"] for row in refused), default=None)
    everybody = next(line for line in result.summary["clauses"] if line["clause"] == "LIM-IP")
    assert everybody["offered"] == len(rows)
    others = sum(row["rule"] not in {None, "LIM-IP"} for row in rows)
    assert everybody["refused_by_others"] == others > 0
    counts = [line["refused"] for line in result.summary["clauses"]]
    assert counts == sorted(counts, reverse=True)
    met_none = [line["clause"] for line in result.summary["clauses"] if not line["refused"]]
    rules = [rule.id for rule in LimitTable.default()]
    assert met_none == [name for name in rules if name in met_none], "then in table order"
    assert str(result.clauses["first_refusal_ns"].dtype) == "Int64"


def test_blocked_time_counts_overlaps_once(result: Result) -> None:
    blocked_ns = 0
    until: dict[tuple[str, str], int] = {}
    for row in result.table.to_pylist():
        if row["outcome"] == "blocked" and row["rule"] == "LIM-PUBLIC":
            counter = (row["key"], row["ip"])
            end_ns = min(row["t_ns"] + row["wait_ns"], 600 * S)
            blocked_ns += max(0, end_ns - max(row["t_ns"], until.get(counter, 0)))
            until[counter] = max(end_ns, until.get(counter, 0))
    line = next(x for x in result.summary["clauses"] if x["clause"] == "LIM-PUBLIC")
    assert line["blocked_ns"] == blocked_ns > 0
    assert int(result.metrics(where={"clause": "LIM-PUBLIC"})["blocked_ns"].iloc[0]) == blocked_ns


def test_blocked_time_where_two_tables_have_a_rule_of_one_name(tmp_path: Path) -> None:
    """QUO-RATE: a tenant's own table names the same clause with other numbers."""
    (tmp_path / "own.toml").write_text(
        """
[[rule]]
id = "LIM-PUBLIC"
match = { application = "public" }
counter = "ip+key"
rate = "40/1m"
action = "block"
block = "7s"
"""
    )
    found = run(loads(_TWO_TABLES, folder=tmp_path), fidelity="limits")
    # Each asks once a second for 100 s. One table blocks at 50 for 10 s; the other at 40, 47 and 54
    # for 7 s each, since its window has no room before 60.
    rows = found.requests.query("outcome == 'blocked'")
    assert {tenant: set(each["t_ns"] // S) for tenant, each in rows.groupby("tenant")} == {
        "x": set(range(50, 60)),
        "y": set(range(40, 61)),
    }
    assert found.clauses.loc["LIM-PUBLIC", "blocked_ns"] == (10 + 21) * S
    assert found.violations == ()


def test_blocked_time_is_of_counters_wherever_it_is_asked_for(result: Result) -> None:
    """LIM-MANAGEMENT counts by key: asked from two addresses it is one block, not two."""
    text = """
duration = "95s"
warm_up = "20s"
rules = { LIM-MANAGEMENT = { rate = "10/1m", block = "14s" } }
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
kind = "management"
[[clients]]
name = "c"
count = 2
application = "a"
loop = "open"
arrivals = { kind = "constant", rate = "1/1s" }
"""
    for found in (result, run(text, fidelity="limits")):
        end_ns, start_ns = found.summary["duration_ns"], found.summary["warm_up_ns"]
        whole_ns = 0
        for line in found.summary["clauses"]:
            labels = {"clause": line["clause"]}
            assert _measured(found, "blocked_time", labels) == line["blocked_ns"]
            whole_ns += line["blocked_ns"]
        assert _measured(found, "blocked_time") == whole_ns > 0
        bins = found.metrics(by="time", bin="10s")
        assert bins["blocked_ns"].sum() == whole_ns
        assert bins["offered"].sum() == found.summary["totals"]["offered"]
        spans_ns = [min(at + 10 * S, end_ns) - max(at, start_ns) for at in bins.index.tolist()]
        good = bins["goodput_per_s"] * spans_ns / S
        assert good.sum() == pytest.approx(found.summary["totals"]["admitted"])
    assert whole_ns < end_ns - start_ns
    assert bins["blocked_ns"].max() == 10 * S


_TWO_TABLES = """
duration = "100s"
limit_tables = { own = "own.toml" }
[[tenants]]
name = "x"
[[tenants]]
name = "y"
quotas = { "Rate Limit" = "own" }
[[applications]]
name = "ax"
tenant = "x"
kind = "public"
[[applications]]
name = "ay"
tenant = "y"
kind = "public"
[[clients]]
name = "cx"
application = "ax"
loop = "open"
arrivals = { kind = "constant", rate = "1/1s" }
[[clients]]
name = "cy"
application = "ay"
loop = "open"
arrivals = { kind = "constant", rate = "1/1s" }
"""


def test_the_two_resources_of_a_row_may_count_apart() -> None:
    """D-OR-RESOURCE separate: the checkers know two counters where the limiter has two."""
    found = run(
        """
duration = "8s"
choices = { limits = { or_resource = "separate" } }
rules = { LIM-READ = { rate = "2/3s", action = "block", block = "1s" } }
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
[[clients]]
name = "c"
application = "a"
loop = "open"
arrivals = { kind = "constant", rate = "4/1s" }
mix = [ { request = "GET /tokens" }, { request = "POST /detokenize" } ]
""",
        fidelity="limits",
    )
    assert found.violations == ()
    blocked_ns = 0
    until_ns = dict.fromkeys(("/tokens", "/detokenize"), 0)
    for row in found.table.to_pylist():
        if row["outcome"] == "blocked":
            end_ns = min(row["t_ns"] + row["wait_ns"], 8 * S)
            blocked_ns += max(0, end_ns - max(row["t_ns"], until_ns[row["path"]]))
            until_ns[row["path"]] = max(end_ns, until_ns[row["path"]])
    assert found.clauses.loc["LIM-READ", "blocked_ns"] == blocked_ns > 0


@pytest.mark.parametrize("by", ["group", "tenant", "application", "key", "ip", "client", "method"])
def test_metrics_add_up_to_the_totals(result: Result, by: str) -> None:
    frame = result.metrics(by=by)
    totals = result.summary["totals"]
    assert frame["offered"].sum() == totals["offered"]
    assert frame["refused"].sum() == totals["refused"]
    assert frame["admitted"].sum() == totals["admitted"]
    assert ((frame["fairness"] > 0) & (frame["fairness"] <= 1.0000001)).all()


def test_metrics_in_time_bins_and_by_two_dimensions(result: Result) -> None:
    bins = result.metrics(by="time", bin="1m")
    assert bins.index.tolist() == [minute * 60 * S for minute in range(10)]
    both = result.metrics(by=["group", "clause"])
    assert both["refused"].sum() == result.summary["totals"]["refused"]
    reads = both.query("group == 'reports' and clause == 'LIM-READ'").iloc[0]
    assert reads["offered"] == reads["refused"] > 0


@pytest.mark.parametrize(
    "by", [(), ("key",), ("clause",), ("group", "time"), ("client", "ip", "path")]
)
def test_how_rows_are_batched_changes_no_metric(result: Result, by: tuple[str, ...]) -> None:
    def metrics(batch_rows: int) -> pd.DataFrame:
        batches = result.table.to_batches(max_chunksize=batch_rows)
        lines = lines_of(batches, by, end_ns=600 * S, bin_ns=60 * S, groups=result.groups)
        return frame_of(lines, by)

    pd.testing.assert_frame_equal(metrics(997), metrics(1 << 20))


def test_the_line_of_a_run_is_what_its_frames_say(result: Result) -> None:
    """A replication keeps the line of a run without making a frame."""
    line, frame = line_of(result), result.metrics()
    assert line["refused_share"] == frame["refused_share"].iloc[0]
    assert line["latency_p99"] == frame["latency_p99_ns"].iloc[0]
    shares = result.metrics("group")["refused_share"]
    assert len(shares) > 1
    for name, share in shares.items():
        assert line[f"refused_share{{client='{name}'}}"] == share


def test_percentiles_are_those_of_the_rows(result: Result) -> None:
    frame = result.requests
    served = frame[frame["outcome"].isin(["admitted", "delayed"])]
    line = result.metrics().iloc[0]
    assert line["latency_p90_ns"] == pytest.approx(served["latency_ns"].quantile(0.9))
    digest = result.summary["totals"]["latency_ns"]
    assert digest["p90"] == pytest.approx(served["latency_ns"].quantile(0.9), rel=0.02)


@pytest.mark.slow
def test_a_warm_up_leaves_rows_and_decisions_but_not_results(result: Result) -> None:
    later = run("everyday", fidelity="limits", warm_up="2m")
    assert later.summary["sha256"] == result.summary["sha256"]
    late = [row for row in result.table.to_pylist() if row["t_ns"] >= 120 * S]
    assert later.summary["totals"]["offered"] == len(late)
    assert later.metrics()["offered"].iloc[0] == len(late)
    with pytest.raises(InputError, match="must be below the duration"):
        run("everyday", fidelity="limits", warm_up="10m")


def test_measures_are_narrowed_by_labels(result: Result) -> None:
    frame = result.requests
    mine = frame[frame["application"] == "backend"]
    refused = mine["outcome"].isin(["refused", "blocked"])
    share = _measured(result, "refused_share", {"application": "backend"})
    assert share == pytest.approx(refused.mean())
    by_read = (mine["rule"] == "LIM-READ").mean()
    labels = {"application": "backend", "clause": "LIM-READ"}
    assert _measured(result, "refused_share", labels) == pytest.approx(by_read)
    assert (
        _measured(result, "offered", {"client": "browsers"})
        == (result.metrics(by="group").loc["browsers", "offered"])
    )
    assert _measured(result, "refused", {"ip": "192.0.2.99"}) == 0
    with pytest.raises(InputError, match="did you mean 'browsers'"):
        _measured(result, "offered", {"client": "browser"})
    for name in ("²", "9" * 5_000):  # digits, of which `int` makes no number
        with pytest.raises(InputError, match="must be a client group"):
            _measured(result, "offered", {"client": name})


def test_an_unknown_dimension_is_refused(result: Result) -> None:
    with pytest.raises(InputError, match="by = 'kee' must be a dimension; did you mean 'key'"):
        result.metrics(by="kee")
    with pytest.raises(InputError, match="where = 'kee' must be a dimension; did you mean 'key'"):
        result.metrics(where={"kee": "key-0001"})
    with pytest.raises(InputError, match='bin = None must be the width of a bin, such as "10s"'):
        result.metrics(by="time")


def test_a_result_is_saved_and_read_back(result: Result, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "mine")
    assert sorted(path.name for path in folder.iterdir()) == [
        "report.html",
        "requests.parquet",
        "scenario.resolved.toml",
        "summary.json",
    ]
    again = Result.load(folder)
    assert again.summary == json.loads(json.dumps(result.summary))
    assert again.table.equals(result.table) or again.requests.equals(result.requests)
    assert again.metrics(by="key").equals(result.metrics(by="key"))
    with pytest.raises(InputError, match="must be an empty folder; add --force"):
        result.save(folder)
    result.save(folder, force=True)
    with pytest.raises(InputError, match=r"it has no readable summary\.json"):
        Result.load(tmp_path)


@pytest.mark.parametrize("text", ["{}", "[]", "3", "[" * 100_000])
def test_a_summary_that_no_run_wrote_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(InputError, match=r"it has no readable summary\.json"):
        Result.load(tmp_path)


def test_a_damaged_file_of_rows_is_refused_where_it_is_read(result: Result, tmp_path: Path) -> None:
    again = Result.load(result.save(tmp_path / "mine"))
    (tmp_path / "mine" / "requests.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="must be a run's rows; it is no readable Parquet"):
        again.metrics()


@pytest.mark.parametrize("damage", ["cut", "zeros", "noise", "missing"])
def test_any_damage_of_the_rows_is_one_line_that_names_the_file(
    result: Result, tmp_path: Path, damage: str
) -> None:
    """Arrow's own errors came through where the end of the file was whole."""
    again = Result.load(result.save(tmp_path / "mine"))
    file = tmp_path / "mine" / "requests.parquet"
    content = file.read_bytes()
    damaged = {
        "cut": content[: len(content) // 2],
        "zeros": content[:4] + bytes(len(content) // 2) + content[4 + len(content) // 2 :],
        "noise": content[:4] + b"\xff" * (len(content) // 2) + content[4 + len(content) // 2 :],
    }
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(damaged[damage])
    for read in (lambda: again.table, lambda: list(again.batches())):
        with pytest.raises(InputError, match=r"requests\.parquet must be a run's rows"):
            read()


def test_a_saved_result_is_copied_batch_by_batch(result: Result, tmp_path: Path) -> None:
    """A day's rows do not fit into memory, and need not."""
    again = Result.load(result.save(tmp_path / "mine"))
    copy = again.save(tmp_path / "copy")
    assert again._table is None
    files = [folder / "requests.parquet" for folder in (tmp_path / "mine", copy)]
    assert len({file.read_bytes() for file in files}) == 1


def test_the_repr_is_a_table(result: Result) -> None:
    page = result._repr_html_()
    assert "LIM-READ" in page
    assert "offered" in page
    assert "LIM-PROXY-KEY" not in page


def test_a_folder_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "one"

    def write_half() -> None:
        with out_folder(out) as folder:
            (folder / "requests.parquet").write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_force_replaces_the_files_of_a_run_and_no_others(tmp_path: Path) -> None:
    out = tmp_path / "one"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    (out / "summary.json").write_text("old")
    with out_folder(out, force=True) as folder:
        (folder / "summary.json").write_text("new")
    assert (out / "notes.txt").read_text() == "mine"
    assert (out / "summary.json").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one"]


# --- the tally -----------------------------------------------------------------------------------


END_NS = 20


class Row(NamedTuple):
    """An attempt by a public key, or without one; gap_ns: after the one before."""

    gap_ns: int
    key: str | None
    ip: str
    path: str
    verdict: tuple[Outcome, str | None]
    wait_ns: int
    status: int
    began_ns: int
    well: bool


VERDICTS: list[tuple[Outcome, str | None]] = [
    ("admitted", None),
    ("delayed", "LIM-IP"),
    ("refused", "LIM-IP"),
    ("blocked", "LIM-PUBLIC"),
]


def _possible(row: Row) -> Row:
    """Return the row as it may be: without a key no rule about keys refuses (D-UNKEYED)."""
    if row.key is None and row.verdict[1] == "LIM-PUBLIC":
        return row._replace(verdict=("refused", "LIM-IP"))
    return row


ROWS = st.lists(
    st.builds(
        Row,
        st.integers(0, 3),
        st.sampled_from([None, "key-0001", "key-0002", "key-0003"]),
        st.sampled_from(["i", "j", "k"]),
        st.sampled_from(["/tokenize", "/tokens/search", "/x"]),
        st.sampled_from(VERDICTS),
        st.integers(1, 12),
        st.sampled_from([-1, 200, 429]),
        st.integers(0, 12),
        st.booleans(),
    ).map(_possible),
    min_size=1,
    max_size=14,
)
ONE = Row(0, None, "i", "/x", ("delayed", "LIM-IP"), END_NS, 200, 5, well=True)


def _summary(rows: list[Row], warm_up_ns: int, chunk_rows: int) -> dict[str, Any]:
    header = RunHeader("made-up", 7, "limits", 0, END_NS, warm_up_ns)
    tables = {"Default": LimitTable.default()}
    limits = LimitsProfile(throttle="delay")
    book = RunRecorder(header, tables, limits, check=False, chunk_rows=chunk_rows)
    t_ns = 0
    for row in rows:
        t_ns += row.gap_ns
        kind: Any = None if row.key is None else "public"
        asking = Subject("POST", row.path, row.ip, key_id=row.key, application_kind=kind)
        subject = RequestIdentity(0, None, None, row.key, row.ip, "POST", row.path)
        number = book.recorder.subjects.number(subject, *book.view.counted(asking))
        verdict = book.recorder.verdicts[row.verdict]
        wait_ns = 0 if row.verdict[1] is None else row.wait_ns
        book.recorder.add(t_ns, number, 1, verdict, wait_ns, wait_ns, row.status)
        book.tally.request_began(row.began_ns)
        book.tally.request_ended(row.began_ns, t_ns, well=row.well)
    return book.close().summary


@given(ROWS, st.sampled_from([0, 5]), st.integers(1, 4))
@example([ONE, ONE], 0, 1)
@example([ONE, ONE._replace(gap_ns=5)], 5, 1)
def test_however_rows_come_in_chunks_all_of_them_are_counted(
    rows: list[Row], warm_up_ns: int, chunk_rows: int
) -> None:
    summary = _summary(rows, warm_up_ns, chunk_rows)
    assert summary == _summary(rows, warm_up_ns, 1_000)
    instants, t_ns = [], 0
    for row in rows:
        t_ns += row.gap_ns
        instants.append(t_ns)
    late = [(at, row) for at, row in zip(instants, rows, strict=True) if at >= warm_up_ns]
    totals, outcomes = summary["totals"], [row.verdict[0] for _, row in late]
    pending = sum(row.verdict[0] == "delayed" and at + row.wait_ns >= END_NS for at, row in late)
    assert (totals["offered"], totals["pending"]) == (len(late), pending)
    assert totals["admitted"] == outcomes.count("admitted") + outcomes.count("delayed") - pending
    assert totals["blocked"] == outcomes.count("blocked")
    assert totals["refused"] == outcomes.count("refused") + outcomes.count("blocked")
    began = [
        (at, row) for at, row in zip(instants, rows, strict=True) if row.began_ns >= warm_up_ns
    ]
    ended = [row.well for at, row in began if at < END_NS]
    assert (totals["requests"], totals["succeeded"]) == (len(began), sum(ended))
    assert totals["failed"] == len(ended) - sum(ended)
    assert totals["requests_pending"] == len(began) - len(ended)
    for line in summary["clauses"]:
        turned = [
            (at, row)
            for at, row in late
            if row.verdict[1] == line["clause"] and row.verdict[0] in {"refused", "blocked"}
        ]
        assert line["refused"] == len(turned)
        assert line["keys"] == len({row.key for _, row in turned} - {None})
        assert line["ips"] == len({row.ip for _, row in turned})
        assert line["first_refusal_ns"] == min((at for at, _ in turned), default=None)
    everybody = next(line for line in summary["clauses"] if line["clause"] == "LIM-IP")
    assert (everybody["offered"], everybody["delayed"]) == (len(late), totals["delayed"])
