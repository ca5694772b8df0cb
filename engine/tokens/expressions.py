"""Expressions: which part of `data` is meant (D-EXPR), and which token (D-DETOKENIZE).

    expression = "{{ " path " }}"
    path       = "data" *( "." key )
    key        = 1*( letter | digit | "_" | "-" )

The form is exact, with one space on each side; anything else is 400. `{{ data }}` is the whole
value, and a key selects a member of an object. The whole of a card excludes the cvc (D-CVC-DERIVE).

The expressions of POST /detokenize name tokens, anywhere in any JSON:

    expression = "{{" id "}}"  |  "{{" "token:" id "}}"      spaces around each part as one likes

A string that is one expression and nothing else becomes the token's data with its JSON type; an
expression inside a longer string becomes text there: a string as it is, other values as JSON. An
id is a UUID. Other text between double braces passes unchanged, as it may be another template,
except `{{ token: … }}`, which can only mean a token: 400, as for an unknown id. Keys of objects are
not changed.

A body that came as bytes changes only where an expression stands: every other byte, the digits of
numbers included, stays as sent (D-PASS-THROUGH). The caller checks permissions and gives the
values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

from engine.messages import Json, Problem
from engine.tokens.rules import Rules
from engine.tokens.shapes import PathNode, pointer_to
from engine.tokens.strict_json import BodyErrors, dumps

Path: TypeAlias = tuple[str, ...]
"""The keys below `data`; empty for the whole."""

DATA: Final = "{{ data }}"

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


_BRACED: Final = re.compile(r"\{\{([^{}]*)\}\}")
_INSIDE_BRACES: Final = re.compile(
    r"\s*(?:token\s*:\s*([^\s:{}]+)|([0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}))\s*"
)
# Match a string in short steps: one match of ten megabytes of escapes would block all threads.
_OF_STRING: Final = re.compile(rb'(?:[^"\\]{1,64}+|\\.){1,4000}+')
_QUOTE: Final = ord('"')
_COLON: Final = re.compile(rb"[ \t\r\n]*:")
_BRACES: Final = (b"{{", b"\\u007b", b"\\u007B")
_UNKNOWN_FAULT: Final = "must name tokens that exist"


@dataclass(eq=False, repr=False, slots=True)
class _Reference:
    """One string with expressions, and where its result belongs."""

    parent: PathNode
    key: Any
    slot: Any
    text: str
    ids: list[str]

    @property
    def pointer(self) -> str:
        """The JSON Pointer of the string."""
        return pointer_to(self.parent, self.key)


class DetokenizePlan:
    """The expressions of a body, in document order, and the body's mirror."""

    __slots__ = ("_references", "_root")

    def __init__(self, root: list[Any], references: list[_Reference]) -> None:
        self._root = root
        self._references = references

    @property
    def token_ids(self) -> list[str]:
        """Every token id that an expression names, repeats included, in document order."""
        return [token_id for reference in self._references for token_id in reference.ids]

    def count(self, rules: Rules) -> int:
        """Return what Detokenize Limit counts (D-DETOKENIZE-COUNT)."""
        named = self.token_ids
        return len(named) if rules.tokens.detokenize_counts == "expressions" else len(set(named))

    def check_cost(self, limit: int, rules: Rules) -> None:
        """Raise the 400 of more expressions than are looked up for one body (D-BODY-COST)."""
        most = max(rules.tokens.elements_limit, limit)
        if len(self.token_ids) > most:
            raise Problem(
                400, f"The body must hold at most {most} expressions.", clause="D-BODY-COST"
            )

    def check_limit(self, limit: int, rules: Rules) -> None:
        """Raise the problem of a request over its Detokenize Limit (QUO-DETOKENIZE)."""
        count = self.count(rules)
        if count > limit:  # obeys QUO-DETOKENIZE
            raise Problem(
                rules.tokens.limit_status,
                f"The request names {count} tokens, more than the Detokenize Limit of {limit}.",
                clause="QUO-DETOKENIZE",
            )

    def unknown(self, token_ids: Iterable[str]) -> Problem:
        """Return the 400 that names each place of ids that are no token."""
        missing = set(token_ids)
        faults = BodyErrors()
        for reference in self._references:
            if not missing.isdisjoint(reference.ids):
                faults.at(reference, "", _UNKNOWN_FAULT, "D-DETOKENIZE")
        return faults.problem()

    def rebuild(self, value_of: Callable[[str], Json]) -> Json:
        """Return the answer: the body with each expression replaced. A plan is rebuilt once."""
        for reference in self._references:
            reference.slot[reference.key] = _replaced(reference.text, value_of)
        answer: Json = self._root[0]
        return answer


