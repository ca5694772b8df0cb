"""Every format of log gives the same columns; what does not parse is counted and named."""

import datetime as dt
import gzip
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import simulator
from engine.errors import InputError
from engine.files import Document, parse_toml
from simulator.logs import LogMap
from simulator.logs._log_map import ValueRejected
from simulator.logs._values import arrow_instants, epoch_unit, read_instant
from tests.simulator.logs.whole import Log, read_log

STAMP = "17/May/2015:10:05:03 +0000"
ASSUMED = {"address": "192.0.2.1", "path": "POST /tokenize"}
OF_PATHS = {"address": "192.0.2.1", "method": "GET"}
T_NS = 1_431_857_103_000_000_000
GOOD = f'203.0.113.7 - - [{STAMP}] "GET /a?b=1 HTTP/1.1" 200 12 "-" "curl/8"'


def values(log: Log, name: str) -> list[str | None]:
    column = log.fields[name]
    return [None if code < 0 else column.names[code] for code in column.codes]


def rows(log: Log) -> list[tuple[Any, ...]]:
    return list(
        zip(
            log.t_ns.tolist(),
            values(log, "address"),
            values(log, "method"),
            values(log, "path"),
            strict=True,
        )
    )


def combined(tmp_path: Path, *lines: str, name: str = "access.log") -> Path:
    file = tmp_path / name
    file.write_text("\n".join(lines) + "\n")
    return file


def test_combined_lines_give_address_method_and_path_as_logged(tmp_path: Path) -> None:
    log = read_log(combined(tmp_path, GOOD))
    assert (log.format, len(log), log.unparsed) == ("combined", 1, 0)
    assert rows(log) == [(T_NS, "203.0.113.7", "GET", "/a?b=1")]
    assert "key" not in log.fields


def test_the_common_format_is_told_from_the_combined_one(tmp_path: Path) -> None:
    line = f'203.0.113.7 - ada [{STAMP}] "PUT /x HTTP/2.0" 204 -'
    log = read_log(combined(tmp_path, line))
    assert (log.format, rows(log)) == ("common", [(T_NS, "203.0.113.7", "PUT", "/x")])


def test_one_line_that_is_cut_does_not_make_a_combined_log_a_common_one(tmp_path: Path) -> None:
    cut = GOOD.removesuffix(' "-" "curl/8"')
    log = read_log(combined(tmp_path, cut, GOOD, GOOD))
    assert (log.format, len(log), log.unparsed) == ("combined", 2, 1)
    assert read_log(combined(tmp_path, GOOD, cut, cut)).format == "common"


@pytest.mark.parametrize(
    ("request_line", "method", "path"),
    [
        ("GET /x HTTP/1.1", "GET", "/x"),
        ("M-SEARCH * HTTP/1.1", "M-SEARCH", "*"),
        ("propfind /x HTTP/1.0", "propfind", "/x"),
        ("GET /a b HTTP/1.1", "GET", "/a b"),
        ("GET /only", "GET", "/only"),
        ("CONNECT example.test:443 HTTP/1.1", "CONNECT", "example.test:443"),
        (r"GET /\"quoted\" HTTP/1.1", "GET", r"/\"quoted\""),
        ("GET http://h.test/%41 HTTP/1.1", "GET", "/%41"),
    ],
)
def test_odd_request_lines(tmp_path: Path, request_line: str, method: str, path: str) -> None:
    log = read_log(combined(tmp_path, f'::1 - - [{STAMP}] "{request_line}" 200 1 "-" "-"'))
    assert rows(log) == [(T_NS, "::1", method, path)]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (GOOD.replace('"curl/8"', '"curl/8'), "agent is missing, truncated or malformed"),
        (GOOD.replace("GET /a?b=1 HTTP/1.1", "-"), "request is missing"),
        (GOOD.replace("GET /a?b=1", r"\x16\x03\x01"), "request must be a method, a path"),
        (GOOD.replace("17/May", "17/Mai"), "time must name a month from Jan to Dec"),
        (GOOD.replace("[17", "17"), "time is missing, truncated or malformed"),
        (GOOD.replace(" 200 ", " OK "), "status is missing, truncated or malformed"),
        (GOOD + ' "open', "what follows agent is malformed"),
        ("garbage", "identity is missing, truncated or malformed"),
        ("x" * (1 << 20), "line is too long"),
        (GOOD.replace("203.0.113.7", "bad\x1b[31m"), "address must be an IP address"),
    ],
)
def test_a_line_that_does_not_parse_is_counted_named_and_stops_nothing(
    tmp_path: Path, line: str, why: str
) -> None:
    log = read_log(combined(tmp_path, GOOD, line, GOOD), format="combined")
    assert (len(log), log.unparsed, log.line.tolist()) == (2, 1, [1, 3])
    assert log.unparsed_first[0].startswith(f"access.log:2: {why}")
    assert "\x1b" not in log.unparsed_first[0]


