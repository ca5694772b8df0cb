"""An operation: one method on one path, with all its properties.

The registry (`engine.resources.OPERATIONS`) is the one list of what the service answers. The
router, the OpenAPI documents, the permissions table and the conformance plan are made from it.

`Router` finds the operation of a method and a path (404, 405 with `Allow`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, unquote

from engine.messages import Problem, Response
from engine.profile import Profile
from engine.resources.context import Context
from engine.resources.forms import BodySchema

Authentication: TypeAlias = Literal["key", "optional", "none"]
"""`key`: an API key is required; `optional`: the operation decides; `none`: never looked at."""

BodyForm: TypeAlias = Literal["none", "json", "merge-patch", "raw"]
"""How the body is read: not at all, as JSON of one of two media types, or by the operation.

One with a `raw` body reads it itself, with `bodies.read_raw`, because what may be sent depends on
a record (a proxy's transforms, a job's state) that is looked at first.
"""

Tier: TypeAlias = Literal["specified", "assumed"]
"""Whether the specification shows the operation's shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation.

    method: an HTTP method, or `ANY`.
    path: a template; `{name}` takes one segment, a last `{name...}` takes the rest or nothing.
    run: what answers, inside one transaction, after `prepare` where there is one, which judges the
    body with no transaction open and leaves its result as `context.prepared`; or
    run_async: what answers by awaiting the world. It opens its own transactions before and after
    (begin → await → finish) and none is open across an await.
    permission: the right it asks for, None when it asks for none or decides itself.
    form: the schema of its JSON body, where the body is a plain object.
    body_optional: no body at all is fine too.
    paged: it takes `start` and `size` and answers a page; `query`: what else the query may hold.
    body_limit_bytes: largest body by the profile (D-SIZE).
    is_costly: whether a small request may take more than a few milliseconds, because of what it
    reads or makes; it runs in the worker thread then.
    """

    name: str
    method: str
    path: str
    summary: str
    prepare: Callable[[Context], Any] | None = None
    run: Callable[[Context], Response] | None = None
    run_async: Callable[[Context], Coroutine[Any, Any, Response]] | None = None
    clauses: tuple[str, ...] = ()
    tier: Tier = "assumed"
    authentication: Authentication = "key"
    permission: str | None = None
    body: BodyForm = "none"
    body_optional: bool = False
    form: BodySchema | None = None
    paged: bool = False
    query: tuple[str, ...] = ()
    body_limit_bytes: Callable[[Profile], int] = attrgetter("http.body_limit_bytes")
    success_status: int = 200
    is_costly: bool = False

    @property
    def creates(self) -> bool:
        """Whether it is a POST that creates, which takes `Idempotency-Key` (D-IDEMPOTENCY)."""
        return self.method == "POST" and (self.permission or "").endswith(":create")

    @property
    def reads(self) -> bool:
        """Whether it changes nothing, except that reads of plaintext are logged (D-LOGS)."""
        return self.run is not None and (self.method == "GET" or self.name == "search_tokens")

    def __post_init__(self) -> None:
        assert (self.run is None) != (self.run_async is None), "one way to answer"


METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""What `ANY` stands for in an `Allow` header; the operation itself takes every method."""

_NO_PARAMETERS: Final[Mapping[str, str]] = {}
_SEGMENT: Final = re.compile(r"/\{\w+\}")
_REST_SEGMENT: Final = re.compile(r"/\{\w+\.\.\.\}$")


_Methods: TypeAlias = dict[str, Operation]


class Router:
    """Finds operations. A path without parameters wins over one with them."""

    __slots__ = ("_plain", "_templates")

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._plain: dict[str, _Methods] = {}
        self._templates: dict[str, list[tuple[re.Pattern[str], _Methods]]] = {}
        for operation in operations:
            path, method = operation.path, operation.method
            if "{" not in path:
                methods = self._plain.setdefault(path, {})
            else:
                methods = self._methods_of(path)
            assert method not in methods, "one operation a method and path"
            methods[method] = operation

    def _methods_of(self, path: str) -> _Methods:
        """Return the methods of a path with parameters, found by its first segment."""
        form = re.compile(
            _SEGMENT.sub("/([^/]+)", _REST_SEGMENT.sub("(?:/(.*))?", path)), re.DOTALL
        )
        known = self._templates.setdefault(path.split("/")[1], [])
        methods = next((methods for other, methods in known if other == form), None)
        if methods is None:
            methods = {}
            known.append((form, methods))
        return methods

    def find(self, method: str, path: str) -> tuple[Operation, Mapping[str, str]]:
        """Return the operation and the path's parameters.

        HEAD finds what GET finds. Raises `Problem` 404, or 405 with the methods that are allowed.
        """
        here = self._plain.get(path)
        if here is not None and (plain := here.get(method)) is not None:
            return plain, _NO_PARAMETERS
        allowed, values = self._at(path)
        if not allowed:
            raise Problem(404, "There is nothing at this path.", clause="D-STATUSES")
        operation = allowed.get("ANY") or allowed.get("GET" if method == "HEAD" else method)
        if operation is None:
            raise Problem(
                405,
                f"{_format(method)} is not allowed at this path.",
                clause="D-STATUSES",
                headers={"Allow": ", ".join(self.allowed(path))},
            )
        names = [s.strip("{}.") for s in operation.path.strip("/").split("/") if s.startswith("{")]
        return operation, dict(zip(names, values, strict=True))

    def allowed(self, path: str) -> list[str]:
        """Return the methods that the path supports; none for an unknown path.

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

    def _at(self, path: str) -> tuple[_Methods, list[str]]:
        plain = self._plain.get(path)
        if plain is not None:
            return plain, []
        for form, methods in self._templates.get(path[1:].partition("/")[0], ()):
            match = form.fullmatch(path)
            if match is not None:
                is_rest = "ANY" in methods
                return methods, [v or "" if is_rest else unquote(_text(v)) for v in match.groups()]
        return {}, []


def _text(part: str) -> str:
    """Return encodable text: a lone surrogate, which no HTTP request holds, becomes `?`."""
    return part if part.isascii() else part.encode("utf-8", "replace").decode()


def _format(method: str) -> str:
    return method if method.isascii() and method.isalpha() and len(method) <= 16 else "This method"


def parse_query(query: str) -> Mapping[str, str]:
    """Return the query's parameters; raises `Problem` 400 when one is given twice."""
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(_text(query), keep_blank_values=True, errors="replace"):
        if name in parameters:
            raise Problem(
                400,
                "A query parameter is given twice.",
                errors={"": ["given twice"]},
                clause="D-STATUSES",
            )
        parameters[name] = value
    return parameters
