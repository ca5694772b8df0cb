"""Forms: one dataclass gives the reader, the writer and the JSON Schema of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator

from engine import Engine, LimitTable, Profile
from engine.cli import main
from engine.errors import InputError, StoreError
from engine.files import (
    Alias,
    Document,
    Include,
    Integer,
    Number,
    Rate,
    TextType,
    Unwritten,
    from_document,
    json_schema,
    parse_duration_ns,
    parse_rate,
    parse_size_bytes,
    parse_toml,
    shown_value,
    to_plain,
    to_toml,
)
from engine.http.configuration import loads
from engine.store import SqliteStore


@dataclass(frozen=True, kw_only=True)
class Circle:
    """A circle."""

    kind: Literal["circle"] = "circle"
    radius: Annotated[float, Number(above=0)]


@dataclass(frozen=True, kw_only=True)
class Square:
    """A square."""

    kind: Literal["square"] = "square"
    side: int = field(default=1, metadata={"minimum": 1, "asks": "its side"})


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a thing."""

    name: str
    shape: Circle | Square = Square()


@dataclass(frozen=True, kw_only=True)
class Thing:
    """A thing.

    Its second paragraph is not the schema's.
    """

    title: Annotated[str | None, TextType(environment=True)] = None
    secret: Annotated[str | None, TextType(r"k_\w+", "must be a key", secret=True)] = None
    level: Literal["low", "high"] = "low"
    status: Literal[200, 201] = 200
    wait_ns: int = 0
    size_bytes: int = 0
    rate: Rate | None = None
    flag: bool = False
    names: tuple[str, ...] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    token_limit: Annotated[int | None, Alias("Tokenize Limit"), Integer(minimum=0, maximum=9)] = (
        None
    )
    other: Include | None = None
    parts: tuple[Part, ...] = ()
    note: Annotated[str, Unwritten] = "unwritten"


FULL = """
title = "plain"
secret = "k_1"
level = "high"
status = 201
wait = "1m30s"
size = "30MB"
rate = "50/10s"
flag = true
names = ["a", "b"]
weights = { x = 1, y = 0.5 }
"Tokenize Limit" = 9
[[parts]]
name = "wheel"
shape = { kind = "circle", radius = 2.5 }
[[parts]]
name = "box"
"""

THING = Thing(
    title="plain",
    secret="k_1",
    level="high",
    status=201,
    wait_ns=90 * 10**9,
    size_bytes=30_000_000,
    rate=Rate(50, 10 * 10**9),
    flag=True,
    names=("a", "b"),
    weights={"x": 1.0, "y": 0.5},
    token_limit=9,
    parts=(Part(name="wheel", shape=Circle(radius=2.5)), Part(name="box")),
)


def test_a_file_becomes_the_dataclass_and_back() -> None:
    assert from_document(Thing, parse_toml(FULL, "t.toml")) == THING
    assert from_document(Thing, parse_toml(to_toml(to_plain(THING)), "t.toml")) == THING
    assert from_document(Thing, parse_toml("", "t.toml")) == Thing()


def test_values_of_a_program_are_read_like_a_file() -> None:
    assert from_document(Thing, Document(to_plain(THING))) == THING


def test_the_schema_accepts_what_the_reader_does_and_says_what_it_means() -> None:
    schema = json_schema(Thing, title="Thing")
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    assert validator.is_valid(parse_toml(FULL, "t.toml").value)
    assert validator.is_valid(to_plain(THING))
    assert schema["description"] == "A thing."
    assert schema["$defs"]["Square"]["properties"]["side"] == {
        "type": "integer",
        "minimum": 1,
        "description": "its side",
        "default": 1,
    }
    assert "note" not in schema["properties"]