def test_the_first_few_are_named_in_the_order_of_the_log(tmp_path: Path) -> None:
    bad_time = GOOD.replace("17/May", "40/May")
    log = read_log(combined(tmp_path, *[bad_time, "garbage"] * 9, GOOD), format="combined")
    assert log.unparsed == 18
    assert [text.split(":")[1] for text in log.unparsed_first] == ["1", "2", "3"]


def test_gzip_a_mark_and_carriage_returns_change_nothing(tmp_path: Path) -> None:
    plain = combined(tmp_path, GOOD, GOOD)
    packed = tmp_path / "access.log.1.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + plain.read_bytes().replace(b"\n", b"\r\n")))
    assert rows(read_log(packed)) == rows(read_log(plain))


def test_bytes_that_are_not_utf8_stay_visible(tmp_path: Path) -> None:
    file = tmp_path / "access.log"
    file.write_bytes(GOOD.encode().replace(b"/a?b=1", b"/\xff\xfe") + b"\n")
    assert values(read_log(file), "path") == [r"/\xff\xfe"]


def test_csv_json_lines_parquet_and_frames_agree(tmp_path: Path) -> None:
    moments = ["2023-11-16 18:15:46.6805900", "2023-11-16 18:15:50.9951690"]
    expected = [
        (1_700_158_546_680_590_000, "203.0.113.7", "GET", "/a"),
        (1_700_158_550_995_169_000, "203.0.113.8", "POST", "/b"),
    ]
    columns = {
        "Timestamp": moments,
        "client_ip": ["203.0.113.7", "203.0.113.8"],
        "method": ["GET", "POST"],
        "url": ["/a", "/b"],
    }
    table = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    (tmp_path / "a.csv").write_text(
        "\r\n".join([",".join(columns), *(",".join(row.values()) for row in table)])
    )
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in table))
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        assert rows(read_log(tmp_path / name)) == expected
    frame = pd.DataFrame(columns)
    frame["Timestamp"] = pd.to_datetime(frame["Timestamp"])
    assert rows(read_log(frame)) == expected
    assert rows(read_log(pa.table(columns))) == expected
    zoned = frame.assign(
        Timestamp=frame["Timestamp"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    )
    pq.write_table(pa.Table.from_pandas(zoned), tmp_path / "zoned.parquet")
    assert rows(read_log(tmp_path / "zoned.parquet")) == expected


@pytest.mark.parametrize("addresses", [3, 200])
def test_columns_that_are_dictionaries_already_keep_what_is_absent(
    tmp_path: Path, addresses: int
) -> None:
    """As pandas' categories are, and the texts of the simulator's own `requests.parquet`."""
    count = 2 * addresses
    frame = pd.DataFrame(
        {
            "t_ns": range(count),
            "ip": [f"203.0.113.{number % addresses}" for number in range(count)],
            "key": [None if number % 3 == 1 else f"k{number % 2}" for number in range(count)],
            "request": "GET /x HTTP/1.1",
        }
    )
    coded = frame.astype({"ip": "category", "key": "category"})
    coded.to_parquet(tmp_path / "coded.parquet")
    for source in (frame, coded, tmp_path / "coded.parquet"):
        log = read_log(source)
        assert values(log, "address") == frame["ip"].tolist()
        keys = [None if number % 3 == 1 else f"k{number % 2}" for number in range(count)]
        assert values(log, "key") == keys
    coded.loc[1, "ip"] = None
    assert read_log(coded).unparsed_first == ("frame:2: address is missing",)


def test_a_file_of_times_alone_needs_an_assumption(tmp_path: Path) -> None:
    file = tmp_path / "arrivals.csv"
    file.write_bytes(b"\xef\xbb\xbfwhen,size\r\n2023-11-16 18:15:46.0000001,3\r\n")
    with pytest.raises(InputError, match="address, method, path must be a field of the log"):
        read_log(file, time_column="when")
    log = read_log(file, time_column="when", assume=ASSUMED)
    assert rows(log) == [(1_700_158_546_000_000_100, "192.0.2.1", "POST", "/tokenize")]
    assert "key" not in log.fields


def test_csv_faults(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(
        'time,path\n1,/a\n2\n"3","/quoted, with comma"\nnever,/b\n,/c\n4,"/two\nlines"\n5,\n6,/z\n'
    )
    log = read_log(file, assume=OF_PATHS)
    assert values(log, "path") == ["/a", "/quoted, with comma", "/two\nlines", "/z"]
    assert log.line.tolist() == [2, 4, 7, 10]
    assert log.unparsed_first == (
        "a.csv:3: row must have 2 columns, it has 1",
        (
            "a.csv:5: time must be like 2023-11-16T18:15:46.25Z, 17/May/2015:10:05:03 +0000,"
            " Mon, 09 Jun 2025 12:10:00 GMT, Mon Jun  9 12:10:00 2025 or an epoch number"
        ),
        "a.csv:6: time is missing",
    )
    assert log.unparsed == 4


@pytest.mark.parametrize("form", ["1,/{}\n", '{{"time": 1, "path": "/{}"}}\n'])
def test_a_row_that_is_too_long_is_counted(tmp_path: Path, form: str) -> None:
    file = tmp_path / "a.log"
    file.write_text("".join(form.format("x" * length) for length in (1, 1 << 20, 2)))
    if form.startswith("1"):
        file.write_text("time,path\n" + file.read_text())
    log = read_log(file, assume=OF_PATHS)
    assert values(log, "path") == ["/x", "/xx"]
    assert log.unparsed == 1
    assert log.unparsed_first[0].endswith(": line is too long")


def test_a_quote_that_never_closes_loses_counted_lines_only(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    swallowed = "\n".join(f"{n},/{'x' * 90}" for n in range(2000))
    file.write_text(f'time,path\n1,/a\n2,"/b\n{swallowed}\n9999,/z\n')
    log = read_log(file, assume=OF_PATHS)
    assert len(log) + log.unparsed == 2003
    assert log.unparsed_first[0] == "a.csv:3: quotes must be closed, with no bare carriage return"
    assert values(log, "path")[-1] == "/z"


def test_json_numbers_keep_their_digits_and_names_reach_inside(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    lines = [
        '{"ts": 1700158546.123456789, "request": {"path": "/a"}, "ip": "203.0.113.7"}',
        "",
        '{"ts": 1700158547.5, "request": {"path": "/b"}, "ip": "203.0.113.7"}',
        '{"ts": NaN, "request": {"path": "/a"}, "ip": "x"}',
        "[1]",
        '{"ts": 1700158548, "ip": "203.0.113.7"}',
        "[" * 5000,
    ]
    file.write_text("\n".join(lines))
    log = read_log(file, format="jsonl", assume={"method": "GET"})
    assert log.t_ns.tolist() == [1_700_158_546_123_456_789, 1_700_158_547_500_000_000]
    assert values(log, "path") == ["/a", "/b"]
    assert (log.unparsed, log.line.tolist()) == (4, [1, 3])
    assert log.unparsed_first[2] == "a.jsonl:6: path is missing"


def test_parquet_times_of_every_unit_are_exact(tmp_path: Path) -> None:
    for unit, number in (("s", 7), ("ms", 7_001), ("us", 7_000_001), ("ns", 7_000_000_001)):
        table = pa.table({"t": pa.array([number, None], pa.timestamp(unit))})
        pq.write_table(table, tmp_path / "t.parquet")
        log = read_log(tmp_path / "t.parquet", assume=ASSUMED)
        scale = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
        assert log.t_ns.tolist() == [number * scale]
        assert log.unparsed_first == ("t.parquet:2: time is missing",)
    numbers = pa.table({"t": np.array([0.1, 0.25, float("nan")])})
    pq.write_table(numbers, tmp_path / "t.parquet")
    assert read_log(tmp_path / "t.parquet", assume=ASSUMED).t_ns.tolist() == [
        100_000_000,
        250_000_000,
    ]


def test_columns_of_a_finished_run_replay_as_they_are() -> None:
    frame = pd.DataFrame({"t_ns": [5, 0], "ip": ["a", "b"], "key": ["key-0001", None]})
    log = read_log(frame, assume={"path": "POST /tokenize"})
    assert log.t_ns.tolist() == [5, 0]
    assert values(log, "key") == ["key-0001", None]


def test_a_key_is_taken_from_an_appended_header_field(tmp_path: Path) -> None:
    key = "key_prod_us_pub_" + "A" * 22
    log = read_log(combined(tmp_path, GOOD + f' "198.51.100.1" "{key}"', GOOD + ' "-" "-"'))
    assert values(log, "key") == [key, None]
    named = read_log(
        combined(tmp_path, GOOD + ' "abc"'),
        map=LogMap.from_document(_document('time = "time"\nkey = "extra1"\nrequest = "request"')),
    )
    assert values(named, "key") == ["abc"]
    assert "abc" not in repr(named)


def _document(text: str) -> Document:
    return parse_toml(text, "map.toml")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.log", None, "log = '{}' must exist; check the name"),
        ("empty.log", b"", "log = '{}' must hold at least one line; it is empty"),
        ("blank.log", b"\n\n", "log = '{}' must hold at least one line; it is blank"),
        ("utf16.log", b"\xff\xfea\0", "log = '{}' must be UTF-8; it is UTF-16, convert it first"),
        (
            "cut.log.gz",
            gzip.compress(b"x" * 999, mtime=0)[:20],
            "log = '{}' must be whole gzip; it is cut or damaged",
        ),
        ("bad.parquet", b"PAR1 no", "log = '{}' must be Parquet; it is cut or damaged"),
        (
            "times.csv",
            b"when\n1\n",
            (
                "times.csv: time, address, method, path must be a field of the log; the fields are:"
                ' when; name it in a map (--map FILE with: time = "…"; address = "…"; method = "…";'
                " path = \"…\"; see docs/simulator.md#map), --assume 'address=192.0.2.1', --assume"
                " 'path=POST /tokenize', or name the time with --time-column"
            ),
        ),
        (
            "junk.log",
            b"junk\n",
            (
                "log = '{}' must be in a known format; `replay --formats` lists them, or describe"
                " its lines in a map: line = '(?P<time>…) …', see docs/simulator.md#map"
            ),
        ),
    ],
)
def test_a_log_that_cannot_be_used_is_one_line(
    tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_log(file)
    assert str(caught.value) == message.format(file)


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a file; it is a folder"):
        read_log(tmp_path)


def test_wrong_arguments_name_the_way_out(tmp_path: Path) -> None:
    file = combined(tmp_path, GOOD)
    with pytest.raises(InputError, match="did you mean 'combined'"):
        simulator.replay(file, format="combine")
    with pytest.raises(InputError, match="must go with csv, jsonl or parquet"):
        read_log(file, time_column="time")
    (tmp_path / "a.csv").write_text("TIMESTAMP\n1\n")
    with pytest.raises(InputError, match="did you mean 'TIMESTAMP'"):
        read_log(tmp_path / "a.csv", time_column="TIMESTAMPS")


def test_the_real_logs_parse_whole(shared_data: Path) -> None:
    apache = read_log(shared_data / "apache_access.log")
    assert (len(apache), apache.unparsed) == (9_999, 1)
    assert apache.unparsed_first == (
        "apache_access.log:8899: agent is missing, truncated or malformed",
    )
    arrivals = read_log(
        shared_data / "api_arrivals.csv", format="csv", time_column="TIMESTAMP", assume=ASSUMED
    )
    assert (len(arrivals), arrivals.unparsed) == (19_366, 0)
    assert all(arrivals.t_ns % 100 == 0)
    assert int(arrivals.t_ns[0]) == 1_700_158_546_680_590_000


def test_nine_fields_after_the_agent_have_names(tmp_path: Path) -> None:
    """Quoted, or bare as a request time of nginx is."""
    fields = (f'"e{number}"' if number > 1 else "0.003" for number in range(1, 11))
    log = combined(tmp_path, " ".join((GOOD, *fields)))

    def extra(number: int) -> Log:
        text = f'time = "time"\naddress = "address"\nkey = "extra{number}"'
        return read_log(log, map=LogMap.from_document(parse_toml(text, "map.toml")))

    assert [values(extra(number), "key") for number in (1, 9)] == [["0.003"], ["e9"]]
    with pytest.raises(InputError, match=r"key.field = 'extra10' must be a field of access.log"):
        extra(10)


# --- times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("notation", "text", "expected_ns"),
    [
        ("clf", "17/May/2015:10:05:03 +0000", 1_431_857_103_000_000_000),
        ("clf", "17/May/2015:12:35:03 +0230", 1_431_857_103_000_000_000),
        ("clf", "17/May/2015:03:05:03.25 -0700", 1_431_857_103_250_000_000),
        ("iso", "2023-11-16 18:15:46.6805900", 1_700_158_546_680_590_000),
        ("iso", "2023-11-16T18:15:46.123456789Z", 1_700_158_546_123_456_789),
        ("iso", "2023-11-16T20:15:46+02:00", 1_700_158_546_000_000_000),
        ("iso", "2023-11-16T18:15:46,5", 1_700_158_546_500_000_000),
        ("iso", "2016-12-31T23:59:60Z", 1_483_228_800_000_000_000),
        ("s", "1700158546.68059", 1_700_158_546_680_590_000),
        ("s", "-0.5", -500_000_000),
        ("ms", "1700158546680.59", 1_700_158_546_680_590_000),
        ("us", "1700158546680590.1", 1_700_158_546_680_590_100),
        ("ns", "1700158546680590123", 1_700_158_546_680_590_123),
        ("s", "1.500000000000", 1_500_000_000),
        ("s", "1.749470000E9", 1_749_470_000_000_000_000),
        ("ms", "1.749470000123e+12", 1_749_470_000_123_000_000),
        ("s", "25e-2", 250_000_000),
        ("iso", "2023-11-16 18:15:46 GMT", 1_700_158_546_000_000_000),
        ("iso", "2023/11/16 18:15:46", 1_700_158_546_000_000_000),
        ("clf", "17/May/2015:10:05:03 GMT", 1_431_857_103_000_000_000),
        ("http", "Sun, 17 May 2015 10:05:03 GMT", 1_431_857_103_000_000_000),
    ],
)
def test_stamps_are_read_exactly(notation: str, text: str, expected_ns: int) -> None:
    assert read_instant(text, notation)[0] == expected_ns


@pytest.mark.parametrize(
    ("notation", "text", "why"),
    [
        ("clf", "17/Mai/2015:10:05:03 +0000", "time must name a month from Jan to Dec"),
        ("clf", "31/Feb/2015:10:05:03 +0000", "time must name a day of the calendar"),
        ("clf", "17/May/2015:25:05:03 +0000", "time must lie between 00:00:00 and 23:59:60"),
        ("clf", "17/May/2015:10:05:61 +0000", "time must lie between 00:00:00 and 23:59:60"),
        ("iso", "yesterday", "time must be like 2023-11-16T18:15:46.25Z"),
        ("iso", "2023-11-16T18:15:46.1234567891", "finer than a nanosecond"),
        ("iso", "9999-11-16T18:15:46", "between the years 1678 and 2262"),
        ("iso", "2023-11-16T18:15:46+99:00", "zone within 24 hours"),
        ("s", "1.7e9e", "an epoch number"),
        ("ns", "1.5e0", "finer than a nanosecond"),
        ("ns", "0.5", "finer than a nanosecond"),
        ("s", "1" * 20, "between the years 1678 and 2262"),
        ("s", "\u0661\u0667", "an epoch number"),
    ],
)
def test_a_bad_stamp_says_why_and_never_what(notation: str, text: str, why: str) -> None:
    with pytest.raises(ValueRejected) as caught:
        read_instant(text, notation)
    assert why in str(caught.value)
    assert text not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("17/May/2015:10:05:03 +0000", None),
        ("1.7e9", "s"),
        ("0", "s"),
        ("1700158546", "s"),
        ("1700158546680", "ms"),
        ("1700158546680590", "us"),
        ("1700158546680590000", "ns"),
    ],
)
def test_an_epoch_number_s_size_suggests_its_unit(text: str, unit: str | None) -> None:
    assert epoch_unit(text) == unit


