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

The forms are ours, not msgspec's, though msgspec is imported anyway: it stops at the first fault,
names no line, column or nearest word, and knows no units, so that a switch would replace some 150
of 1,432 lines (ranges, types, schemas) and need as many to translate its errors. Importing the
forms takes 27 ms after the 35 of msgspec.

`engine.files.forms` documents the annotations. Field metadata `minimum` and `asks` are supported
too. `to_plain` and `to_toml` write a form back. Check fields that depend on one another after
reading: `document.spot("clients", 0, "loop").fail("must …")`.

`read_toml(path)` reads a file, `Document(value)` wraps values of a program (no positions).
Strings may hold `${NAME}` where `TextType(environment=True)` or `environment=True` says so;
`secret=True` keeps a value out of messages. Units: `parse_duration_ns`, `parse_rate`,
`parse_size_bytes`, and `format_…` back; `span_text` for sentences.
'''

from typing import TYPE_CHECKING

from engine.on_demand import on_demand

if TYPE_CHECKING:
    from engine.files.document import Document as Document
    from engine.files.document import Spot as Spot
    from engine.files.document import parse_toml as parse_toml
    from engine.files.document import path_text as path_text
    from engine.files.document import read_toml as read_toml
    from engine.files.document import shown_value as shown_value
    from engine.files.forms import Alias as Alias
    from engine.files.forms import FilePath as FilePath
    from engine.files.forms import Include as Include
    from engine.files.forms import TableSchema as TableSchema
    from engine.files.forms import Tagged as Tagged
    from engine.files.forms import Unwritten as Unwritten
    from engine.files.forms import check_built as check_built
    from engine.files.forms import from_document as from_document
    from engine.files.forms import json_schema as json_schema
    from engine.files.forms import to_plain as to_plain
    from engine.files.forms import to_toml as to_toml
    from engine.files.kinds import AnyJson as AnyJson
    from engine.files.kinds import Boolean as Boolean
    from engine.files.kinds import ChoiceType as ChoiceType
    from engine.files.kinds import Duration as Duration
    from engine.files.kinds import Integer as Integer
    from engine.files.kinds import Items as Items
    from engine.files.kinds import Kind as Kind
    from engine.files.kinds import Number as Number
    from engine.files.kinds import Rate as Rate
    from engine.files.kinds import RateText as RateText
    from engine.files.kinds import Size as Size
    from engine.files.kinds import TableOf as TableOf
    from engine.files.kinds import TextType as TextType
    from engine.files.kinds import as_ns as as_ns
    from engine.files.kinds import format_duration as format_duration
    from engine.files.kinds import format_rate as format_rate
    from engine.files.kinds import format_size as format_size
    from engine.files.kinds import parse_duration_ns as parse_duration_ns
    from engine.files.kinds import parse_rate as parse_rate
    from engine.files.kinds import parse_size_bytes as parse_size_bytes
    from engine.files.kinds import span_text as span_text

__getattr__, __dir__, __all__ = on_demand(__name__)
