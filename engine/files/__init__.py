'''Read TOML files into typed values, or report one-line errors with their position.

One declaration serves reading, writing and the JSON Schema: a frozen dataclass.

>>> from dataclasses import dataclass
>>> from typing import Annotated, Literal
>>> from engine.files import Integer, from_document, json_schema, parse_toml
>>> @dataclass(frozen=True, kw_only=True)
... class Client:
...     """Who sends requests."""
...     name: str
...     count: Annotated[int, Integer(minimum=1), "how many of them"] = 1
...     loop: Literal["open", "closed"] = "open"
...     think_ns: int = 0
>>> good = parse_toml('name = "a"' + chr(10) + 'think = "1m30s"', "client.toml")
>>> from_document(Client, good)
Client(name='a', count=1, loop='open', think_ns=90000000000)
>>> bad = parse_toml('name = "a"' + chr(10) + 'count = -3', "client.toml")
>>> from_document(Client, bad)
Traceback (most recent call last):
    ...
engine.errors.InputError: client.toml:2:9: count = -3 must be at least 1
>>> json_schema(Client, title="Client")["properties"]["count"]["description"]
'how many of them'

`engine.files.forms` documents the annotations. Field metadata `minimum` and `asks` are supported
too. `to_plain` and `to_toml` write a form back. Check fields that depend on one another after
reading: `document.spot("clients", 0, "loop").fail("must …")`.

`read_toml(path)` reads a file, `Document(value)` wraps values of a program (no positions).
Strings may hold `${NAME}` where `Text(environment=True)` or `environment=True` says so;
`secret=True` keeps a value out of messages. Units: `parse_duration_ns`, `parse_rate`,
`parse_size_bytes`, and `format_…` back.
'''

from engine.files.document import Document, Spot, parse_toml, path_text, read_toml, shown_value
from engine.files.forms import (
    FilePath,
    Form,
    Include,
    Key,
    Tagged,
    Unwritten,
    check_built,
    from_document,
    json_schema,
    to_plain,
    to_toml,
)
from engine.files.kinds import (
    AnyJson,
    Boolean,
    Choice,
    Integer,
    Items,
    Kind,
    Number,
    TableOf,
    Text,
)
from engine.files.units import (
    Duration,
    Rate,
    RateText,
    Size,
    as_ns,
    format_duration,
    format_rate,
    format_size,
    parse_duration_ns,
    parse_rate,
    parse_size_bytes,
)

__all__ = [
    "AnyJson",
    "Boolean",
    "Choice",
    "Document",
    "Duration",
    "FilePath",
    "Form",
    "Include",
    "Integer",
    "Items",
    "Key",
    "Kind",
    "Number",
    "Rate",
    "RateText",
    "Size",
    "Spot",
    "TableOf",
    "Tagged",
    "Text",
    "Unwritten",
    "as_ns",
    "check_built",
    "format_duration",
    "format_rate",
    "format_size",
    "from_document",
    "json_schema",
    "parse_duration_ns",
    "parse_rate",
    "parse_size_bytes",
    "parse_toml",
    "path_text",
    "read_toml",
    "shown_value",
    "to_plain",
    "to_toml",
]
