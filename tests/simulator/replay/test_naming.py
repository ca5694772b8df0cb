"""Names of a log's parties, against the plain reading of its lines one after the other."""

from __future__ import annotations

import hmac
import re
from fractions import Fraction
from typing import NamedTuple
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from engine.errors import InputError
from engine.files import parse_toml
from simulator.logs import LogMap, _readers, stream_log
from simulator.logs.arrivals import Arrivals, make_arrivals
from simulator.logs.parties import NOBODY, LogCaller, LogCallers, Naming, Owner
from simulator.rows.record import TextColumn

WHOLE = "key_prod_us_pvt_" + "A" * 22
KEYS = ["abc", "same", "sesame", "sesame-1", "10.0.0.1", WHOLE]
IPS = ["10.0.0.1", "10.0.0.11", "x"]
PSEUDONYM_KEY = b"nobody keeps this"
MAP = """
time = { field = "t_ns", unit = "ns" }
key = "key"
address = "ip"
method = "method"
path = "path"
tenant = "tenant"
"""


class Line(NamedTuple):
    """A line of a log, as its columns are called."""

    t_ns: int
    key: str | None
    ip: str
    method: str
    path: str
    tenant: str = "t"


PATHS = st.lists(st.sampled_from([*KEYS, *IPS, "key-0001"]), max_size=3).map(
    lambda pieces: "/" + "/".join(pieces)
)
LINES = st.lists(
    st.builds(
        Line,
        st.integers(0, 6),
        st.sampled_from([None, *KEYS]),
        st.sampled_from(IPS),
        st.sampled_from(["GET", "POST"]),
        PATHS,
    ),
    min_size=1,
    max_size=24,
)


def _arrivals_of(
    lines: list[Line],
    batch_rows: int,
    pseudonym_key: bytes | None = None,
    text: str = "",
    *,
    says_keys: bool = True,
) -> Arrivals:
    log = pd.DataFrame(lines)
    log_map = LogMap.from_document(parse_toml(text, "map.toml")) if text else None
    with mock.patch.object(_readers, "_BATCH_ROWS", batch_rows):
        return make_arrivals(
            stream_log(log if says_keys else log.drop(columns="key"), map=log_map),
            kind="legacy",
            tenant_kind="test",
            speed=Fraction(1),
            pseudonym_key=pseudonym_key,
        )


def _hashed(mark: str, text: str) -> str:
    return mark + hmac.new(PSEUDONYM_KEY, text.encode(), "sha256").hexdigest()[:16]


def _plainly(lines: list[Line], *, hashed: bool, says_keys: bool) -> list[LogCaller]:
    """Return who asks, line by line in order of time.

    An empty key says that the request had none; a log without such a column is one of one key.
    """
    labels: dict[str | None, str] = {}
    found = []
    for line in sorted(lines, key=lambda line: line.t_ns):
        path, ip = re.sub(r"key_([a-z]+_)*[1-9A-HJ-NP-Za-km-z]{22}", "key_…", line.path), line.ip
        key = line.key if says_keys else None
        if key is not None or not says_keys:
            plain = f"key-{len(labels) + 1:04d}"
            label = labels.setdefault(key, _hashed("key-", key) if hashed and key else plain)
            if key is not None and len(key) >= 4:
                path = path.replace(key, label)
        if hashed:
            ip = _hashed("ip-", ip)
            path = path.replace(line.ip, ip)
        if key is None and says_keys:
            found.append(LogCaller(NOBODY, None, ip, line.method, path))
        else:
            owner = Owner("test", "test", "legacy", "private", legacy=True)
            found.append(LogCaller(owner, label, ip, line.method, path))
    return found


def _check_texts(parties: LogCallers) -> None:
    """Hold each text to stand once, and to be some party's: what nobody has may be a secret."""
    for column in (parties.key, parties.ip, parties.method, parties.path):
        assert len(set(column.texts)) == len(column.texts)
        assert set(column.codes.tolist()) - {-1} == set(range(len(column.texts)))


@given(LINES, st.integers(1, 25), st.booleans(), st.booleans())
@example([Line(0, None, "x", "GET", "/x/x")] * 2, 1, True, True)
@example([Line(0, None, "x", "GET", "/x/x")] * 2, 1, True, False)
@example([Line(max(1 - n, 0), None, "x", "GET", f"/{n % 9}") for n in range(99)], 99, False, True)
@example([Line(n, "same", "x", "GET", "/same/same") for n in range(2)], 1, False, True)
@example(
    [Line(0, key, "x", "GET", "/sesame-1") for key in ("sesame", "same", None)], 3, False, True
)
def test_each_arrival_is_by_whom_its_line_names(
    lines: list[Line], batch_rows: int, hashed: bool, says_keys: bool
) -> None:
    pseudonym_key = PSEUDONYM_KEY if hashed else None
    found = _arrivals_of(lines, batch_rows, pseudonym_key, says_keys=says_keys)
    ((at_ns, party_of),) = found.blocks()
    plain = _plainly(lines, hashed=hashed, says_keys=says_keys)
    assert [found.parties[party] for party in party_of.tolist()] == plain
    times_ns = sorted(line.t_ns for line in lines)
    assert (found.start_ns, found.end_ns) == (times_ns[0], times_ns[-1])
    assert at_ns.tolist() == [t_ns - times_ns[0] for t_ns in times_ns]
    _check_texts(found.parties)
    met = [plain.index(each) for each in found.parties]
    assert met == sorted(met), "in order of first appearance in time"


