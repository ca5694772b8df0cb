r"""The query of POST /tokens/search (D-SEARCH).

    query = term *( " AND " term )          exactly one data term, at most one container term
    term  = data-path ":" value | "container:" path
    value = text without spaces and quotes | '"' text with \" and \\ escaped '"'

A data term is compared exactly and case-sensitively with the values that the tokens' search
indexes selected: `data:Ada`, `data.number:4242424242424242`, `data:"Ada Lovelace"`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from engine.containers import container_rule, normal_container
from engine.messages import Problem

__all__ = ["SearchQuery", "parse_search"]

_TERM: Final = re.compile(
    r"(?P<field>data(?:\.[\w-]+)*|container):"
    r'(?:"(?P<quoted>(?:[^"\\]|\\["\\])*)"|(?P<bare>[^\s"]+))'
)
_JOIN: Final = re.compile(r"\s+AND\s+")
_FORM: Final = 'must be of the form data:value or data.key:"a value", with AND container:/path/'


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A path below `data`, the value to find there, and a container path or None."""

    path: tuple[str, ...]
    value: str = field(repr=False)
    container: str | None


def parse_search(text: str, container_limit: int) -> SearchQuery:
    """Return the query; raises `Problem` 400, which does not quote it.

    >>> parse_search('data.name:"Ada L" AND container:/pci/', 400).container
    '/pci/'
    """
    terms: dict[str, str] = {}
    position = 0
    while True:
        term = _TERM.match(text, position)
        if term is None:
            raise _fault(_FORM)
        name = "container" if term["field"] == "container" else "data"
        if name in terms:
            raise _fault(f"must hold one {name} term only")
        value = term["bare"] if term["quoted"] is None else _unquoted(term["quoted"])
        terms[name] = value
        if name == "data":
            path = tuple(term["field"].split(".")[1:])
        position = term.end()
        if position == len(text):
            break
        join = _JOIN.match(text, position)
        if join is None:
            raise _fault(_FORM)
        position = join.end()
    if "data" not in terms:
        raise _fault("must hold a data term")
    container = None
    if "container" in terms:
        container = normal_container(terms["container"], container_limit)
        if container is None:
            rule = container_rule(terms["container"], container_limit)
            raise _fault(f"names a container that {rule}")
    return SearchQuery(path, terms["data"], container)


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _fault(rule: str) -> Problem:
    errors = {"/query": [rule]}
    return Problem(400, "The query cannot be understood.", errors=errors, clause="D-SEARCH")
