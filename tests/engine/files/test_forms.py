"""Forms: one dataclass gives the reader, the writer and the JSON Schema of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import pytest
from jsonschema import Draft202012Validator

from engine.errors import InputError
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
    parse_toml,
    to_plain,
    to_toml,
)


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
