"""Kinds of silent misreading, each with other inputs than the first that showed it.

Every log here is written anew. What a log does not say is never invented: it is found, stated by
the user, or the end of the command.
"""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import lzma
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import httptools
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simulator
from engine.errors import InputError
from engine.hosts import path_and_query, read_address
from simulator.cli import main
from simulator.logs import LogMap, stream_log
from simulator.rows import Result
from tests.simulator.logs.test_tools import COMBINED, IP, read

LINE: Final = '{ip} - - [09/Jun/2025:12:{at}] "{request}" 200 5 "-" "curl/8"\n'


def log_of(tmp_path: Path, *lines: str, name: str = "access.log") -> Path:
    file = tmp_path / name
    file.write_text("\n".join(lines) + "\n")
    return file


def addresses(ip: Callable[[int], str], count: int = 60) -> list[str]:
    """Return lines within a minute, one second apart."""
    return [
        LINE.format(ip=ip(n), at=f"10:{n % 60:02d} +0000", request="GET /tokens HTTP/1.1").strip()
        for n in range(count)
    ]


def refused(log: Path, **options: Any) -> tuple[int, int]:
    """Return how many addresses there are, and how many requests are refused."""
    summary = simulator.replay(log, **options).summary
    return summary["replay"]["addresses"], summary["totals"]["refused"]


# --- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        f"{IP}:{{n}}",
        f"::ffff:{IP}",
        f"[::ffff:{IP}]:{{n}}",
        f"{IP}, 198.51.100.{{n}}",
        f"{IP},198.51.100.{{n}}",
        f"{IP}:4{{n}}, 10.0.0.{{n}}:80",
        f"4{{n}} {IP}",
        f"::ffff:{IP}:4{{n}}",
    ],
)
def test_an_address_is_one_however_it_is_written(tmp_path: Path, written: str) -> None:
    """LIM-PUBLIC: 50 a minute by address and key; so 10 of 60 are refused."""
    log = log_of(tmp_path, *addresses(lambda n: written.format(n=n)))
    assert refused(log) == (1, 10)


@pytest.mark.parametrize("host", ["shop.example.test:443", "a.example"])
def test_a_virtual_host_is_no_address(tmp_path: Path, host: str) -> None:
    log = log_of(tmp_path, *addresses(lambda n: f"{host} 203.0.113.{n}"))
    assert refused(log) == (60, 0)


@pytest.mark.parametrize(
    ("rule", "client"),
    [
        (None, "192.0.2.1"),
        ("first", "192.0.2.1"),
        ("last", "10.0.0.2"),
        ("trusted:1", "10.0.0.1"),
        ("trusted:2", "192.0.2.1"),
    ],
)
def test_of_forwarded_addresses_the_stated_one_is_the_client(
    tmp_path: Path, rule: str | None, client: str
) -> None:
    log = log_of(tmp_path, COMBINED.replace(IP, "192.0.2.1, 10.0.0.1, 10.0.0.2"))
    _, requests, reading = read(log, client=rule)
    assert [request[1] for request in requests] == [client]
    assert (
        reading["fields"]["address"] == f"field address, {rule or 'first'} of forwarded addresses"
    )


def test_a_list_that_is_too_short_for_the_trusted_proxies_is_named(tmp_path: Path) -> None:
    log = log_of(tmp_path, COMBINED.replace(IP, "192.0.2.1, 10.0.0.1"), COMBINED)
    stream = stream_log(log, client="trusted:2", format="combined")
    assert sum(map(len, stream.batches())) == 1
    assert stream.unparsed_first == (
        "access.log:1: address must be a list of more than 2 for --client trusted:2",
    )


@pytest.mark.parametrize("host", ["localhost", "pc7.office.example"])
def test_a_host_name_has_no_port(tmp_path: Path, host: str) -> None:
    assert refused(log_of(tmp_path, *addresses(lambda n: f"{host}:4{n}"))) == (1, 10)


@pytest.mark.parametrize(
    "headers", [{"svc-api-key": "{}"}, {"Svc-Api-Key": ["{}"]}, {"X-Api-Key": "{}"}]
)
def test_the_header_of_the_key_is_the_key(tmp_path: Path, headers: dict[str, Any]) -> None:
    lines = [
        json.dumps(
            {
                "time": 1_749_471_000_000 + n,
                "req": {"method": "GET", "url": "/x", "remoteAddress": IP, "headers": headers},
            }
        ).replace("{}", f"key {n % 2}")
        for n in range(60)
    ]
    result = simulator.replay(log_of(tmp_path, *lines))
    assert result.summary["replay"]["keys"] == 2
    assert result.summary["totals"]["refused"] == 0
    assert f"field req.headers.{next(iter(headers))}" in str(result.summary["replay"]["reading"])


