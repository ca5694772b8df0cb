"""Request shapes: how each operation is asked, unless the target says otherwise.

The names are the operations of the engine's registry, with short ones for the token endpoints
(`search` for `search_tokens`). A shape's path and body may hold `{id}`, `{value}` and the like,
which are filled in when it is asked; a body's string that is one such name takes any JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote

from engine.files import AnyJson, Text
from engine.messages import Json
from engine.resources import OPERATIONS

__all__ = ["SHAPES", "RequestShape", "filled"]


@dataclass(frozen=True, kw_only=True)
class RequestShape:
    """How an operation is asked."""

    method: Annotated[str, Text(r"[A-Z]+", "must be an HTTP method in capitals")]
    path: Annotated[str, Text("/.*", "must be a path that begins with /"), "may hold {id}"]
    body: Annotated[Any, AnyJson(), "any JSON; its texts may hold {value}"] = None


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
    found = {}
    for operation in OPERATIONS:
        name = _SHORT.get(operation.name, operation.name)
        method = "POST" if operation.method == "ANY" else operation.method
        path = operation.path.replace("/{path...}", "{path}")
        found[name] = RequestShape(method=method, path=path, body=_BODIES.get(name))
    return found


SHAPES: Final[Mapping[str, RequestShape]] = _default_shapes()
"""Every operation's own shape by its name."""


def filled(shape: RequestShape, values: Mapping[str, Json]) -> tuple[str, str, Json]:
    """Return method, path and body with the values filled in; names without value stay.

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


def _fill(body: Any, values: Mapping[str, Json]) -> Json:  # noqa: ANN401 # reason: any JSON
    if isinstance(body, Mapping):
        return {key: _fill(one, values) for key, one in body.items()}
    if isinstance(body, list | tuple):
        return [_fill(one, values) for one in body]
    if not isinstance(body, str):
        found: Json = body
        return found
    whole = _NAME.fullmatch(body)
    if whole is not None:
        return values.get(whole[1], body)
    return _NAME.sub(lambda match: str(values.get(match[1], match[0])), body)
