"""Forms: a frozen dataclass declares the fields of a TOML table.

Reading, writing and the JSON Schema all use this declaration: annotations define the allowed
values, docstrings and `asks` texts describe them. `Annotated[int, Integer(minimum=1), "how many"]`
gives a field's kind and its description. Without `Annotated`, the type determines the kind:

| annotation | kind |
|---|---|
| `str`, `int`, `float`, `bool` | Text, Integer, Number, Boolean |
| `int`, name ending in `_ns` or `_bytes` | Duration, Size (the file's key lacks the unit) |
| `Rate`, `Include` | RateText, FilePath |
| `Literal[…]` | Choice |
| `tuple[X, …]`, `Mapping[str, X]` | Items, TableOf |
| a dataclass | Form: a table |
| a union of dataclasses with `kind: Literal[…]` | Tagged: a table that says its `kind` |
| `X or None` | X, or left out |

A field without default must be in the file. Field metadata may hold `minimum` (whole numbers,
durations), `maximum` (whole numbers) and `asks` (the description); `key` names the key in the file
where that is not a valid Python name.

`Include` is a file that another file refers to, with the position of the reference. `to_toml`
writes plain tables as TOML text, for resolved files: what is written reads back as equal. Arrays of
tables get `[[headers]]`, tables at the top level `[headers]`; deeper tables are inline. The writer
is ours because tomllib only reads.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, Union, get_args, get_origin

from engine.errors import check_text, wrong_type
from engine.files.document import Document, Spot
from engine.files.kinds import (
    Boolean,
    ChoiceType,
    Duration,
    Integer,
    Items,
    Kind,
    Number,
    Rate,
    RateText,
    Schema,
    Size,
    TableOf,
    TextType,
    as_ns,
    as_rate,
)

Table = TypeVar("Table")


@dataclass(frozen=True)
class Alias:
    """In `Annotated`: the key in the file, where it is not a valid Python name."""

    name: str


class Unwritten:
    """In `Annotated`: a field that files never contain; it must have a default."""


@dataclass(frozen=True)
class _Field:
    name: str
    key: str
    kind: Kind[Any]
    required: bool
    default: Any
    description: str


class TableSchema(Kind[Table], Generic[Table]):
    """A table that is read as the dataclass `cls`; keys that it does not declare are refused."""

    def __init__(self, cls: type[Table]) -> None:
        self.cls = cls

    @property
    def fields(self) -> tuple[_Field, ...]:
        """The declared fields, in order."""
        return _fields(self.cls)

    def read(self, spot: Spot) -> Table:
        if not isinstance(spot.value, Mapping):
            spot.fail("must be a table")
        spot.check_keys(tuple(field.key for field in self.fields))
        values = {}
        for field in self.fields:
            if field.key in spot.value:
                values[field.name] = field.kind.read(spot.child(field.key))
            elif field.required:
                spot.fail_missing(field.key)
        return self.cls(**values)

    def write(self, value: Table) -> dict[str, Any]:
        table = {}
        for field in self.fields:
            item = getattr(value, field.name)
            empty = isinstance(item, Mapping | tuple) and not item
            if item is not None and not (empty and item == field.default):
                table[field.key] = field.kind.write(item)
        return table

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        name = self.cls.__name__
        if name not in definitions:
            definitions[name] = {}  # a placeholder for forms that contain themselves
            definitions[name] = self._described(definitions)
        return {"$ref": f"#/$defs/{name}"}

    def _described(self, definitions: dict[str, Schema]) -> Schema:
        properties = {}
        for field in self.fields:
            item = dict(field.kind.schema(definitions))
            if field.description:
                item["description"] = field.description
            if not field.required and field.default is not None:
                item["default"] = field.kind.write(field.default)
            properties[field.key] = item
        schema: Schema = {
            "type": "object",
            "description": _first_paragraph(self.cls),
            "properties": properties,
            "additionalProperties": False,
        }
        required = [field.key for field in self.fields if field.required]
        return schema | ({"required": required} if required else {})


class Tagged(Kind[Any]):
    """A table whose `kind` says which of several dataclasses it is read as.

    One of them may set `short_form` to the name of a field: a plain string then means a table of
    that kind with this field.
    """

    def __init__(self, classes: tuple[type[Any], ...]) -> None:
        self.classes = {_tag(cls): cls for cls in classes}
        self.short: tuple[type[Any], _Field] | None = None
        for cls in classes:
            for field in _fields(cls):
                if field.name == getattr(cls, "short_form", None):
                    self.short = cls, field

    def read(self, spot: Spot) -> Any:  # noqa: ANN401 # reason: one of the classes
        if isinstance(spot.value, str) and self.short is not None:
            cls, field = self.short
            return cls(**{field.name: field.kind.read(spot)})
        if not isinstance(spot.value, Mapping):
            spot.fail("must be a table with a kind")
        if "kind" not in spot.value:
            spot.fail_missing("kind")
        tag = ChoiceType(tuple(self.classes)).read(spot.child("kind"))
        return TableSchema(self.classes[tag]).read(spot)

    def write(self, value: object) -> dict[str, Any]:
        return dict(TableSchema(type(value)).write(value))

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        branches = [] if self.short is None else [self.short[1].kind.schema(definitions)]
        for cls in self.classes.values():
            reference = TableSchema(cls).schema(definitions)
            definitions[cls.__name__]["required"] = [
                "kind",
                *(name for name in definitions[cls.__name__].get("required", []) if name != "kind"),
            ]
            branches.append(reference)
        return {"oneOf": branches}


def from_document(cls: type[Table], document: Document) -> Table:
    """Read a whole document as the dataclass `cls`; `InputError` at the first fault."""
    return TableSchema(cls).read(document.spot())


def to_plain(value: object) -> dict[str, Any]:
    """Return a form's tables, arrays and scalars; `from_document` reads them back as equal."""
    return dict(TableSchema(type(value)).write(value))