def test_pseudonyms_are_named_as_such(tmp_path: Path) -> None:
    lines = [COMBINED.replace(IP, word) for word in ("9f86d081884c7d65", "192.0.2.300", IP)]
    assert read(log_of(tmp_path, *lines))[2]["fields"]["address"] == (
        "field address; 2 of 3 values are names or pseudonyms"
    )


@given(
    st.ip_addresses(),
    st.integers(1, 65_535),
    st.sampled_from(["{}", "[{}]", "[{}]:{port}", "{}%eth0", "[{}%eth0]:{port}"]),
)
def test_every_spelling_of_an_address_is_that_address(ip: Any, port: int, form: str) -> None:
    mapped = getattr(ip, "ipv4_mapped", None)
    assert read_address(form.format(ip, port=port)) == (mapped or ip)
    if ip.version == 4 or port > 9999:
        assert read_address(f"{ip}:{port}") == (mapped or ip)
    if ip.version == 4:
        assert read_address(f"{ip}:{port}") == read_address(f"::ffff:{ip}:{port}") == ip


# --- paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "https://api.example.test/tokenize",
        "HTTP://u@a.example:8080/tokenize?a=1#b",
        "/tokenize?x=/tokens",
        "/tokenize#top",
        "/tokenize?",
    ],
)
@pytest.mark.parametrize("version", ["HTTP/1.1", "HTTP/2", "HTTPS/1.1", "http/1.0"])
def test_a_target_counts_as_the_server_counts_it(tmp_path: Path, target: str, version: str) -> None:
    """LIM-CREATE: 200 requests of POST /tokenize in 10 s by address and key."""
    line = LINE.format(ip=IP, at="10:00 +0000", request=f"POST {target} {version}").strip()
    log = log_of(tmp_path, *[line] * 210)
    assert refused(log, as_kind="private") == (1, 10)


@given(
    st.sampled_from(["", "http://a.example", "HTTPS://u:p@[2001:db8::1]:8443", "ftp://h"]),
    st.text("/abc%41;:@!$&'()*+,=~._-", max_size=12),
    st.sampled_from(["", "?", "?a=1", "?a?b=/", "?a://b"]),
    st.sampled_from(["", "#", "#a", "#a?b#c"]),
)
def test_targets_are_split_as_the_server_s_parser_splits_them(
    origin: str, path: str, query: str, fragment: str
) -> None:
    target = f"{origin}/{path}{query}{fragment}"
    try:
        parts = httptools.parse_url(target.encode())
    except httptools.HttpParserInvalidURLError:
        return
    expected = (parts.path + (b"?" + parts.query if parts.query else b"")).decode()
    assert path_and_query(target) == expected


# --- times ---------------------------------------------------------------------------------------


def rows_of(stamps: Iterable[str], column: str = "ts") -> list[str]:
    return [f"{column},ip,method,path", *(f"{stamp},{IP},GET,/x" for stamp in stamps)]


@pytest.mark.parametrize(
    ("digits", "unit"), [(0, "seconds"), (3, "milli"), (6, "micro"), (9, "ns")]
)
@pytest.mark.parametrize("odd", ["0", "17494700", "-1"])
def test_the_unit_is_that_of_most_lines(tmp_path: Path, digits: int, unit: str, odd: str) -> None:
    stamps = [odd, *(str((1_749_470_000 + n) * 10**digits) for n in range(9))]
    stream = stream_log(log_of(tmp_path, *rows_of(stamps), name="a.csv"))
    (batch,) = stream.batches()
    good = batch.t_ns[batch.t_ns > 10**18].tolist()
    assert good == [(1_749_470_000 + n) * 10**9 for n in range(9)]
    assert unit in stream.reading["fields"]["time"]
    if digits:
        assert stream.unparsed_first[0].startswith("a.csv:2: time must be in ")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize(
    ("zone", "hour"), [(None, 12), ("UTC", 12), ("Europe/Berlin", 10), ("-05:30", 17.5)]
)
def test_a_timestamp_of_a_column_without_a_zone_is_in_the_stated_one(
    unit: str, zone: str | None, hour: float
) -> None:
    """26 October 2025 has 02:30 twice in Berlin, 30 March never."""
    walls = [
        dt.datetime(2025, 6, 9, 12),  # noqa: DTZ001 # reason: the zone is stated
        dt.datetime(2025, 10, 26, 2, 30),  # noqa: DTZ001 # reason: the zone is stated
        dt.datetime(2025, 3, 30, 2, 30),  # noqa: DTZ001 # reason: the zone is stated
    ]
    texts = {name: [name] * 4 for name in ("ip", "method")}
    columns = {"time": pa.array([*walls, None], pa.timestamp(unit)), **texts, "path": ["/"] * 4}
    stream = stream_log(pa.table(columns), zone=zone)
    (batch,) = stream.batches()
    assert batch.t_ns[0] == int((1_749_427_200 + hour * 3600) * 10**9)
    assert batch.line.tolist() == ([1] if zone == "Europe/Berlin" else [1, 2, 3])
    assert stream.unparsed_first[-1] == "frame:4: time is missing"
    stated = "assumed; --zone states another" if zone is None else "--zone"
    assert stream.reading["fields"]["time"].endswith(f"({stated})")


