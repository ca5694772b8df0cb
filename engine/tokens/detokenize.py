"""Detokenize: the token expressions in any JSON, and the answer with their values (D-DETOKENIZE).

    expression = "{{" id "}}"  |  "{{" "token:" id "}}"      spaces around each part as one likes

A string that is one expression and nothing else becomes the token's data with its JSON type; an
expression inside a longer string becomes text there: a string as it is, other values as JSON. What
stands between double braces and is no expression is 400, as an unknown id is: a template with a
typing error must not come back looking finished. Keys of objects are left alone.

What it is not: the permission to read, and the values; both are handed in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from engine.messages import Json, Problem
from engine.tokens.rules import Faults, Rules
from engine.tokens.shapes import Frame, pointer_to
from engine.tokens.strict_json import dumps

__all__ = ["DetokenizePlan", "read_expressions"]

_EXPRESSION: Final = re.compile(r"\{\{([^{}]*)\}\}")
_INSIDE: Final = re.compile(r"\s*(?:token\s*:\s*)?([^\s:{}]+)\s*")
_UNKNOWN_FAULT: Final = "must name tokens that exist"
_SYNTAX_FAULT: Final = "must hold expressions of the form {{ id }} or {{ token: id }}"


class _Hole:
    """One string with expressions, and where its result belongs."""

    __slots__ = ("frame", "ids", "key", "mirror", "text")

    def __init__(self, frame: Frame, key: Any, mirror: Any, text: str, ids: list[str]) -> None:  # noqa: ANN401 # reason: key or index, dict or list
        self.frame = frame
        self.key = key
        self.mirror = mirror
        self.text = text
        self.ids = ids

    @property
    def pointer(self) -> str:
        """The JSON Pointer of the string."""
        return pointer_to(self.frame, self.key)


class DetokenizePlan:
    """The expressions of a body, in document order, and the body's mirror."""

    __slots__ = ("_holes", "_root")

    def __init__(self, root: list[Any], holes: list[_Hole]) -> None:
        self._root = root
        self._holes = holes

    @property
    def token_ids(self) -> list[str]:
        """Every token id that an expression names, repeats included, in document order."""
        return [token_id for hole in self._holes for token_id in hole.ids]

    def count(self, rules: Rules) -> int:
        """Return what Detokenize Limit counts (D-DETOKENIZE-COUNT)."""
        named = self.token_ids
        return len(named) if rules.tokens.detokenize_counts == "expressions" else len(set(named))

    def check_cost(self, limit: int, rules: Rules) -> None:
        """Raise the 400 of more expressions than are looked up for one body (D-BODY-COST)."""
        most = max(rules.tokens.elements_limit, limit)
        if len(self.token_ids) > most:
            raise Problem(
                400, f"The body must hold at most {most} expressions.", clause="QUO-DETOKENIZE"
            )

    def check_limit(self, limit: int, rules: Rules) -> None:
        """Raise the problem of a request over its Detokenize Limit (QUO-DETOKENIZE)."""
        count = self.count(rules)
        if count > limit:
            raise Problem(
                rules.tokens.limit_status,
                f"The request names {count} tokens, more than the Detokenize Limit of {limit}.",
                clause="QUO-DETOKENIZE",
            )

    def unknown(self, token_ids: Iterable[str]) -> Problem:
        """Return the 400 that names each place of ids that are no token."""
        missing = set(token_ids)
        faults = Faults()
        for hole in self._holes:
            if not missing.isdisjoint(hole.ids):
                faults.add(faults.where(hole), _UNKNOWN_FAULT)
        return faults.problem()

    def rebuild(self, value_of: Callable[[str], Json]) -> Json:
        """Return the answer: the body with each expression replaced. A plan is rebuilt once."""
        for hole in self._holes:
            found = _EXPRESSION.fullmatch(hole.text)
            if len(hole.ids) == 1 and found is not None:
                hole.mirror[hole.key] = value_of(hole.ids[0])
            else:
                hole.mirror[hole.key] = _replaced(hole, value_of)
        answer: Json = self._root[0]
        return answer


def read_expressions(body: Json, rules: Rules) -> DetokenizePlan:
    """Return the expressions of a body.

    Raises `Problem` 400 naming every string whose braces hold no expression, and every place that
    is nested deeper than the profile's depth limit (D-DEPTH).
    """
    faults = Faults()
    root: list[Any] = [None]
    holes: list[_Hole] = []
    stack: list[tuple[Iterator[tuple[Any, Any]], Any, Frame]] = []
    items: Iterator[tuple[Any, Any]] = iter(((0, body),))
    mirror: Any = root
    frame: Frame = None
    while True:
        for key, value in items:
            kind = type(value)
            if kind is not dict and kind is not list:
                mirror[key] = value
                if kind is str and "{{" in value:
                    _read_string(_Hole(frame, key, mirror, value, []), holes, faults)
            elif len(stack) >= rules.tokens.depth_limit:
                faults.add(
                    "" if faults.is_full else pointer_to(frame, key),
                    f"must not be nested deeper than {rules.tokens.depth_limit} levels",
                )
            else:
                stack.append((items, mirror, frame))
                inner: Any = {} if kind is dict else [None] * len(value)
                mirror[key] = inner
                items = iter(value.items() if kind is dict else enumerate(value))
                mirror, frame = inner, (frame, key)
                break
        else:
            if not stack:
                break
            items, mirror, frame = stack.pop()
    if faults:
        raise faults.problem()
    return DetokenizePlan(root, holes)


def _read_string(hole: _Hole, holes: list[_Hole], faults: Faults) -> None:
    for braces in _EXPRESSION.finditer(hole.text):
        inside = _INSIDE.fullmatch(braces[1])
        if inside is None:
            faults.add(faults.where(hole), _SYNTAX_FAULT)
            return
        hole.ids.append(inside[1].lower())
    if hole.ids:
        holes.append(hole)


def _replaced(hole: _Hole, value_of: Callable[[str], Json]) -> str:
    values = iter(hole.ids)

    def text_of(_: re.Match[str]) -> str:
        value = value_of(next(values))
        return value if isinstance(value, str) else dumps(value).decode()

    return _EXPRESSION.sub(text_of, hole.text)
