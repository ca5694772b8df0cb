"""A parsed TOML document: its values, their positions, and how errors name them.

tomllib decides what a text means. Positions are looked up only when an error is written, so a
good file costs nothing extra. A document may also be made of plain Python values, which have no
positions: the same readers then check what came from a program.

tomllib keeps no positions, so `locate` finds them with tree-sitter, in text that tomllib accepts.
Where the grammar of tree-sitter does not know a construct, the position of its parent is used.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from engine.errors import InputError, did_you_mean, reason_of

if TYPE_CHECKING:
    from tree_sitter import Node


Path: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from the root to a value: `("clients", 0, "think", "mean")`."""

Position: TypeAlias = tuple[int, int]
"""Line and column, both from 1; the column counts characters."""

_KEYS: Final = frozenset({"bare_key", "quoted_key", "dotted_key"})


def locate(text: str) -> tuple[dict[Path, Position], dict[Path, Position]]:
    """Return the positions of all values and of all keys.

    A table's value position is its header, or the first place that mentions it.
    """
    from tree_sitter import Language, Parser  # noqa: PLC0415 # reason: only errors need positions
    from tree_sitter_toml import language  # noqa: PLC0415 # reason: only errors need positions

    walker = _Walker(text)
    walker.document(Parser(Language(language())).parse(text.encode()).root_node)
    return walker.values, walker.keys


class _Walker:
    """One pass over the syntax tree."""

    def __init__(self, text: str) -> None:
        self.values: dict[Path, Position] = {(): (1, 1)}
        self.keys: dict[Path, Position] = {}
        self._lines = text.encode().split(b"\n")
        self._tables_seen: dict[Path, int] = {}

    def document(self, root: Node) -> None:
        for node in root.named_children:
            if node.type == "pair":
                self._pair(node, ())
            elif node.type in {"table", "table_array_element"}:
                self._table(node)

    def _table(self, node: Node) -> None:
        header = next((child for child in node.named_children if child.type in _KEYS), None)
        if header is None:
            return
        base, part = self._enter((), header)
        self.keys.setdefault(base, self._at(part))
        self.values.setdefault(base, self._at(node))
        if node.type == "table_array_element":
            seen = self._tables_seen.get(base, 0)
            self._tables_seen[base] = seen + 1
            base = (*base, seen)
            self.keys[base] = self.values[base] = self._at(node)
        for child in node.named_children:
            if child.type == "pair":
                self._pair(child, base)

    def _enter(self, base: Path, key: Node) -> tuple[Path, Node]:
        """Enter the tables that a header or a dotted key goes through; return its last part."""
        *through, (last, node) = _key_parts(key)
        for word, part in through:
            base = (*base, word)
            self.keys.setdefault(base, self._at(part))
            self.values.setdefault(base, self._at(part))
            if base in self._tables_seen:
                base = (*base, self._tables_seen[base] - 1)
        return (*base, last), node

    def _pair(self, node: Node, base: Path) -> None:
        children = [child for child in node.named_children if child.type != "comment"]
        if len(children) != 2:
            return
        key, value = children
        path, part = self._enter(base, key)
        self.keys[path] = self._at(part)
        self._value(value, path)

    def _value(self, node: Node, path: Path) -> None:
        self.values[path] = self._at(node)
        if node.type == "inline_table":
            for child in node.named_children:
                if child.type == "pair":
                    self._pair(child, path)
        elif node.type == "array":
            elements = [child for child in node.named_children if child.type != "comment"]
            for index, child in enumerate(elements):
                self._value(child, (*path, index))

    def _at(self, node: Node) -> Position:
        row, column_bytes = node.start_point
        before = self._lines[row][:column_bytes]
        return row + 1, len(before.decode(errors="replace")) + 1


def _key_parts(node: Node) -> list[tuple[str, Node]]:
    """Return the words of a bare, quoted or dotted key, each with its node."""
    if node.type == "dotted_key":
        return [
            part
            for child in node.named_children
            if child.type in _KEYS
            for part in _key_parts(child)
        ]
    text = (node.text or b"").decode()
    if node.type == "quoted_key":
        return [(next(iter(tomllib.loads(f"{text} = 0"))), node)]
    return [(text, node)]


_SYNTAX: Final = re.compile(
    r"(?P<what>.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL
)
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_LONGEST_SHOWN: Final = 60


@dataclass(eq=False, repr=False)
class Document:
    """A parsed TOML text, or plain values that are checked like one.

    name: what messages call it, usually the path as the user wrote it; "" shows no name.
    value: the plain tables, arrays and scalars.
    folder: where its relative paths start; None = the working directory.
    """

    value: Mapping[str, Any]
    _: KW_ONLY
    name: str = ""
    text: str | None = None
    folder: FilePath | None = None

    def __repr__(self) -> str:
        return f"Document({self.name!r})"

    @cached_property
    def _located(self) -> tuple[dict[Path, Position], dict[Path, Position]]:
        try:
            return ({}, {}) if self.text is None else locate(self.text)
        except RecursionError:  # keys of a thousand parts; show only the file's name
            return {}, {}

    def position(self, path: Path) -> Position | None:
        """Return line and column (from 1) of the value at `path`, or of the nearest table above.

        None where there is no text, as in a document made of plain values.
        """
        return _nearest(self._located[0], path)

    def key_position(self, path: Path) -> Position | None:
        """Return line and column (from 1) of the last key of `path`; see `position`."""
        return self._located[1].get(path) or self.position(path)

    def where(self, path: Path, *, key: bool = False) -> str:
        """Return `file:line:col: ` for messages, as much of it as is known."""
        at = self.key_position(path) if key else self.position(path)
        if at is None:
            return f"{self.name}: " if self.name else ""
        return f"{self.name}:{at[0]}:{at[1]}: "

    def spot(self, *path: str | int) -> Spot:
        """Return one value with its place; it must exist."""
        value: Any = self.value
        for step in path:
            value = value[step]
        return Spot(self, path, value)


