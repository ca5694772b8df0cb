"""The tally: every number is that of all rows after the warm-up, however they come in chunks."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import example, given
from hypothesis import strategies as st

from engine.limits import LimitTable, Subject
from engine.messages import Outcome
from engine.profile import LimitsProfile
from simulator.rows import RunHeader, RunRecorder
from simulator.rows.record import RequestIdentity

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
