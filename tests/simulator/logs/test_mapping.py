"""The file of `--map`: what it can say, and what is said of a bad one."""

import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from engine.errors import InputError
from engine.files import parse_toml
from simulator.logs import LogMap, stream_log
from tests.simulator.logs.test_tools import read
from tests.simulator.logs.whole import Log, read_log

EXAMPLE = r"""
format = "jsonl"
time = { field = "at", unit = "ms" }
address = "client_ip"
key = { field = "headers.svc-api-key" }
method = { field = "verb", lookup = { G = "GET", P = "POST" } }
path = { field = "url", pattern = 'https?://[^/]+(?P<path>/\S*)' }
tenant = { field = "host", lookup = { "pay.acme.test" = "acme" }, default = "others" }
tenant_kind = { field = "host", lookup = { "try.acme.test" = "test" }, default = "production" }
application = { value = "checkout" }
application_kind = { field = "app", default = "private" }
legacy = { value = false }
"""

LINES = [
    {
        "at": 1_700_000_000_000,
        "client_ip": "203.0.113.7",
        "headers": {"svc-api-key": "one"},
        "verb": "P",
        "url": "https://pay.acme.test/tokens?size=1",
        "host": "pay.acme.test",
        "app": "public",
    },
    {
        "at": 1_700_000_000_250.5,
        "client_ip": "203.0.113.8",
        "headers": {},
        "verb": "G",
        "url": "http://try.acme.test/x",
        "host": "try.acme.test",
    },
]


def values(log: Log, name: str) -> list[str | None]:
    column = log.fields[name]
    return [None if code < 0 else column.names[code] for code in column.codes]


def jsonl(tmp_path: Path, lines: list[dict[str, Any]]) -> Path:
    file = tmp_path / "api.log"
    file.write_text("\n".join(map(json.dumps, lines)))
    return file


def read_map(text: str) -> LogMap:
    return LogMap.from_document(parse_toml(text, "map.toml"))


def test_each_target_comes_from_where_the_map_says(tmp_path: Path) -> None:
    log = read_log(jsonl(tmp_path, LINES), map=read_map(EXAMPLE))
    assert log.t_ns.tolist() == [1_700_000_000_000_000_000, 1_700_000_000_250_500_000]
    assert {name: values(log, name) for name in log.fields} == {
        "address": ["203.0.113.7", "203.0.113.8"],
        "key": ["one", None],
        "method": ["POST", "GET"],
        "path": ["/tokens?size=1", "/x"],
        "tenant": ["acme", "others"],
        "tenant_kind": ["production", "test"],
        "application": ["checkout", "checkout"],
        "application_kind": ["public", "private"],
        "legacy": ["false", "false"],
    }


def test_a_constant_is_read_as_the_text_of_a_field_is(tmp_path: Path) -> None:
    text = """
    time = { field = "at", unit = "ms" }
    request = { value = "GET /x HTTP/1.1" }
    address = { value = "::ffff:203.0.113.7" }
    """
    log = read_log(jsonl(tmp_path, LINES[:1]), map=read_map(text))
    said = [values(log, name) for name in ("method", "path", "address")]
    assert said == [["GET"], ["/x"], ["203.0.113.7"]]


def test_a_line_whose_value_does_not_map_is_counted_and_never_quoted(tmp_path: Path) -> None:
    bad = [{**LINES[0], "verb": "secret"}, {**LINES[0], "app": "secret"}, {**LINES[0], "url": "x"}]
    log = read_log(jsonl(tmp_path, [*bad, LINES[0]]), map=read_map(EXAMPLE))
    assert log.unparsed_first == (
        "api.log:1: method has no entry in the map's lookup, and no default",
        "api.log:2: application_kind must be one of legacy, public, management, private",
        "api.log:3: path is missing",
    )


@pytest.mark.parametrize(
    "key", ['{ value = "sesame" }', '{ field = "k", lookup = { sesame = "sesame" } }']
)
def test_a_map_that_is_shown_tells_no_key(key: str) -> None:
    shown = repr(read_map(f'time = "t"\nkey = {key}\napplication = {{ value = "checkout" }}'))
    assert "target='key'" in shown
    assert "value='checkout'" in shown
    assert "sesame" not in shown


