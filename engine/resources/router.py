"""The router: method and path → operation (404, 405 with `Allow`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from urllib.parse import parse_qsl, unquote

from engine.messages import Problem
from engine.resources.operation import Operation

__all__ = ["METHODS", "Router", "parse_query"]

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""What `ANY` stands for in an `Allow` header; the operation itself takes every method."""

_NOTHING: Final[Mapping[str, str]] = {}


class _Node:
    """One place in the tree of path templates."""

    __slots__ = ("children", "operations", "parameter", "rest")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.operations: dict[str, Operation] = {}
        self.rest: dict[str, Operation] = {}


class Router:
    """Finds operations. A literal segment wins over a parameter, which wins over a rest."""

    __slots__ = ("_plain", "_root")

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Node()
        self._plain: dict[str, dict[str, Operation]] = {}
        for operation in operations:
            self._add(operation)

    def _add(self, operation: Operation) -> None:
        if "{" not in operation.path:
            self._plain.setdefault(operation.path, {})[operation.method] = operation
        node = self._root
        for segment in operation.path.strip("/").split("/"):
            if segment.endswith("...}"):
                node.rest[operation.method] = operation
                return
            if segment.startswith("{"):
                node.parameter = node.parameter or _Node()
                node = node.parameter
            else:
                node = node.children.setdefault(segment, _Node())
        assert operation.method not in node.operations, "one operation a method and path"
        node.operations[operation.method] = operation

    def find(self, method: str, path: str) -> tuple[Operation, Mapping[str, str]]:
        """Return the operation and the path's parameters.

        HEAD finds what GET finds. Raises `Problem` 404, or 405 with the methods that are allowed.
        """
        here = self._plain.get(path)
        if here is not None and (plain := here.get(method)) is not None:
            return plain, _NOTHING
        allowed, values = self._at(path)
        if not allowed:
            raise Problem(404, "There is nothing at this path.", clause="D-STATUSES")
        found = allowed.get("ANY") or allowed.get("GET" if method == "HEAD" else method)
        if found is None:
            raise Problem(
                405,
                f"{_shown(method)} is not allowed at this path.",
                clause="D-STATUSES",
                headers={"Allow": ", ".join(self.allowed(path))},
            )
        names = [s.strip("{}.") for s in found.path.strip("/").split("/") if s.startswith("{")]
        return found, dict(zip(names, values, strict=True))

    def allowed(self, path: str) -> list[str]:
        """Return the methods that the path answers to, none when there is nothing.

        `*` is the service as a whole (RFC 9110, 9.3.7).
        """
        if path == "*":
            return sorted({*METHODS, "HEAD", "OPTIONS"})
        methods = set(self._at(path)[0])
        if not methods:
            return []
        if "ANY" in methods:
            methods = set(METHODS)
        if "GET" in methods:
            methods.add("HEAD")
        return sorted(methods | {"OPTIONS"})

    def _at(self, path: str) -> tuple[dict[str, Operation], list[str]]:
        if not path.startswith("/"):
            return {}, []
        segments = path[1:].split("/")
        node, values = self._root, list[str]()
        rest: tuple[dict[str, Operation], list[str]] = ({}, [])
        for index, segment in enumerate(segments):
            if node.rest:
                rest = (node.rest, [*values, "/".join(segments[index:])])
            child = node.children.get(segment)
            if child is None and node.parameter is not None and segment:
                child = node.parameter
                values.append(unquote(_text(segment)))
            if child is None:
                return rest
            node = child
        if node.operations:
            return node.operations, values
        if node.rest:
            return node.rest, [*values, ""]
        return rest


def _text(part: str) -> str:
    """Return encodable text: a lone surrogate, which no HTTP request holds, becomes `?`."""
    return part if part.isascii() else part.encode("utf-8", "replace").decode()


def _shown(method: str) -> str:
    return method if method.isascii() and method.isalpha() and len(method) <= 16 else "This method"


def parse_query(query: str) -> Mapping[str, str]:
    """Return the query's parameters; raises `Problem` 400 when one is given twice."""
    if not query:
        return _NOTHING
    found: dict[str, str] = {}
    for name, value in parse_qsl(_text(query), keep_blank_values=True, errors="replace"):
        if name in found:
            raise Problem(
                400,
                "A query parameter is given twice.",
                errors={"": ["given twice"]},
                clause="D-STATUSES",
            )
        found[name] = value
    return found