def splice(raw: bytes, value_of: Callable[[str], Json]) -> bytes:
    """Return a JSON text with each expression replaced, and every other byte as it was."""
    pieces: list[bytes] = []
    copied = at = 0
    while (start := raw.find(b'"', at)) >= 0:
        at = _string_end(raw, start + 1)
        sent = raw[start:at]
        if not any(brace in sent for brace in _BRACES) or _COLON.match(raw, at):
            continue
        text: str = orjson.loads(sent)
        if any(_ids(text)):
            pieces += raw[copied:start], dumps(_replaced(text, value_of))
            copied = at
    return b"".join((*pieces, raw[copied:]))


def _string_end(raw: bytes, at: int) -> int:
    """Return the end of the string that contains position `at`."""
    while raw[at] != _QUOTE:
        some = _OF_STRING.match(raw, at)
        assert some is not None, "the text was parsed before"
        at = some.end()
    return at + 1


def read_expressions(body: Json, rules: Rules) -> DetokenizePlan:
    """Return the expressions of a body.

    Raises `Problem` 400 naming every place that is nested deeper than the profile's depth limit
    (D-DEPTH).
    """
    faults = BodyErrors()
    root: list[Any] = [None]
    references: list[_Reference] = []
    stack: list[tuple[Iterator[tuple[Any, Any]], Any, PathNode]] = []
    items: Iterator[tuple[Any, Any]] = iter(((0, body),))
    slot: Any = root
    parent: PathNode = None
    while True:
        for key, value in items:
            kind = type(value)
            if kind is not dict and kind is not list:
                slot[key] = value
                if kind is str and "{{" in value:
                    ids = [token_id for token_id in _ids(value) if token_id is not None]
                    if ids:
                        references.append(_Reference(parent, key, slot, value, ids))
            elif len(stack) >= rules.tokens.depth_limit:
                faults.add(
                    "" if faults.is_full else pointer_to(parent, key),
                    f"must not be nested deeper than {rules.tokens.depth_limit} levels",
                    "D-DEPTH",
                )
            else:
                stack.append((items, slot, parent))
                inner: Any = {} if kind is dict else [None] * len(value)
                slot[key] = inner
                items = iter(value.items() if kind is dict else enumerate(value))
                slot, parent = inner, (parent, key)
                break
        else:
            if not stack:
                break
            items, slot, parent = stack.pop()
    if faults:
        raise faults.problem()
    return DetokenizePlan(root, references)


def _ids(text: str) -> Iterator[str | None]:
    """Yield what each pair of double braces names: a token's id, None where it is no expression."""
    for braces in _BRACED.finditer(text):
        inside = _INSIDE_BRACES.fullmatch(braces[1])
        yield None if inside is None else (inside[1] or inside[2]).lower()


def _replaced(text: str, value_of: Callable[[str], Json]) -> Json:
    """Return a string with its expressions replaced; the value where it is one and nothing else."""
    named = iter(list(_ids(text)))
    if _BRACED.fullmatch(text) is not None:
        token_id = next(named)
        return text if token_id is None else value_of(token_id)

    def text_of(braces: re.Match[str]) -> str:
        token_id = next(named)
        if token_id is None:
            return braces[0]
        value = value_of(token_id)
        return value if isinstance(value, str) else dumps(value).decode()

    return _BRACED.sub(text_of, text)