def test_a_pattern_splits_lines_of_a_format_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "own.log"
    file.write_text("5 203.0.113.7 POST:/tokens\nnoise\n6 203.0.113.8 GET:/x\n")
    text = r"""
    line = '(?P<when>\d+) (?P<ip>\S+) (?P<what>\S+)'
    time = { field = "when", unit = "s" }
    address = "ip"
    method = { field = "what", pattern = '^(\w+):' }
    path = { field = "what", pattern = ':(.*)' }
    """
    log = read_log(file, map=read_map(text))
    assert values(log, "method") == ["POST", "GET"]
    assert values(log, "path") == ["/tokens", "/x"]
    assert log.unparsed_first == ("own.log:2: line must match the pattern of the map",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('tyme = "t"', "map.toml:1:1: tyme is no part of a map; did you mean 'time'?"),
        (
            'time = { value = "5" }',
            "map.toml:1:8: time = {…} must come from a field; a log has no constant time",
        ),
        (
            "time = 3",
            'map.toml:1:8: time = 3 must be the name of a field, or a table like { field = "…" }',
        ),
        (
            'time = "t"\nkey = { field = "k", value = "v" }',
            "map.toml:2:7: key = {…} must have either field or value",
        ),
        (
            'time = "t"\nkey = { value = 5 }',
            "map.toml:2:17: key.value must be a text that is not empty",
        ),
        (
            'time = "t"\nkey = { field = "k", lookup = { key_secret = "" } }',
            "map.toml:2:31: key.lookup must be a text that is not empty",
        ),
        (
            'time = "t"\nrequest = { value = "GET" }',
            'map.toml:2:21: request.value = "GET" must be a method, a path and a version',
        ),
        (
            'time = "t"\npath = { field = "p", pattern = "(" }',
            (
                'map.toml:2:33: path.pattern = "(" must be a regular expression; missing ), '
                "unterminated subpattern at position 0"
            ),
        ),
        (
            'time = "t"\npath = { field = "p", pattern = "(a)(b)" }',
            'map.toml:2:33: path.pattern = "(a)(b)" must have one group, or one called (?P<path>…)',
        ),
        (
            'time = "t"\ntenant_kind = { value = "prod" }',
            'map.toml:2:25: tenant_kind.value = "prod" must be one of production, test',
        ),
        (
            'time = "t"\napplication_kind = { field = "a", lookup = { x = "pubic" } }',
            (
                'map.toml:2:50: application_kind.lookup.x = "pubic" must be one of legacy, public, '
                "management, private; did you mean 'public'?"
            ),
        ),
        (
            'time = { field = "t", unit = "min" }',
            (
                'map.toml:1:30: time.unit = "min" must be one of auto, clf, iso, http, asctime, s,'
                " ms, us, ns"
            ),
        ),
        (
            'time = "t"\npath = { field = "p", unit = "s" }',
            (
                "map.toml:2:23: path.unit is an unknown key; known: field, value, pattern, lookup, "
                "default"
            ),
        ),
        (
            'time = "t"\nrequest = "r"\npath = "p"',
            "map.toml:2:1: request must stand alone; it gives method and path already",
        ),
        (
            'time = "t"\nformat = "cvs"',
            (
                'map.toml:2:10: format = "cvs" must be the name of a format; `replay --formats`'
                " lists them; did you mean 'ecs'?"
            ),
        ),
        (
            "time = \"t\"\nline = 'x'",
            (
                'map.toml:2:8: line = "x" must have named groups, such as (?P<time>…); they are '
                "the fields"
            ),
        ),
    ],
)
def test_a_bad_map_is_told_by_place_value_and_rule(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_map(text)
    assert str(caught.value) == message


def test_a_field_that_the_log_does_not_have_is_told_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("when,client_ip\n1,203.0.113.7\n")
    with pytest.raises(InputError) as caught:
        read_log(file, map=read_map('time = "when"\naddress = { field = "clientip" }'))
    assert str(caught.value) == (
        "map.toml:2:11: address.field = 'clientip' must be a field of a.csv; did you mean "
        "'client_ip'?"
    )


def test_format_flag_and_map_must_agree(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text("when\n1\n")
    with pytest.raises(InputError, match="must agree with the map, which has 'csv'"):
        read_log(file, map=read_map('time = "when"\nformat = "csv"'), format="jsonl")


def test_fields_beside_the_map_are_read_where_the_log_has_them() -> None:
    frame = pd.DataFrame({"time": [1, 2], "Status_Code": ["200", None], "n": [1, 2]})
    request = {"address": "192.0.2.1", "path": "POST /tokenize"}
    stream = stream_log(
        frame, assume=request, extra={"status": ("status", "statuscode"), "app": ("app",)}
    )
    (batch,) = stream.batches()
    assert [stream.names["status"][code] for code in batch.codes["status"]] == ["200", ""]
    assert "app" not in stream.names


# --- the maps of docs/simulator.md ---------------------------------------------------------------


_DOCS = Path(__file__).parents[3] / "docs" / "simulator.md"
_EXAMPLES = re.findall(
    r"```text\n(.*?)```\n\n```toml\n(.*?)```",
    _DOCS.read_text("utf-8").split("### Map")[1],
    re.DOTALL,
)
SECOND_NS = 10**9
AT_NS = 1_749_471_000 * SECOND_NS


@pytest.mark.parametrize("example", range(3))
def test_a_map_of_the_documents_reads_its_log(tmp_path: Path, example: int) -> None:
    assert len(_EXAMPLES) == 3
    log, toml = _EXAMPLES[example]
    (tmp_path / "access.log").write_text(log, "utf-8")
    log_map = LogMap.from_document(parse_toml(toml, "map.toml"))
    _, requests, reading = read(tmp_path / "access.log", map=log_map)
    after_ns = [(0, SECOND_NS), (SECOND_NS // 8, SECOND_NS // 4), (0, SECOND_NS)][example]
    assert requests == [
        (AT_NS + after_ns[0], "192.0.2.7", "POST", "/tokenize"),
        (AT_NS + after_ns[1], "192.0.2.8", "GET", "/tokens"),
    ]
    assert reading["lines_skipped"] == 0
