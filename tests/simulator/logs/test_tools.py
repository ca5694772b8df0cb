"""The logs that servers write by default, a line of each: read as they are meant, or refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from engine.errors import InputError
from simulator.logs import FORMATS, stream_log
from simulator.logs.formats import WRAPPERS

AT_S: Final = 1_749_471_000
IP: Final = "203.0.113.9"
STAMP: Final = "09/Jun/2025:12:10:00 +0000"
COMBINED: Final = f'{IP} - - [{STAMP}] "GET /tokens HTTP/1.1" 200 612 "-" "curl/8"'
FORMS: Final = Path(__file__).parents[2] / "fixtures" / "tool_logs.toml"
LINES: Final[dict[str, tuple[str, str]]] = {
    name: (form["format"], form["text"])
    for name, form in tomllib.loads(FORMS.read_text(encoding="utf-8")).items()
}
"""Name of the form → the format that it is read as, and the log."""


def read(path: Path, **options: Any) -> tuple[str, list[tuple[Any, ...]], dict[str, Any]]:
    """Return a log's format, its requests, and how it was read."""
    log = stream_log(path, **options)
    requests = []
    for batch in log.batches():
        for row, t_ns in enumerate(batch.t_ns.tolist()):
            names = ("address", "method", "path")
            ip, method, target = (str(log.names[name][batch.codes[name][row]]) for name in names)
            requests.append((t_ns, ip, method, target.partition("?")[0]))
    return log.format, requests, log.reading


@pytest.mark.parametrize("form", list(LINES))
def test_what_a_tool_writes_is_read_as_it_is_meant(tmp_path: Path, form: str) -> None:
    expected, text = LINES[form]
    log = tmp_path / "access.log"
    log.write_text(text + "\n")
    name, requests, reading = read(log)
    assert (name, requests) == (expected, [(AT_S * 10**9, IP, "GET", "/tokens")])
    assert reading["lines_skipped"] == 0
    assert reading["format"] == expected
    # Stated by its name, it is read alike.
    assert read(log, format=expected.partition(" ")[0])[:2] == (name, requests)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (f'{COMBINED} "198.51.100.7, 198.51.100.8"', "extra1"),
        (f'{COMBINED} 0.003 10.0.0.5:80 "198.51.100.7"', "extra3"),
        (f"{COMBINED} 0.003 10.0.0.5:80", None),
        (
            LINES["HAProxy behind syslog"][1].replace("{1wt.eu} {}", "{198.51.100.7|curl}"),
            "captures",
        ),
        (LINES["HAProxy behind syslog"][1], None),
        (
            json.dumps(
                {"time": AT_S, "ip": IP, "x_forwarded_for": IP, "method": "GET", "path": "/tokens"}
            ),
            "x_forwarded_for",
        ),
        (
            json.dumps(
                {
                    "time": AT_S,
                    "clientIp": IP,
                    "seen": [IP, "10.0.0.1"],
                    "method": "GET",
                    "url": "/",
                }
            ),
            "seen",
        ),
        (
            json.dumps(
                {
                    "time": AT_S * 1000,
                    "req": {
                        "method": "GET",
                        "url": "/tokens",
                        "headers": {"x-forwarded-for": "198.51.100.7"},
                        "remoteAddress": IP,
                    },
                }
            ),
            "req.headers.x-forwarded-for",
        ),
    ],
)
def test_addresses_that_nobody_reads_are_named(
    tmp_path: Path, text: str, field: str | None
) -> None:
    """Behind a proxy the first address is the proxy's, and all clients would count as one."""
    log = tmp_path / "access.log"
    log.write_text(text + "\n")
    note = "" if field is None else f"; {field} holds addresses too, a map can take it"
    assert read(log)[2]["fields"]["address"].partition(";")[2] == note.removeprefix(";")


@pytest.mark.parametrize(
    ("rounded", "exact"),
    [
        ({"time_iso8601": "2025-06-09T12:10:00+00:00"}, {"msec": f"{AT_S}.250"}),
        ({"requestTime": STAMP}, {"requestTimeEpoch": AT_S * 1000 + 250}),
    ],
)
def test_of_two_times_the_finer_one_is_read(
    tmp_path: Path, rounded: dict[str, Any], exact: dict[str, Any]
) -> None:
    log = tmp_path / "access.log"
    request = {"ip": IP, "method": "GET", "path": "/tokens"}
    log.write_text(json.dumps({**rounded, **exact, **request}) + "\n")
    assert read(log)[1] == [(AT_S * 10**9 + 250_000_000, IP, "GET", "/tokens")]


@pytest.mark.parametrize("mark", ["\t", ","])
@pytest.mark.parametrize("closing", ["", '"Opera'])
def test_a_quote_that_takes_rows_into_a_cell_is_named(
    tmp_path: Path, mark: str, closing: str
) -> None:
    """A raw quote in a user agent took the rows below along, and nothing was said."""
    log = tmp_path / "access.log"
    agents = ["curl", '"Mozilla', "curl", closing or "curl"]
    rows = [mark.join([str(AT_S), IP, "GET", "/tokens", agent]) for agent in agents]
    log.write_text("\n".join([mark.join(["time", "ip", "method", "path", "agent"]), *rows]) + "\n")
    _, requests, reading = read(log)
    assert requests == [(AT_S * 10**9, IP, "GET", "/tokens")]
    assert reading["lines_skipped"] == 3


