"""The limit table as data: the seed's rows, the file form, its messages, and changing a rule."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine.limits
from engine.errors import InputError
from engine.files import Rate, parse_toml
from engine.limits import SEED_SECTIONS, Classifier, LimitTable, Match, Rule, render
from engine.profile import LimitsProfile
from tests.oracles.limits import matches_resource

SCHEMA = Path(engine.limits.__file__).with_name("limits.schema.json")


def test_the_default_table_is_the_seeds_fourteen_rows_with_fifteen_counters() -> None:
    """Sections 8.2 to 8.7, row by row."""
    rows = [
        (
            rule.seed_section,
            rule.id,
            rule.counter,
            str(rule.rate),
            None if rule.block_ns is None else rule.block_ns // 10**9,
        )
        for rule in LimitTable.default()
    ]
    assert rows == [
        ("8.2", "LIM-TEST-TENANT", "ip+key", "50/10s", None),
        ("8.3", "LIM-SEARCH", "ip+key", "50/10s", None),
        ("8.3", "LIM-READ", "ip+key", "100/10s", None),
        ("8.3", "LIM-CREATE", "ip+key", "200/10s", None),
        ("8.3", "LIM-PATCH", "ip+key", "200/10s", None),
        ("8.3", "LIM-DELETE", "ip+key", "200/10s", None),
        ("8.3", "LIM-ACCOUNT-UPDATER", "ip+key", "10/10s", None),
        ("8.4", "LIM-PRIVATE", "key|ip", "2000/10s", None),
        ("8.4", "LIM-PUBLIC", "ip+key", "50/1m", 10),
        ("8.4", "LIM-MANAGEMENT", "key", "200/1m", 60),
        ("8.5", "LIM-PROXY-KEY", "proxy-key+ip", "50/10s", None),
        ("8.5", "LIM-PROXY-HOST", "host+ip", "50/10s", None),
        ("8.6", "LIM-IP", "ip", "2000/10s", 30),
        ("8.7", "LIM-LEGACY", "ip+key", "100/1m", None),
    ]
    counters = [name for rule in LimitTable.default() for name in rule.counter_names]
    assert len(counters) == 15
    assert LimitTable.default()["LIM-PRIVATE"].counter_names == (
        "LIM-PRIVATE.key",
        "LIM-PRIVATE.ip",
    )


def test_a_written_table_reads_back_as_equal(tmp_path: Path) -> None:
    own = Rule(
        id="OWN-NIGHT",
        match=Match(tenant="test", resource=("ANY /reactors/*",), legacy=False, proxy="host"),
        counter="host+ip",
        rate=Rate(3, 1_500_000_000),
        action="block",
        block_ns=250_000_000,
        shadow=True,
        algorithm="gcra",
        burst_requests=1,
    )
    table = LimitTable((*LimitTable.default().rules, own))
    path = tmp_path / "limits.toml"
    path.write_text(table.to_toml(), encoding="utf-8")
    assert LimitTable.from_toml(path) == table


def test_the_example_file_reads(repository: Path) -> None:
    path = repository.parent / "shared" / "examples" / "limits.toml"
    if not path.is_file():
        pytest.skip("the example files are not beside this checkout")
    table = LimitTable.from_toml(path)
    assert [rule.id for rule in table] == [
        "LIM-TEST-TENANT", "LIM-CREATE", "LIM-PRIVATE", "LIM-PUBLIC", "LIM-ACCOUNT-UPDATER",
    ]  # fmt: skip
    assert table["LIM-ACCOUNT-UPDATER"].shadow
    assert table["LIM-ACCOUNT-UPDATER"].algorithm == "gcra"
    assert table["LIM-CREATE"] == LimitTable.default()["LIM-CREATE"]


ROW = '[[rule]]\nid = "{id}"\ncounter = "{counter}"\nrate = "{rate}"\n{more}\n'


def row(rule_id: str = "LIM-IP", more: str = "", counter: str = "ip", rate: str = "5/1s") -> str:
    return ROW.format(id=rule_id, more=more, counter=counter, rate=rate)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            row("LIM-PUBLICK"),
            ("2:6: rule[0].id = \"LIM-PUBLICK\" is no known clause; did you mean 'LIM-PUBLIC'?"),
        ),
        (
            row("LIN-PUBLIC"),
            ("2:6: rule[0].id = \"LIN-PUBLIC\" is no known clause; did you mean 'LIM-PUBLIC'?"),
        ),
        (
            row("LIM-ZZZZZZ"),
            '2:6: rule[0].id = "LIM-ZZZZZZ" is no known clause; known: ' + ", ".join(SEED_SECTIONS),
        ),
        (
            row("LIM-BLOCK"),
            ('2:6: rule[0].id = "LIM-BLOCK" must be a row\'s id; this clause is about all rows'),
        ),
        (
            row("own night"),
            (
                '2:6: rule[0].id = "own night" must be capital letters, digits and '
                "hyphens, such as OWN-NIGHT"
            ),
        ),
        (row() + row(), '7:6: rule[1].id = "LIM-IP" must not be there twice; an id names one row'),
        (row(rate="-5/10s"), '4:8: rule[0].rate = "-5/10s" must be above 0'),
        (row(rate="0/10s"), '4:8: rule[0].rate = "0/10s" must be above 0'),
        (row(rate="5/400d"), '4:8: rule[0].rate = "5/400d" must have a window of at most 366d'),
        (
            row(rate="2000000/366d"),
            (
                '4:8: rule[0].rate = "2000000/366d" must have requests × '
                "nanoseconds of the window below 2^62"
            ),
        ),
        (
            row(counter="ip+keys"),
            (
                '3:11: rule[0].counter = "ip+keys" must be one of "ip+key", '
                '"key|ip", "key", "ip", "proxy-key+ip", "host+ip"; did you mean \'ip+key\'?'
            ),
        ),
        (
            row(more='action = "block"'),
            ('5:10: rule[0].action = "block" must say how long; add block = "10s"'),
        ),
        (row(more='block = "10s"'), '5:9: rule[0].block = "10s" must stand with action = "block"'),
        (row(more='action = "block"\nblock = "0s"'), '6:9: rule[0].block = "0s" must be above 0'),
        (
            row(more='action = "block"\nblock = 10'),
            ('6:9: rule[0].block = 10 must name a unit; write "10s" for seconds'),
        ),
        (row(more="brust = 3"), "5:1: rule[0].brust is an unknown key; did you mean 'burst'?"),
        (
            row(more='burst = 3\nalgorithm = "fixed-window"'),
            ("5:9: rule[0].burst = 3 must stand with gcra; fixed-window has none"),
        ),
        (
            row(more='match = { resource = ["HEAD /tokens"] }'),
            (
                "5:23: rule[0].match.resource[0] = "
                '"HEAD /tokens" must not name HEAD, which counts as GET; write "GET /tokens"'
            ),
        ),
        (
            row(more='match = { resource = ["OPTIONS /a"] }'),
            (
                "5:23: rule[0].match.resource[0] = "
                '"OPTIONS /a" must not name OPTIONS, which counts under ANY; write "ANY /a"'
            ),
        ),
        (
            row(more='match = { resource = ["/tokens"] }'),
            (
                '5:23: rule[0].match.resource[0] = "/tokens" must be a method and a path such as '
                '"PATCH /tokens/{id}" or "ANY /reactors/*"'
            ),
        ),
        ("rules = []", "1:1: rules is an unknown key; did you mean 'rule'?"),
        ("", "1:1: rule is missing"),
    ],
)
def test_a_bad_file_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        LimitTable.from_document(parse_toml(text, "limits.toml"))
    assert str(caught.value).removeprefix("limits.toml:").strip() == message


def test_a_bad_rule_made_in_python_is_refused_too() -> None:
    with pytest.raises(
        InputError, match=r'^OWN-1: block = "10s" must stand with action = "block"$'
    ):
        LimitTable((Rule(id="OWN-1", counter="ip", rate=Rate(1, 1), block_ns=10**10),))
    with pytest.raises(InputError, match=r"^OWN-1: rate = .* must be a rate above 0$"):
        LimitTable((Rule(id="OWN-1", counter="ip", rate=Rate(0, 10**9)),))
    with pytest.raises(InputError, match=r'^OWN-1: action = "block" must say how long; add block'):
        LimitTable((Rule(id="OWN-1", counter="ip", rate=Rate(1, 1), action="block"),))


def test_a_rule_is_replaced_by_name() -> None:
    table = LimitTable.default().replace_rule("LIM-PUBLIC", rate="100/1m", shadow=True)
    assert table["LIM-PUBLIC"].limit_requests == 100
    assert table["LIM-PUBLIC"].shadow
    assert len(table.rules) == 14
    assert LimitTable.default()["LIM-PUBLIC"].limit_requests == 50
    with pytest.raises(InputError, match="limits have no rule 'LIM-PUBLICK'; did you mean"):
        table.replace_rule("LIM-PUBLICK", shadow=True)
    with pytest.raises(InputError, match="rule LIM-PUBLIC has no field 'blok_ns'; did you mean"):
        table.replace_rule("LIM-PUBLIC", blok_ns=3)


def test_the_committed_schema_is_fresh_and_says_what_the_reader_says() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert schema == LimitTable.schema()
    good = parse_toml(LimitTable.default().to_toml(), "x").value
    jsonschema.validate(good, schema)
    for text in (row(more="brust = 3"), row(rate="5"), row(counter="x"), "rule = 3"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(parse_toml(text, "x").value, schema)


def test_the_table_prints_with_clause_ids_and_sections() -> None:
    table = LimitTable.default().replace_rule("LIM-IP", shadow=True, algorithm="gcra")
    lines = render(table).splitlines()
    assert lines[0].split() == ["rule", "section", "counts", "counter", "rate", "action"]
    assert "LIM-MANAGEMENT       8.4      management application" in render(table)
    assert [line.split()[-4:] for line in lines if line.startswith("LIM-IP")] == [
        ["30s", "block", "shadow,", "gcra"]
    ]
    assert lines[-1] == "14 rules, 15 counters"


# --- resources of a request ----------------------------------------------------------------------


PATTERNS = tuple(pattern for rule in LimitTable.default() for pattern in rule.match.resource)


def classify(
    method: str, path: str, patterns: tuple[str, ...], get_tokens: Any = "list"
) -> tuple[str, ...]:
    """Return those of the patterns that a request falls under."""
    classifier = Classifier(patterns, get_tokens)
    return tuple(classifier.patterns[place] for place in classifier.matching(method, path))


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("POST", "/tokens", ("POST /tokens",)),
        ("POST", "/tokens?x=1", ("POST /tokens",)),
        ("POST", "/tokenize", ("POST /tokenize",)),
        ("POST", "/tokens/search", ("POST /tokens/search",)),
        ("GET", "/tokens", ("GET /tokens",)),
        ("HEAD", "/tokens", ("GET /tokens",)),
        ("GET", "/tokens/7", ()),
        ("OPTIONS", "/tokens", ()),
        ("OPTIONS", "/account-updater/jobs", ("ANY /account-updater/*",)),
        ("PUT", "/account-updater/jobs/7", ("ANY /account-updater/*",)),
        ("GET", "/account-updater", ()),
        ("GET", "/account-updaters/jobs", ()),
        ("PATCH", "/tokens/7", ("PATCH /tokens/{id}",)),
        ("PATCH", "/tokens/7?a=/b", ("PATCH /tokens/{id}",)),
        ("PATCH", "/tokens/", ()),
        ("PATCH", "/tokens/7/8", ()),
        ("DELETE", "/tokens/7", ("DELETE /tokens/{id}",)),
        ("get", "/tokens", ()),
        ("POST", "/Tokens", ()),
        ("POST", "/tokens/", ()),
        ("POST", "", ()),
        ("POST", "/tokens\n", ()),
    ],
)
def test_a_request_falls_under_these_rows(method: str, path: str, wanted: tuple[str, ...]) -> None:
    assert classify(method, path, PATTERNS) == wanted


def test_reads_of_one_token_fall_under_the_row_by_prefix_where_the_profile_says_so() -> None:
    assert classify("GET", "/tokens/7", PATTERNS, "prefix") == ("GET /tokens",)
    assert classify("GET", "/tokensx", PATTERNS, "prefix") == ()
    assert classify("POST", "/tokens/7", PATTERNS, "prefix") == ()


@given(
    st.sampled_from(("GET", "HEAD", "POST", "PATCH", "DELETE", "OPTIONS", "PUT")),
    st.lists(
        st.sampled_from(("tokens", "search", "account-updater", "7", "", "tokenize")), max_size=4
    ),
    st.sampled_from(("", "?", "?a=/tokens")),
    st.sampled_from(("list", "prefix")),
)
def test_the_classifier_is_the_oracles(
    method: str, segments: list[str], query: str, get_tokens: str
) -> None:
    path = "/" + "/".join(segments) + query
    profile = LimitsProfile(get_tokens=get_tokens)  # type: ignore[arg-type] # reason: drawn
    patterns = (*PATTERNS, "ANY /tokens/{id}/*", "GET /tokens/{id}")
    wanted = tuple(p for p in patterns if matches_resource(p, method, path, profile))
    assert classify(method, path, patterns, profile.get_tokens) == wanted


def test_the_memory_of_seen_paths_is_bounded() -> None:
    classifier = Classifier(PATTERNS)
    for number in range(70_000):
        classifier.matching("PATCH", f"/tokens/{number}")
    assert len(classifier._seen) <= 1 << 16
    assert len(classifier._groups) == 1
