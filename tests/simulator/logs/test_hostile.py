"""Whatever bytes a log holds, reading it ends in columns or in one line that says why not."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import InputError
from simulator.replaying import make_arrivals, read_speed
from simulator.traffic.logs import FORMATS, Format, Log, read_log

GOOD: dict[Format, bytes] = {
    "combined": b'203.0.113.7 - - [17/May/2015:10:05:03 +0000] "GET /x HTTP/1.1" 200 1 "-" "a"\n',
    "common": b'203.0.113.7 - - [17/May/2015:10:05:03 +0000] "GET /x HTTP/1.1" 200 1\n',
    "csv": b'time,ip,path\n1431857103,203.0.113.7,"/x"\n',
    "jsonl": b'{"time": 1431857103.5, "ip": "203.0.113.7", "path": "/x"}\n',
}
PIECES = [b'"', b"\\", b"[", b"]", b"\n", b"\r\n", b" ", b",", b"\x00", b"\xff", b"{", b"}", b":"]


def read_or_complain(file: Path, kind: Format | None) -> Log | None:
    """Return the log; None where it cannot be used, which must be said in one line."""
    complaint = ""
    try:
        return read_log(file, format=kind)
    except InputError as error:
        complaint = str(error)
    assert complaint.isprintable()
    return None


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Return a text with pieces cut out, doubled or put in."""
    for _ in range(draw(st.integers(0, 6))):
        place = draw(st.integers(0, len(whole)))
        length = draw(st.integers(0, 12))
        middle = draw(st.sampled_from([*PIECES, b"", whole[place : place + length] * 2]))
        whole = whole[:place] + middle + whole[place + length :]
    return whole


@pytest.mark.parametrize("kind", sorted(GOOD))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_logs(tmp_path: Path, kind: Format, data: st.DataObject) -> None:
    file = tmp_path / "hostile.log"
    head = GOOD[kind] if kind != "csv" else GOOD[kind].partition(b"\n")[0] + b"\n"
    file.write_bytes(head + data.draw(damaged(GOOD[kind] * 4)))
    log = read_or_complain(file, kind)
    if log is None:
        return
    assert len(log) == len(log.line) == len(log.fields["path"].codes)
    assert (log.line[1:] > log.line[:-1]).all()
    assert log.unparsed >= len(log.unparsed_first)
    assert all(text.isprintable() for text in log.unparsed_first)
    arrivals = make_arrivals(
        log, kind="public", tenant_kind="production", speed=read_speed("1"), pseudonym_key=b"k"
    )
    assert len(arrivals) == len(log)


@pytest.mark.parametrize("kind", [None, *FORMATS])
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=200))
def test_any_bytes(tmp_path: Path, kind: Format | None, content: bytes) -> None:
    file = tmp_path / "bytes.log"
    file.write_bytes(content)
    read_or_complain(file, kind)