def test_as_many_of_one_unit_as_of_another_are_refused(tmp_path: Path) -> None:
    log = log_of(tmp_path, *rows_of(["1749470000", "1749470000000"]), name="a.csv")
    with pytest.raises(InputError, match="state it in a map"):
        read(log)


@pytest.mark.parametrize("number", ["1.749470000E9", "1749470000e0", "17494700e+2"])
def test_a_json_number_may_have_an_exponent(tmp_path: Path, number: str) -> None:
    line = f'{{"ts": {number}, "ip": "{IP}", "method": "GET", "path": "/x"}}'
    assert read(log_of(tmp_path, line))[1][0][0] == 1_749_470_000 * 10**9


@pytest.mark.parametrize(
    ("zone", "hour"), [(None, 12), ("UTC", 12), ("Europe/Berlin", 10), ("-05:30", 17.5)]
)
def test_a_time_without_a_zone_is_in_the_stated_one(
    tmp_path: Path, zone: str | None, hour: float
) -> None:
    log = log_of(tmp_path, *rows_of(["2025-06-09 12:00:00", "2025-06-09 12:00:00Z"]), name="a.csv")
    _, requests, reading = read(log, zone=zone)
    day_s = 1_749_427_200
    assert [t_ns for t_ns, *_ in requests] == [
        int((day_s + at * 3600) * 10**9) for at in (hour, 12)
    ]
    stated = "assumed; --zone states another" if zone is None else "--zone"
    assert f"({stated}) where it has none" in reading["fields"]["time"]


def test_a_wall_clock_that_shows_an_hour_twice_is_not_guessed(tmp_path: Path) -> None:
    """26 October 2025 has 02:30 twice in Berlin, 30 March never."""
    stamps = ["2025-10-26 02:30:00", "2025-03-30 02:30:00", *["2025-10-26 12:00:00"] * 3]
    stream = stream_log(log_of(tmp_path, *rows_of(stamps), name="a.csv"), zone="Europe/Berlin")
    assert sum(map(len, stream.batches())) == 3
    assert stream.unparsed == 2
    assert "write it with its offset" in stream.unparsed_first[0]


def test_day_and_time_may_stand_in_two_fields_of_a_map(tmp_path: Path) -> None:
    log = log_of(tmp_path, "on,at,ip,method,path", f"2025-06-09,12:10:00,{IP},GET,/x", name="a.csv")
    (tmp_path / "map.toml").write_text('time = { field = ["on", "at"] }\n')
    assert read(log, map=LogMap.read(tmp_path / "map.toml"))[1][0][0] == 1_749_471_000 * 10**9


# --- nothing invented ----------------------------------------------------------------------------


def test_what_a_log_lacks_is_stated_or_refused(tmp_path: Path) -> None:
    log = log_of(tmp_path, *(json.dumps({"time": n, "who": "x"}) for n in range(60)))
    with pytest.raises(InputError, match="the fields are: time, who; name it in a map"):
        read(log)
    assumed = {"address": IP, "path": "POST /tokenize"}
    _, requests, reading = read(log, assume=assumed)
    assert {request[1:] for request in requests} == {(IP, "POST", "/tokenize")}
    assert reading["fields"]["path"] == "assumed: /tokenize"
    for wrong, why in (
        ({"time": "1"}, "must be one of address, key, method, path"),
        ({**assumed, "method": "GET"}, "must be left out; the path has it ahead"),
    ):
        with pytest.raises(InputError, match=why):
            read(log, assume=wrong)
    with pytest.raises(InputError, match="address must be left out; address has it"):
        read(log_of(tmp_path, COMBINED), assume=assumed)


def test_a_detected_format_that_fits_few_lines_is_refused(tmp_path: Path) -> None:
    log = log_of(tmp_path, COMBINED, "starting", "listening", "ready")
    with pytest.raises(InputError, match="3 of 4 lines do not parse") as caught:
        read(log)
    assert "state --format" in str(caught.value)
    assert len(read(log, format="combined")[1]) == 1


