"""Targets of requests: what is left of one after parsing, for the server and for a log's replay.

A request line names its target in one of four forms (RFC 9112, 3.2). The limits and the router read
the path and the query alone; a scheme and an authority before them (`https://a.example/tokens`) and
a fragment after them are no part of either. Percent-encoding stays as sent: `/%74okens` is another
path than `/tokens`, for the server too. The server's C parser (httptools) does the same; a test
compares the two.
"""

from __future__ import annotations

import re
from typing import Final

_TARGET: Final = re.compile(
    r"(?:[A-Za-z][A-Za-z0-9+.\-]*://[^/?#]*)?(?P<path>[^?#]*)(?P<query>\?[^#]*)?", re.DOTALL
)
FIELD_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
FIELD_VALUE: Final = r"[\t -~\x80-\xff]*"
"""What the name and the value of a header field may hold (RFC 9110, 5.1 and 5.5)."""

_METHOD: Final = re.compile(FIELD_NAME)  # a token too
_VERSION: Final = re.compile(r" +(?:[A-Za-z]+/[0-9]+(?:\.[0-9]+)?|[0-9](?:\.[0-9])?)$")


def path_and_query(target: str) -> str:
    """Return the path of a target with its query, as a `Request` holds it.

    >>> path_and_query("https://api.example/tokens?size=1#top"), path_and_query("http://a.example")
    ('/tokens?size=1', '/')
    >>> path_and_query("*"), path_and_query("/a?"), path_and_query("example.test:443")
    ('*', '/a', 'example.test:443')
    """
    match = _TARGET.match(target)
    assert match is not None, "every part of the pattern may be empty"
    query = match["query"] or ""
    return (match["path"] or "/") + ("" if query == "?" else query)


def is_method(text: str) -> bool:
    """Return whether a text is a method's name (RFC 9110, 9.1)."""
    return _METHOD.fullmatch(text) is not None


def split_request_line(line: str) -> tuple[str, str] | None:
    """Return the method and the target of a request line; None when the text is no request line.

    The version may be missing, be that of another protocol, or stand alone, as Hypercorn logs it.

    >>> split_request_line("POST /tokenize HTTPS/1.1"), split_request_line("GET /a b HTTP/2.0")
    (('POST', '/tokenize'), ('GET', '/a b'))
    >>> split_request_line("GET /tokens 1.1"), split_request_line("GET /tokens 2")
    (('GET', '/tokens'), ('GET', '/tokens'))
    >>> split_request_line("GET /tokens"), split_request_line("-") is None
    (('GET', '/tokens'), True)
    """
    method, space, rest = line.partition(" ")
    target = _VERSION.sub("", rest).strip(" ")
    return (method, target) if space and target and is_method(method) else None