def check_built(value: object, *place: str) -> None:
    """Check a form built in Python by the rules for forms read from a file.

    place: where it stands, for messages. Texts for quantities become numbers, and lists become
    tuples. Raises `InputError` for a field whose value is of another kind.
    """
    for field in _fields(type(value)):
        item = getattr(value, field.name)
        if item is None and field.default is None:
            continue
        thing, kind = ".".join((*place, field.name)), field.kind
        if isinstance(item, str):
            check_text(thing, item)
        if isinstance(kind, Duration):
            item, kind = as_ns(thing, item), Integer(minimum=kind.minimum_ns)
        elif isinstance(kind, Size):
            kind = Integer(minimum=kind.minimum_bytes)
        if isinstance(kind, RateText):
            item = as_rate(thing, item)
        elif isinstance(kind, TableSchema):
            if not isinstance(item, kind.cls):
                raise wrong_type(thing, item, f"a {kind.cls.__name__}")
        else:
            item = kind.read(_spot_of(item, *place, field.name))
        object.__setattr__(value, field.name, item)


def _spot_of(item: object, *path: str) -> Spot:
    """Return a value as it stands in a document that holds nothing else."""
    tables: Any = item
    for step in reversed(path):
        tables = {step: tables}
    return Document(tables).spot(*path)