FIRST = dt.datetime(1700, 1, 1)  # noqa: DTZ001 # reason: the zone is drawn apart
LAST = dt.datetime(2260, 1, 1)  # noqa: DTZ001 # reason: the zone is drawn apart


@given(
    st.datetimes(FIRST, LAST),
    st.integers(0, 999_999_999),
    st.integers(-14 * 60, 14 * 60),
)
def test_iso_agrees_with_datetime_in_exact_arithmetic(
    moment: dt.datetime, fraction: int, zone_minutes: int
) -> None:
    moment = moment.replace(microsecond=0)
    zone = dt.timezone(dt.timedelta(minutes=zone_minutes))
    text = (
        moment.isoformat() + f".{fraction:09d}" + dt.datetime(1, 1, 2, tzinfo=zone).isoformat()[19:]
    )
    away = moment.replace(tzinfo=zone) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    exact = Fraction(away // dt.timedelta(seconds=1)) * 10**9 + fraction
    assert read_instant(text)[0] == exact


def test_a_column_of_numbers_is_read_at_once_where_each_can_be_said() -> None:
    """A number too far for nanoseconds leaves the column to the clock, which says why."""
    latest_s = (2**63 - 1) // 10**9
    for number in (latest_s, -latest_s):
        found = arrow_instants(pa.array([1, None, number]), "s")
        assert found is not None
        times_ns, bad = found
        assert times_ns.tolist() == [10**9, 0, number * 10**9]
        assert bad == {"time is missing": [1]}
        assert arrow_instants(pa.array([1, number + (1 if number > 0 else -1)]), "s") is None
