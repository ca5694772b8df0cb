"""Where each key and value of a TOML text stands.

tomllib keeps no positions, tree-sitter does; so tomllib parses the values and this module finds
only their positions. It never gets a text that tomllib refuses. A construct that the grammar does
not know is left out, and its parent's position is used.
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from tree_sitter import Node

__all__ = ["Path", "Position", "locate"]

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
        parts = _key_parts(header)
        base: Path = ()
        for word, part in parts[:-1]:
            base = self._step((*base, word), part)
        word, part = parts[-1]
        base = (*base, word)
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

    def _step(self, path: Path, node: Node) -> Path:
        """Enter a table that a header or a dotted key goes through."""
        self.keys.setdefault(path, self._at(node))
        self.values.setdefault(path, self._at(node))
        seen = self._tables_seen.get(path)
        return path if seen is None else (*path, seen - 1)

    def _pair(self, node: Node, base: Path) -> None:
        children = [child for child in node.named_children if child.type != "comment"]
        if len(children) != 2:
            return
        key, value = children
        parts = _key_parts(key)
        for word, part in parts[:-1]:
            base = self._step((*base, word), part)
        word, part = parts[-1]
        self.keys[(*base, word)] = self._at(part)
        self._value(value, (*base, word))

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