def test_a_cell_of_several_lines_is_a_cell(tmp_path: Path) -> None:
    log = tmp_path / "access.csv"
    log.write_text(f'time,ip,note,method,path\n{AT_S},{IP},"a, b\nc\n",GET,/tokens\n')
    assert read(log)[1] == [(AT_S * 10**9, IP, "GET", "/tokens")]


def test_every_format_and_wrapper_has_a_line_here() -> None:
    formats = {name.partition(" ")[0] for name, _ in LINES.values()} | {"parquet", "tollgate"}
    assert formats == set(FORMATS)
    wrappers = {wrapper for name, _ in LINES.values() for wrapper in name.split(" in ")[1:]}
    assert wrappers == {wrapper.name for wrapper in WRAPPERS}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"203.0.113.9 {COMBINED}", "must be in a known format"),
        ("GET /tokens 200 1.234 ms - 12", "must be in a known format"),
        (f'INFO:     {IP}:5432 - "GET /tokens HTTP/1.1" 200 OK', "time must be a field of the log"),
        (
            f"2025-06-09T12:10:00Z,{IP},GET,/tokens",
            "the first row must name the columns, and holds values; name the 4 columns in a map",
        ),
        (json.dumps([[AT_S, IP, "GET", "/tokens"]]), "the first row must name the columns"),
        (json.dumps({"Records": [{"ip": IP}]}), r"Records\[\] holds several, write each of them"),
        (
            json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": "x"}]}]}]}),
            r"jq -c '\.resourceLogs\[\]\.scopeLogs\[\]\.logRecords\[\]' LOG > records\.jsonl",
        ),
        ("\r".join([COMBINED] * 3), "must end its lines in line feeds, not in carriage returns"),
        (
            f"time,ip,method,path\n06/09/2025 12:10:00 PM,{IP},GET,/x",
            "convert such times first, or name another field in a map",
        ),
        (
            "\n".join(
                (
                    f'Started GET "/x" for {IP} at 2025-06-09 12:10:00 +0000',
                    "Processing by TokensController#index as JSON",
                    "Completed 200 OK in 12ms (Views: 3.2ms)",
                )
            ),
            "must be rails, but 2 of 3 lines do not parse; .* state --format to replay the others",
        ),
        (f"access.log.1:{COMBINED}", "address must stand alone; something precedes it"),
        (f"17:{COMBINED}", "address must stand alone"),
        (COMBINED.replace("- -", "- 198.51.100.7"), "must be in a known format"),
        (COMBINED.replace(IP, "unix:"), "address must be an IP address"),
        (f"date,ip,method,path\n20250609,{IP},GET,/x", "time must be like"),
        (f"time,ip,method,path\n{AT_S},{IP},GET,GET /x HTTP/1.1", "path must begin with /"),
        (f"time,ip,method,path\n{AT_S},{IP},GET,tokens", "path must begin with /"),
        (
            json.dumps({"request_time": 0.003, "remote_addr": IP, "request": "GET /x HTTP/1.1"}),
            "request_time seems to hold durations. Name the time",
        ),
        (
            "\n".join(["time,ip,method,path", *(f"{n * 7 % 10},{IP},GET,/x" for n in range(9))]),
            "time seems to hold durations. Name the time",
        ),
        (json.dumps({"time": AT_S, "ip": IP}), "method, path must be a field of the log"),
        (f"- {COMBINED.removeprefix(IP + ' ')}", "address is missing"),
        (COMBINED.replace(IP, f"tcp://{IP}:80"), "address must stand alone"),
        (
            json.dumps(
                {"date": "2025-06-09", "time": 0.003, "ip": IP, "method": "GET", "path": "/x"}
            ),
            "time seems to hold durations. Name the time",
        ),
        (
            "\n".join(
                json.dumps({"ts": 45_817.5 + n / 4096, "ip": IP, "method": "GET", "path": "/x"})
                for n in range(9)
            ),
            "ts seems to hold days of a spreadsheet, convert it first",
        ),
        (
            json.dumps({"ts": 133_939_518_000_000_000, "ip": IP, "method": "GET", "path": "/x"}),
            "ts seems to hold ticks of 100 ns, convert it first",
        ),
        (
            json.dumps({"ts": 638_850_678_000_000_000, "ip": IP, "method": "GET", "path": "/x"}),
            "ts seems to hold ticks of 100 ns",
        ),
        ("#Fields: time c-ip cs-method cs-uri\n12:10:00 203.0.113.9 GET /x", "time must be like"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_next_step(
    tmp_path: Path, text: str, why: str
) -> None:
    """Two addresses: nothing says which is the client's."""
    log = tmp_path / "access.log"
    log.write_text(text + "\n")
    with pytest.raises(InputError, match=why) as caught:
        read(log)
    assert str(caught.value).isprintable()
