"""Which rows' resources a request falls under: method and path against the table's patterns.

A pattern is a method and a path: `POST /tokens/search`, `PATCH /tokens/{id}`,
`ANY /account-updater/*`. `{name}` stands for one segment, whatever it holds, so that all ids share
a row's counter; a final `*` for everything below. HEAD counts as GET; OPTIONS falls under `ANY`
alone; the query string does not matter (D-COUNTED). Whether a read of one token falls under the
row of `GET /tokens` is the profile's `get_tokens` (D-GET-TOKENS).

Paths are compared as the router compares them, with case: a path that the service does not know
counts under the rows without a resource. A path may fall under several patterns or under none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, Literal

__all__ = ["Classifier", "pattern_fault"]

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "ANY")
_PATTERN: Final = re.compile(
    r"(?P<method>[A-Z]+) (?P<path>(?:/(?:[A-Za-z0-9._~-]+|\{[a-z_]+\}))*(?:/\*)?)"
)
_CACHE_ENTRIES: Final = 1 << 16
_CACHED_CHARACTERS: Final = 300
"""A longer path is not cached, because callers can send paths of any size."""

GetTokens = Literal["list", "prefix"]


def pattern_fault(pattern: str) -> str | None:
    """Return the rule that a pattern breaks, or None.

    >>> pattern_fault("HEAD /tokens")
    'must not name HEAD, which counts as GET; write "GET /tokens"'
    """
    found = _PATTERN.fullmatch(pattern)
    if found is None or not found["path"]:
        return 'must be a method and a path such as "PATCH /tokens/{id}" or "ANY /reactors/*"'
    if found["method"] == "HEAD":
        return f'must not name HEAD, which counts as GET; write "GET {found["path"]}"'
    if found["method"] == "OPTIONS":
        return f'must not name OPTIONS, which counts under ANY; write "ANY {found["path"]}"'
    if found["method"] not in METHODS:
        return "must begin with one of " + ", ".join(METHODS)
    return None


def _expression(pattern: str, get_tokens: GetTokens) -> re.Pattern[str]:
    """Return what matches `METHOD path` for the requests that fall under a pattern."""
    assert pattern_fault(pattern) is None
    method, _, path = pattern.partition(" ")
    segments = path.removesuffix("/*").split("/")
    text = "/".join("[^/]+" if part.startswith("{") else re.escape(part) for part in segments)
    if path.endswith("/*"):
        text += "/.*"
    elif pattern == "GET /tokens" and get_tokens == "prefix":
        text += "(?:/.*)?"
    return re.compile((r"\S+" if method == "ANY" else method) + " " + text, re.DOTALL)


class Classifier:
    """Classifies requests against some patterns, and remembers what it has seen.

    >>> c = Classifier(["GET /tokens", "PATCH /tokens/{id}", "ANY /tokens/*"])
    >>> [c.matching("HEAD", "/tokens?size=3"), c.matching("PATCH", "/tokens/7")]
    [(0,), (1, 2)]
    """

    def __init__(self, patterns: Iterable[str], get_tokens: GetTokens = "list") -> None:
        self.patterns = tuple(patterns)
        self._expressions = [_expression(pattern, get_tokens) for pattern in self.patterns]
        self._seen: dict[tuple[str, str], int] = {}
        self._groups: list[tuple[int, ...]] = []

    def matching(self, method: str, path: str) -> tuple[int, ...]:
        """Return the places of the patterns that a request falls under, in order."""
        return self._groups[self.group(method, path)]

    def group(self, method: str, path: str) -> int:
        """Return a small number, equal for requests that fall under the same patterns."""
        found = self._seen.get((method, path))
        if found is None:
            line = ("GET" if method == "HEAD" else method) + " " + path.partition("?")[0]
            places = enumerate(self._expressions)
            matching = tuple(place for place, each in places if each.fullmatch(line))
            if matching not in self._groups:
                self._groups.append(matching)
            found = self._groups.index(matching)
            if len(path) > _CACHED_CHARACTERS:
                return found
            if len(self._seen) >= _CACHE_ENTRIES:
                self._seen.clear()
            self._seen[method, path] = found
        return found