SQUARE = (
    '1:41: parts[0].shape.kind = "squar" must be one of "circle", "square"; '
    "did you mean 'square'?"
)
BAD = [
    ("titel = 1", "1:1: titel is an unknown key; did you mean 'title'?"),
    ("title = 1", "1:9: title = 1 must be a string"),
    ('title = ""', '1:9: title = "" must not be empty'),
    ('secret = "hush"', "1:10: secret must be a key"),
    ("secret = 7", "1:10: secret must be a string"),
    ('level = "hihg"', '1:9: level = "hihg" must be one of "low", "high"; did you mean \'high\'?'),
    ("status = 204", "1:10: status = 204 must be one of 200, 201"),
    ("status = 200.0", "1:10: status = 200.0 must be one of 200, 201"),
    ("wait = 3", '1:8: wait = 3 must name a unit; write "3s" for seconds'),
    ("wait = []", '1:8: wait = [] must be a duration such as "1m30s"'),
    ("size = -1", "1:8: size = -1 must be at least 0B"),
    ("size = 1.5", '1:8: size = 1.5 must be a size such as "30MB"'),
    ("rate = 5", '1:8: rate = 5 must name a window; write "5/1s" for requests a second'),
    ('rate = "0/1s"', '1:8: rate = "0/1s" must be above 0'),
    ("flag = 1", "1:8: flag = 1 must be true or false"),
    ('names = "a"', '1:9: names = "a" must be an array'),
    ('names = ["a", 1]', "1:15: names[1] = 1 must be a string"),
    ("weights = { x = true }", "1:17: weights.x = true must be a number"),
    ("weights = { x = nan }", "1:17: weights.x = nan must be a finite number"),
    ("weights = 1", "1:11: weights = 1 must be a table"),
    ('"Tokenize Limit" = 10', '1:20: "Tokenize Limit" = 10 must be at most 9'),
    ('"Tokenize Limit" = -1', '1:20: "Tokenize Limit" = -1 must be at least 0'),
    ('other = "none.toml"', '1:9: other = "none.toml" must be a file; there is none at none.toml'),
    ("parts = 1", "1:9: parts = 1 must be an array"),
    ("[parts]", "1:1: parts = {} must be an array; write [[parts]]"),
    ("[[parts]]", "1:1: parts[0].name is missing"),
    ('parts = [{ name = "a", shape = 1 }]', "1:32: parts[0].shape = 1 must be a table with a kind"),
    ('parts = [{ name = "a", shape = {} }]', "1:32: parts[0].shape.kind is missing"),
    (
        'parts = [{ name = "a", shape = { kind = "squar" } }]',
        SQUARE,
    ),
    (
        'parts = [{ name = "a", shape = { kind = "circle", radius = 0 } }]',
        "1:60: parts[0].shape.radius = 0 must be above 0",
    ),
    (
        'parts = [{ name = "a", shape = { kind = "square", radius = 1 } }]',
        "1:51: parts[0].shape.radius is an unknown key; known: kind, side",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_fault_is_named_at_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        from_document(Thing, parse_toml(text, "t.toml"))
    assert str(caught.value) == f"t.toml:{message}"


def test_the_environment_stands_in_where_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TITLE_PART", "sesame")
    document = parse_toml('title = "open ${TITLE_PART}!"', "t.toml")
    assert from_document(Thing, document).title == "open sesame!"


def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TITLE_PART", raising=False)
    with pytest.raises(InputError) as caught:
        from_document(Thing, parse_toml('title = "${TITLE_PART}"', "t.toml"))
    assert str(caught.value) == (
        "t.toml:1:1: title needs the environment variable TITLE_PART, which is not set"
    )


def test_an_included_file_lies_beside_the_one_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text("")
    found = from_document(Thing, parse_toml('other = "b.toml"', "a.toml", folder=tmp_path)).other
    assert found == Include("b.toml")
    assert found is not None
    assert found.file == tmp_path / "b.toml"
    assert found.where == "a.toml:1:9: "


# --- odd paths -----------------------------------------------------------------------------------


NAMES = ["a\0b", "\ud800"]


@pytest.mark.parametrize("name", NAMES)
def test_no_store_is_opened_under_what_is_no_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match=r"no file can have that name$") as caught:
        SqliteStore(tmp_path / name)
    assert str(caught.value).startswith(f"store = '{tmp_path}/")
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("read", [LimitTable.from_toml, Profile.from_toml])
def test_no_file_is_read_under_what_is_no_name(name: str, read: object) -> None:
    with pytest.raises(InputError, match=r"^'.*': no file can have that name$") as caught:
        read(name)  # type: ignore[operator] # reason: one of the two above
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()


def test_a_configuration_that_names_no_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A TOML text may hold what a command line cannot."""
    file = tmp_path / "serve.toml"
    file.write_text(f'store = "a\\u0000b"\nmaster_key = "{"00" * 32}"\n')
    assert main(["serve", "--config", str(file), "--port", "0"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        said.err == "engine: store = 'a\\x00b' must be a file's path; no file can have that name\n"
    )


# --- numbers of any length -----------------------------------------------------------------------


NINES = "9" * 5_000
HEX = "0x" + "f" * 6_000


@pytest.mark.parametrize(
    ("parse", "text", "rule"),
    [
        (parse_duration_ns, f"{NINES}h", "must be a duration such as"),
        (parse_duration_ns, f"1.{NINES}h", "must be a duration such as"),
        (parse_duration_ns, NINES, "must be a duration such as"),
        (parse_rate, f"{NINES}/10s", "must be a rate such as"),
        (parse_rate, f"1/{NINES}s", "must be a rate such as"),
        (parse_size_bytes, f"{NINES}MB", "must be a size such as"),
        (parse_duration_ns, "9" * 150 + "h", "must be below 292 years"),
        (parse_rate, "9" * 150 + "/s", "must be below 2147483648 requests"),
        (parse_size_bytes, "9" * 150, "must be below 9 EB"),
    ],
)
def test_a_quantity_of_any_length(parse: Callable[[str], object], text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        parse(text)


@pytest.mark.parametrize(
    "text", [NINES, HEX, "0o" + "7" * 9_000, "9223372036854775808", "-9223372036854775809"]
)
@pytest.mark.parametrize(
    "form", ["[tokens]\nindexes_limit = {}\n", "[tokens]\nx = [[1, {{ y = {} }}]]\n"]
)
def test_d_units_a_files_number_fits_64_bits(tmp_path: Path, form: str, text: str) -> None:
    """TOML asks for it; the place is named wherever Python could read the number at all."""
    file = tmp_path / "profile.toml"
    file.write_text(form.format(text))
    with pytest.raises(InputError, match=r"must fit 64 bits$") as caught:
        Profile.from_toml(file)
    assert len(str(caught.value)) < 300
    assert text == NINES or f"{file}:2:" in str(caught.value)


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63)])
def test_the_largest_numbers_are_read(number: int) -> None:
    assert parse_toml(f"a = [{number}]", "a.toml").value == {"a": [number]}


@pytest.mark.parametrize("read", [LimitTable.from_text, loads])
def test_a_key_of_thousands_of_parts_is_no_stack_of_ours(read: Callable[[str], Any]) -> None:
    """What is too deep to be found has no line and column; the file is named."""
    text = f"[a{'.b' * 2_000}]\nx = 1\n"
    with pytest.raises(InputError, match=r"^[a-z]+\.toml: a is an unknown key"):
        read(text)
    assert parse_toml(text, "serve.toml").where(("a",)) == "serve.toml: "


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("quota", ["Tokenize Limit", "CVC Retention", "Rate Limit"])
def test_quo_tenant_a_quota_of_any_length(quota: str, sign: int) -> None:
    engine = Engine(seed=7)
    tenant = engine.create_tenant("Acme")
    with pytest.raises(InputError, match=f"^quota {quota} = -?0x[0-9a-f]+… must ") as caught:
        engine.set_quota(tenant, quota, sign * 10**5_000)
    assert len(str(caught.value)) < 200
    with pytest.raises(InputError, match=f"^quota {quota} = True must "):
        engine.set_quota(tenant, quota, True)


def test_a_value_in_a_message_is_not_long() -> None:
    assert shown_value(10**5_000).startswith("0x")
    assert len(shown_value(-(16**5_000))) < 70
    assert shown_value(2**64) == "18446744073709551616"