@pytest.mark.slow
@given(LINES, st.integers(1, 25), st.lists(st.sampled_from("tttu"), min_size=24, max_size=24))
@example([Line(n, "a" if n else None, "x", "GET", "/") for n in range(4)], 4, list("ttuu"))
@example([Line(9 - n, "a", "x", "GET", "/") for n in range(4)], 1, list("ttuu"))
def test_a_second_owner_of_a_key_is_told_by_the_first_lines_in_time(
    lines: list[Line], batch_rows: int, tenants: list[str]
) -> None:
    assume(any(line.key is not None for line in lines))
    lines = [line._replace(tenant=name) for line, name in zip(lines, tenants, strict=False)]
    owners: dict[str, tuple[str, int]] = {}
    told = None
    for number, line in sorted(enumerate(lines, 1), key=lambda numbered: numbered[1].t_ns):
        if line.key is not None and told is None:
            owner, known = owners.setdefault(line.key, (line.tenant, number))
            told = None if owner == line.tenant else f"frame:{number}: key must belong to one"
            message = f"{told} application of one tenant; line {known} gives it another"
    if told is None:
        ((_, party_of),) = (found := _arrivals_of(lines, batch_rows, text=MAP)).blocks()
        by_time = sorted(lines, key=lambda line: line.t_ns)
        of_lines = [None if line.key is None else line.tenant for line in by_time]
        assert [found.parties[party].owner.tenant for party in party_of.tolist()] == of_lines
    else:
        with pytest.raises(InputError, match=re.escape(message)):
            _arrivals_of(lines, batch_rows, text=MAP)


def test_what_no_request_of_the_log_has_is_not_counted() -> None:
    """A line that does not parse leaves its texts in the reader, and nowhere else."""
    table = pd.DataFrame(
        {
            "time": ["2026-01-01T00:00:00Z", "never"],
            "key": ["sesame", "other"],
            "ip": ["192.0.2.1", "192.0.2.2"],
            "path": ["/a", "/b"],
            "method": "GET",
        }
    )
    log = stream_log(table)
    parties = make_arrivals(log, kind="public", tenant_kind="production", speed=Fraction(1)).parties
    assert log.unparsed == 1
    texts = (parties.key.texts, parties.ip.texts, parties.path.texts)
    assert [list(each) for each in texts] == [["key-0001"], ["192.0.2.1"], ["/a"]]


ADDRESS = {"address": "192.0.2.1"}


def test_kinds_are_all_that_rules_look_at() -> None:
    """Owners of one application's kind may still be a test tenant's, or legacy (LIM-LEGACY)."""
    keys = list("abcde")
    table = pd.DataFrame(
        {
            "t_ns": range(5), "key": keys, "path": "/", "method": ["GET"] * 4 + ["POST"],
            "tenant_kind": ["test", "production", "production", "production", "production"],
            "legacy": ["false", "true", "false", "false", "false"],
            "application_kind": ["private", "private", "private", "public", "public"],
        }
    )  # fmt: skip
    names = ("key", "path", "method", "tenant_kind", "legacy", "application_kind")
    text = 'time = { field = "t_ns", unit = "ns" }\n' + "".join(f'{n} = "{n}"\n' for n in names)
    log = stream_log(table, map=LogMap.from_document(parse_toml(text, "map.toml")), assume=ADDRESS)
    parties = make_arrivals(log, kind="public", tenant_kind="test", speed=Fraction(1)).parties
    kinds, one_of_each = parties.kinds(lambda *request: request)
    assert kinds.tolist() == list(range(5))
    assert list(one_of_each) == list(parties)


def test_neither_a_key_nor_what_hides_it_shows_where_values_are_printed() -> None:
    none = np.zeros(1, dtype=np.int32)
    request = ADDRESS | {"path": "POST /tokenize"}
    log = stream_log(pd.DataFrame({"t_ns": [1], "key": ["sesame"]}), assume=request)
    naming = Naming({"key": none}, none.astype(np.int64), log, "public", "test", PSEUDONYM_KEY, 128)
    for value in (TextColumn(none, ["sesame"]), log, naming):
        assert "sesame" not in repr(value)
        assert "nobody" not in repr(value)