def test_an_error_names_fields_and_never_what_they_hold(tmp_path: Path) -> None:
    """A first row of values is no row of names."""
    secret = "key_prod_us_pvt_" + "B" * 22
    rows = [
        f"9/6/2025 12:10,{secret},4242424242424242,/tokens",
        f"{secret},GET",
        f"2025-06-09,{secret}",
        f"{IP},{secret}",
    ]
    for row in rows:
        with pytest.raises(InputError) as caught:
            read(log_of(tmp_path, row, row, name="a.csv"))
        assert secret not in str(caught.value)
        assert "4242" not in str(caught.value)
        assert "a.csv:1: the first row must name the columns" in str(caught.value)
    (tmp_path / "map.toml").write_text('columns = ["time", "ip", "method", "path"]\n')
    log = log_of(tmp_path, f"2025-06-09T12:10:00Z,{IP},GET,/tokens", name="a.csv")
    assert len(read(log, map=LogMap.read(tmp_path / "map.toml"))[1]) == 1


# --- containers ----------------------------------------------------------------------------------


def _zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(content)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return] # reason: Arrow has no types


PACKERS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": _zstd,
}


@pytest.mark.parametrize("packing", list(PACKERS))
def test_a_packed_log_is_unpacked_and_one_that_is_cut_is_named(
    tmp_path: Path, packing: str
) -> None:
    """In several parts too, as rotated logs are that were joined."""
    pack = PACKERS[packing]
    content = "".join(
        LINE.format(ip=f"203.0.113.{n}", at=f"10:{n:02d} +0000", request="GET /x")
        for n in range(60)
    ).encode()
    log = tmp_path / "access.log.1"
    log.write_bytes(pack(content) + pack(content))
    assert len(read(log)[1]) == 120
    log.write_bytes(pack(content)[:-9])
    with pytest.raises(InputError, match=f"must be whole {packing}; it is cut or damaged"):
        read(log)


def test_what_is_no_log_is_named(tmp_path: Path) -> None:
    plain = log_of(tmp_path, COMBINED)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as packed:
        packed.write(plain)
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as packed_tar:
        packed_tar.add(plain)
    for name, why in (("a.zip", "a zip, unpack it first"), ("a.tar.gz", "a tar archive, unpack")):
        with pytest.raises(InputError, match=why):
            read(tmp_path / name)


@pytest.mark.slow
@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("count", [1, 9, 20_000])
def test_a_json_array_is_read_whole(tmp_path: Path, indent: int | None, count: int) -> None:
    records = [{"time": n, "client_ip": IP, "method": "GET", "path": "/x"} for n in range(count)]
    log = tmp_path / "access.json"
    log.write_text(json.dumps(records, indent=indent))
    assert [t_ns for t_ns, *_ in read(log)[1]] == [n * 10**9 for n in range(count)]


def test_what_follows_damage_in_a_json_array_is_counted(tmp_path: Path) -> None:
    record = json.dumps({"time": 1, "ip": IP, "method": "GET", "path": "/x"})
    log = log_of(tmp_path, "[", f"{record},", f"{record},", '{"time": 2,,', f"{record}", "]")
    stream = stream_log(log, format="jsonl")
    assert sum(map(len, stream.batches())) == 2
    assert stream.unparsed_first == (
        "access.log:4: JSON is cut or damaged here; all that follows is lost",
    )
    assert stream.unparsed == 4


def test_w3c_fields_may_change_in_the_middle(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        "#Version: 1.0",
        "#Fields: date time c-ip cs-method cs-uri-stem sc-status",
        f"2025-06-09 12:10:00 {IP} GET /a 200",
        "#Fields: date time cs-method cs-uri-stem c-ip",
        f"2025-06-09 12:10:01 POST /b {IP}",
        f"2025-06-09 12:10:02 POST /c {IP} more",
    )
    stream = stream_log(log)
    (batch,) = stream.batches()
    assert [stream.names["path"][code] for code in batch.codes["path"]] == ["/a", "/b"]
    assert stream.unparsed_first == ("access.log:6: line must have 5 fields, it has 6",)


# --- the command ---------------------------------------------------------------------------------


def test_the_first_lines_of_output_say_how_the_log_was_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = log_of(tmp_path, *addresses(lambda n: IP), "noise")
    assert main(["replay", str(log), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[:9] == [
        "read access.log as combined:",
        "  address: field address",
        (
            "  key:     none in the log; all requests count as one key, public of a production"
            " tenant (--as, --tenant)"
        ),
        "  request: field request",
        "  status:  field status (no limit reads it)",
        "  time:    field time, with its zone",
        "  lines:   60 read, 1 skipped, from 2025-06-09T12:10:00Z to 2025-06-09T12:10:59Z",
        "  skipped: 1: identity is missing, truncated or malformed",
        "  skipped: access.log:61: identity is missing, truncated or malformed",
    ]
    assert Result.load(tmp_path / "out").summary["replay"]["reading"]["lines_read"] == 60


def test_the_formats_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["replay", "--formats"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("combined", "haproxy", "Kubernetes CRI", "zstd"))
