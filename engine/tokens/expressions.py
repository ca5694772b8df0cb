"""Expressions: the small language that says which part of `data` is meant (D-EXPR).

    expression = "{{ " path " }}"
    path       = "data" *( "." key )
    key        = 1*( letter | digit | "_" | "-" )

The form is exact, with one space on each side; anything else is 400. `{{ data }}` is the whole
value, and a key selects a member of an object. The whole of a card excludes the cvc (D-CVC-DERIVE).

Expressions of POST /detokenize, which name tokens, are in `detokenize`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

from engine.messages import Json
from engine.tokens.strict_json import dumps

Path: TypeAlias = tuple[str, ...]
"""The keys below `data`; empty for the whole."""

DATA: Final = "{{ data }}"
NUMBER: Final = "{{ data.number }}"

GRAMMAR_FAULT: Final = (
    "must be an expression of the form {{ data }} or {{ data.key }}, with one space on each side"
)

MISSING: Final = object()
"""What `select` returns where the path leads nowhere."""

_REMEMBERED_CHARACTERS: Final = 300
"""A longer text is not cached, because callers can send texts of any size."""

_WHOLE_PATH: Final = b"data\0"
_EXPRESSION: Final = re.compile(r"\{\{ data((?:\.[\w-]+)*) \}\}")


def parse(text: str) -> Path | None:
    """Return the path of an expression, None when it is none.

    >>> parse("{{ data.number }}"), parse("{{ data }}"), parse("{{data}}")
    (('number',), (), None)
    """
    return _remembered(text) if len(text) <= _REMEMBERED_CHARACTERS else _read(text)


def _read(text: str) -> Path | None:
    match = _EXPRESSION.fullmatch(text)
    if match is None:
        return None
    return tuple(match[1].split(".")[1:])


_remembered = lru_cache(maxsize=4096)(_read)


def select(data: Any, path: Path) -> Any:  # noqa: ANN401 # reason: any JSON, or MISSING
    """Return what the path leads to in `data`, or `MISSING`."""
    for key in path:
        if type(data) is not dict or key not in data:
            return MISSING
        data = data[key]
    return data


def is_empty(value: Any) -> bool:  # noqa: ANN401 # reason: any JSON, or MISSING
    """Whether there is nothing to index (D-INDEXES): missing, null, or of no length."""
    return value is MISSING or value is None or (isinstance(value, (str, list, dict)) and not value)


def canonical(value: Json) -> bytes:
    """Return the one JSON text of a value: keys sorted, no spaces, whole numbers without a point.

    Two texts are equal exactly when the JSON values are; this is what fingerprints compare.
    """
    if type(value) is str:
        return orjson.dumps(value)
    return dumps(_ordered(value))


def index_message(path: Path, value: Json) -> bytes:
    """Return what is hashed for a search index: the path and the value as in a query.

    A string stands as it is, every other value as its canonical JSON, so that the query
    `data.expiration_month:12` finds the number 12.
    """
    text = value.encode() if isinstance(value, str) else canonical(value)
    return (".".join(("data", *path)).encode() + b"\0" if path else _WHOLE_PATH) + text


def _ordered(value: Json) -> Json:
    """Return a copy, made level by level: a profile may accept any nesting of `data`."""
    root: list[Any] = [value]
    level: list[Any] = [root]
    while level:
        below: list[Any] = []
        for holder in level:
            for place in range(len(holder)) if type(holder) is list else holder:
                here = holder[place]
                if isinstance(here, dict):
                    here = {key: here[key] for key in sorted(here)}
                    below.append(here)
                elif isinstance(here, list):
                    here = [*here]
                    below.append(here)
                elif isinstance(here, float) and here.is_integer():
                    here = int(here)
                holder[place] = here
        level = below
    ordered: Json = root[0]
    return ordered