@dataclass(eq=False, repr=False, slots=True)
class Spot:
    """One value of a document, with the place that an error about it names."""

    document: Document
    path: Path
    value: Any

    def child(self, step: str | int) -> Spot:
        """Return a member of this table or array; it must exist."""
        return Spot(self.document, (*self.path, step), self.value[step])

    def fail(self, rule: str, *, secret: bool = False) -> NoReturn:
        """Raise `InputError`: `file:line:col: thing = value <rule>`; a secret is not quoted."""
        thing = path_text(self.path)
        if not secret:
            thing = f"{thing} = {shown_value(self.value)}"
        raise InputError(f"{self.document.where(self.path)}{thing} {rule}")

    def fail_key(self, rule: str) -> NoReturn:
        """Raise `InputError` about the key itself: `file:line:col: thing <rule>`."""
        where = self.document.where(self.path, key=True)
        raise InputError(f"{where}{path_text(self.path)} {rule}")

    def fail_missing(self, name: str) -> NoReturn:
        """Raise `InputError` about a required key that this table lacks."""
        where = self.document.where(self.path)
        raise InputError(f"{where}{path_text((*self.path, name))} is missing")

    def check_keys(self, known: Sequence[str]) -> None:
        """Raise `InputError` for the first unknown key of this table."""
        for key in self.value:
            if key not in known:
                self.child(key).fail_key(f"is an unknown key{did_you_mean(str(key), known)}")


def read_toml(path: str | FilePath) -> Document:
    """Read a TOML file.

    Raises `InputError`, one line, when the file is missing, unreadable, not UTF-8 or not TOML.
    """
    file = FilePath(path)
    try:
        raw = file.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {reason_of(error)}") from None
    except ValueError:  # a NUL, or a surrogate that stands for no byte
        raise InputError(f"{str(path)!a}: no file can have that name") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise InputError(f"{path}:{line}:{column}: the file must be UTF-8 text") from None
    return parse_toml(text, str(path), folder=file.parent)


def parse_toml(text: str, name: str, *, folder: FilePath | None = None) -> Document:
    """Read a TOML text; `name` is what messages call it; `InputError` when it is not TOML."""
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(_syntax_message(str(error), text, name)) from None
    except RecursionError:
        raise InputError(f"{name}: the text must be TOML; it is nested too deeply") from None
    except ValueError:  # Python parses no number of thousands of digits
        raise InputError(f"{name}: the text must be TOML; a number must fit 64 bits") from None
    document = Document(value, name=name, text=text, folder=folder)
    _check_integers(document)
    return document


def _check_integers(document: Document) -> None:
    """Refuse an integer beyond 64 bits, as TOML requires: stores cannot keep every larger one."""
    ahead: list[tuple[Path, Any]] = [((), document.value)]
    while ahead:
        path, value = ahead.pop()
        if isinstance(value, dict):
            ahead.extend(((*path, key), inner) for key, inner in value.items())
        elif isinstance(value, list):
            ahead.extend(((*path, place), inner) for place, inner in enumerate(value))
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            document.spot(*path).fail("must fit 64 bits")


def path_text(path: Path) -> str:
    """Return a path as people write it.

    >>> path_text(("clients", 0, "quotas", "Tokenize Limit"))
    'clients[0].quotas."Tokenize Limit"'
    """
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            word = step if _BARE_KEY.fullmatch(step) else json.dumps(step, ensure_ascii=False)
            text += f".{word}" if text else word
    return text


def shown_value(value: object) -> str:
    """Return a value for a message: as TOML, on one line, shortened."""
    if isinstance(value, str):
        if len(value) > _LONGEST_SHOWN:
            value = value[:_LONGEST_SHOWN] + "…"
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{…}" if value else "{}"
    if isinstance(value, list | tuple):
        return "[…]" if value else "[]"
    if isinstance(value, int) and value.bit_length() > _LONGEST_SHOWN * 3:
        return f"{value:#x}"[:_LONGEST_SHOWN] + "…"
    return str(value)


def _syntax_message(message: str, text: str, name: str) -> str:
    match = _SYNTAX.fullmatch(message)
    if match is None:
        return f"{name}: the text must be TOML; {message}"
    line, column = match[2], match[3]
    if line is None:
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    what = " ".join(match["what"].split())
    return f"{name}:{line}:{column}: the text must be TOML; {what[:1].lower()}{what[1:]}"


def _nearest(positions: Mapping[Path, Position], path: Path) -> Position | None:
    while path and path not in positions:
        path = path[:-1]
    return positions.get(path)