def json_schema(cls: type[Any], *, title: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a form."""
    definitions: dict[str, Schema] = {}
    root = TableSchema(cls).schema(definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **definitions.pop(root["$ref"].rpartition("/")[2]),
        "$defs": dict(sorted(definitions.items())),
    }


_declared: dict[type[Any], tuple[_Field, ...]] = {}


def _fields(cls: type[Any]) -> tuple[_Field, ...]:
    if cls not in _declared:
        _declared[cls] = _read_declaration(cls)
    return _declared[cls]


def _read_declaration(cls: type[Any]) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = []
    for item in dataclasses.fields(cls):
        _, extras = _split(hints[item.name])
        if Unwritten in extras:
            continue
        kind = _kind_of(hints[item.name], item.name, item.metadata)
        default = item.default_factory() if item.default_factory is not MISSING else item.default
        key = next((extra.name for extra in extras if isinstance(extra, Alias)), None)
        texts = [extra for extra in extras if isinstance(extra, str)]
        fields.append(
            _Field(
                name=item.name,
                key=key or item.name.removesuffix(kind.suffix),
                kind=kind,
                required=default is MISSING,
                default=default,
                description=item.metadata.get("asks", " ".join(texts)),
            )
        )
    return tuple(fields)


def _split(hint: Any) -> tuple[Any, tuple[Any, ...]]:  # noqa: ANN401 # reason: any annotation
    """Split an annotation into its type without `None` and the metadata of `Annotated`."""
    if get_origin(hint) is Annotated:
        inner, extras = _split(get_args(hint)[0])
        return inner, (*extras, *hint.__metadata__)
    if get_origin(hint) in {Union, types.UnionType}:
        rest = tuple(arg for arg in get_args(hint) if arg is not type(None))
        if len(rest) < len(get_args(hint)):
            return _split(rest[0]) if len(rest) == 1 else (Union[rest], ())  # noqa: UP007 # reason: made at run time
    return hint, ()


def _kind_of(hint: Any, name: str, bounds: Mapping[str, Any]) -> Kind[Any]:  # noqa: ANN401 # reason: any annotation
    """Return the kind that an annotation names, else the one that its type determines."""
    inner, extras = _split(hint)
    explicit = next((extra for extra in extras if isinstance(extra, Kind)), None)
    if explicit is not None:
        return explicit
    simple = _SIMPLE_KINDS.get(inner)
    if inner is int:
        return _integer(name, bounds.get("minimum"), bounds.get("maximum"))
    if simple is not None:
        return simple
    origin, args = get_origin(inner), get_args(inner)
    if origin is Literal:
        return ChoiceType(args)
    if origin is tuple:
        return Items(_kind_of(args[0], "", {}))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return TableOf(_kind_of(args[1], "", {}))
    if origin in {Union, types.UnionType}:
        return Tagged(args)
    assert isinstance(inner, type), f"{name}: no kind for {inner!r}"
    assert dataclasses.is_dataclass(inner), f"{name}: no kind for {inner!r}"
    return TableSchema(inner)


def _integer(name: str, minimum: int | None, maximum: int | None) -> Kind[Any]:
    if name.endswith("_ns"):
        return Duration(minimum_ns=minimum or 0)
    if name.endswith("_bytes"):
        return Size(minimum_bytes=minimum or 0)
    return Integer(minimum=minimum, maximum=maximum)


def _tag(cls: type[Any]) -> str:
    field = next(item for item in _fields(cls) if item.name == "kind")
    assert isinstance(field.kind, ChoiceType)
    return str(field.kind.choices[0])


def _first_paragraph(cls: type[Any]) -> str:
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())


@dataclass(frozen=True)
class Include:
    """Another file that a file names.

    path: as written. file: where that is, relative to the folder of the file that names it.
    where: `file:line:col: `, to begin messages about it with. Only the path is compared.
    """

    path: str
    folder: Path | None = None
    where: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Include) and other.path == self.path

    def __hash__(self) -> int:
        return hash(self.path)

    @property
    def file(self) -> Path:
        """The file's place."""
        return Path(self.path) if self.folder is None else self.folder / self.path


@dataclass(frozen=True)
class FilePath(Kind[Include]):
    """The path of another file, relative to the one that names it; it must be there."""

    def read(self, spot: Spot) -> Include:
        path = TextType().read(spot)
        document = spot.document
        include = Include(path, document.folder, document.where(spot.path))
        if not include.file.is_file():
            spot.fail(f"must be a file; there is none at {include.file}")
        return include

    def write(self, value: Include) -> str:
        return value.path

    def schema(self, _definitions: dict[str, Schema]) -> Schema:
        return {"type": "string", "minLength": 1}


_SIMPLE_KINDS: dict[Any, Kind[Any]] = {
    str: TextType(),
    float: Number(),
    bool: Boolean(),
    Rate: RateText(),
    Include: FilePath(),
}


_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_LINE_CHARACTERS: Final = 88


def to_toml(value: Mapping[str, Any]) -> str:
    """Return TOML text for a table of tables, arrays, strings, numbers and booleans."""
    lines: list[str] = []
    later: list[str] = []
    for key, item in value.items():
        if isinstance(item, Mapping):
            later += ["", f"[{_key(key)}]", *_pairs(item)]
        elif _is_tables(item):
            for table in item:
                later += ["", f"[[{_key(key)}]]", *_pairs(table)]
        else:
            lines += _pair(key, item)
    return "\n".join([*lines, *later]).lstrip("\n") + "\n"


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return [line for key, item in table.items() for line in _pair(key, item)]


def _pair(key: str, item: Any) -> list[str]:  # noqa: ANN401 # reason: any TOML value
    line = f"{_key(key)} = {_inline(item)}"
    if len(line) <= _LINE_CHARACTERS or not isinstance(item, list | tuple) or not item:
        return [line]
    return [f"{_key(key)} = [", *(f"    {_inline(element)}," for element in item), "]"]


def _is_tables(item: object) -> bool:
    return (
        isinstance(item, list | tuple)
        and bool(item)
        and all(isinstance(element, Mapping) for element in item)
    )


def _inline(item: Any) -> str:  # noqa: ANN401 # reason: any TOML value
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int):
        return str(item)
    if isinstance(item, float):
        assert math.isfinite(item)
        return repr(item)
    if isinstance(item, str):
        return _string(item)
    if isinstance(item, Mapping):
        if not item:
            return "{}"
        return "{ " + ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in item.items()) + " }"
    assert isinstance(item, list | tuple), f"no TOML for {type(item).__name__}"
    return "[" + ", ".join(_inline(element) for element in item) + "]"


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else _string(key)


def _string(text: str) -> str:
    """Return a TOML basic string: JSON's escapes, and one for the delete character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
