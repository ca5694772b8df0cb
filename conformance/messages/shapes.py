"""Request shapes: how each operation is requested, unless the target says otherwise.

The names are the operations of the engine's registry, with short ones for the token endpoints
(`search` for `search_tokens`). A shape's path and body may hold placeholders such as `{id}` and
`{value}`, which are filled in when the request is sent. A string of the body that is exactly one
placeholder is replaced by any JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote, unquote

from engine.files import AnyJson, Integer, Rate, TextType
from engine.messages import Json
from engine.resources import OPERATIONS


@dataclass(frozen=True, kw_only=True)
class RequestShape:
    """How an operation is asked, and how its answer is read."""

    method: Annotated[str, TextType(r"[A-Z]+", "must be an HTTP method in capitals")]
    path: Annotated[str, TextType("/.*", "must be a path that begins with /"), "may hold {id}"]
    body: Annotated[Any, AnyJson(), "any JSON; its texts may hold {value}"] = None
    answer: Annotated[
        Any, AnyJson(), "the answer as the engine gives it; {a.b} is what stands there here"
    ] = None
    success: Annotated[
        tuple[Annotated[int, Integer(minimum=200, maximum=399)], ...],
        "statuses that mean success here, where not every 2xx does",
    ] = ()
    limit: Annotated[
        Rate | None, "a limit of its own that holds for it here, besides the specification's"
    ] = None


_NAME: Final = re.compile(r"\{([a-z_]+)\}")
_SHORT: Final = {
    "create_token": "create",
    "list_tokens": "list",
    "search_tokens": "search",
    "get_token": "get",
    "patch_token": "patch",
    "delete_token": "delete",
}
_BODIES: Final[Mapping[str, Json]] = {
    "create": {"type": "token", "data": "{value}"},
    "search": {"query": "data:{value}"},
    "patch": {"metadata": {"note": "{value}"}},
    "detokenize": {"value": "{{ {id} }}"},
    "create_token_intent": {"type": "token", "data": "{value}"},
    "create_reactor": {"name": "{value}", "code": "{code}", "configuration": {}},
    "invoke_reactor": {"args": "{args}"},
    "create_proxy": {"name": "{value}", "destination_url": "{url}"},
    "create_application": {"name": "{value}", "kind": "private", "grants": []},
    "tokenize": "{value}",
}


def _default_shapes() -> dict[str, RequestShape]:
    shapes = {}
    for operation in OPERATIONS:
        name = _SHORT.get(operation.name, operation.name)
        method = "POST" if operation.method == "ANY" else operation.method
        path = operation.path.replace("/{path...}", "{path}")
        shapes[name] = RequestShape(method=method, path=path, body=_BODIES.get(name))
    return shapes


SHAPES: Final[Mapping[str, RequestShape]] = _default_shapes()
"""The default shape of every operation, by its name."""


def filled(shape: RequestShape, values: Mapping[str, Json]) -> tuple[str, str, Json]:
    """Return method, path and body with the values filled in; placeholders without value stay.

    >>> filled(RequestShape(method="GET", path="/tokens/{id}"), {"id": "a b"})
    ('GET', '/tokens/a%20b', None)
    >>> filled(RequestShape(method="POST", path="/s", body={"q": "data:{value}"}), {"value": 1})
    ('POST', '/s', {'q': 'data:1'})
    """

    def in_path(match: re.Match[str]) -> str:
        value = values.get(match[1], match[0])
        # A value for the rest of a path brings its own slashes, one for a segment has none.
        return str(value) if match[1] == "path" else quote(str(value), safe="{}")

    return shape.method, _NAME.sub(in_path, shape.path), _fill(shape.body, values)


def _fill(body: Json, values: Mapping[str, Json]) -> Json:
    if isinstance(body, Mapping):
        return {key: _fill(part, values) for key, part in body.items()}
    if isinstance(body, list | tuple):
        return [_fill(part, values) for part in body]
    if not isinstance(body, str):
        return body
    whole = _NAME.fullmatch(body)
    if whole is not None:
        return values.get(whole[1], body)
    return _NAME.sub(lambda match: str(values.get(match[1], match[0])), body)


class Spelling:
    """Maps between a deployment's own paths and the operations of the engine.

    >>> Spelling({"get": RequestShape(method="GET", path="/v2/t/{id}")}).assumed("GET", "/v2/t/1?a")
    '/tokens/1?a'
    """

    def __init__(self, own: Mapping[str, RequestShape] | None = None) -> None:
        self._own = own or {}
        self._shapes = {**SHAPES, **self._own}
        self._here = _patterns(self._shapes)
        self._assumed = _patterns(SHAPES)

    def operation(self, method: str, path: str) -> tuple[str, dict[str, str]] | None:
        """Return a request's operation, and the values in its path; None when unknown."""
        return _found(self._here, method, path.partition("?")[0])

    def assumed(self, method: str, path: str) -> str:
        """Return the engine's path of a request to the deployment; an unknown path stays."""
        known = self.operation(method, path) if self._own else None
        if known is None or known[0] not in self._own:
            return path
        return self._filled(SHAPES[known[0]], known[1], path)[1]

    def here(self, method: str, path: str) -> tuple[str, str]:
        """Return the deployment's method and path of a request in the engine's form."""
        known = _found(self._assumed, method, path.partition("?")[0]) if self._own else None
        if known is None or known[0] not in self._own:
            return method, path
        return self._filled(self._own[known[0]], known[1], path)

    def deletion(self, name: str, values: Mapping[str, str]) -> tuple[str, str]:
        """Return method and path of a deleting operation, by its name."""
        return filled(self._shapes[name], values)[:2]

    def _filled(self, shape: RequestShape, values: Mapping[str, str], path: str) -> tuple[str, str]:
        mark, query = path.partition("?")[1:]
        method, own_path, _ = filled(shape, values)
        return method, own_path + mark + query


_Patterns = dict[str, list[tuple[str, re.Pattern[str]]]]


def _patterns(shapes: Mapping[str, RequestShape]) -> _Patterns:
    """Return the patterns of the paths by method, those with the fewest placeholders first."""
    patterns: _Patterns = {}
    for name, shape in sorted(shapes.items(), key=lambda item: item[1].path.count("{")):
        parts = _NAME.split(shape.path.partition("?")[0])
        steps = [
            re.escape(part) if place % 2 == 0 else f"(?P<{part}>{_value(part)})"
            for place, part in enumerate(parts)
        ]
        patterns.setdefault(shape.method, []).append((name, re.compile("".join(steps))))
    return patterns


def _value(name: str) -> str:
    return ".*" if name == "path" else "[^/]+"


def _found(patterns: _Patterns, method: str, path: str) -> tuple[str, dict[str, str]] | None:
    for name, pattern in patterns.get(method, ()):
        match = pattern.fullmatch(path)
        if match is not None:
            return name, {key: unquote(value) for key, value in match.groupdict().items()}
    return None
