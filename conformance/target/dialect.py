"""The dialect: translates between a deployment's names and those of the specification.

Checks use the names of the specification only. Requests are translated to the deployment's names of
fields and containers, and its answers are translated back. A body of bytes is translated only where
it is plain JSON; a malformed one is sent unchanged.

No status or shape that the specification fixes is changed: 429 stays 429, and a record without `id`
stays without one.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from conformance.messages.exchange import HttpRequest, parsed
from conformance.messages.shapes import RequestShape, Spelling
from engine.messages import Json

_REQUEST: Final = (
    "type",
    "data",
    "encrypted",
    "metadata",
    "search_indexes",
    "fingerprint_expression",
    "containers",
    "deduplicate_token",
    "token_intent_id",
)
_RECORD: Final = ("id", "tenant_id", "mask", "fingerprint", "created_by", "created_at", "_extras")
_CARD: Final = ("number", "expiration_month", "expiration_year", "cvc")
FIELDS: Final = (*_REQUEST, *_RECORD, *_CARD, "deduplicated")
"""Fields that a deployment may name differently; `[fields]` maps them to its own names."""

_NO_CONTAINER: Final = frozenset(FIELDS) - {"containers"}
"""Fields that never name a container; any other field may."""
_EXPRESSIONS: Final = ("fingerprint_expression", "search_indexes")
_EXPRESSION: Final = re.compile(r"(\{\{\s*)([\w.]+)(\s*\}\})")
_PLACE: Final = re.compile(r"\{([^{}]*)\}")
_PATH: Final = re.compile(r"/(?:[A-Za-z0-9_-]+/)+")
_NOT_IN_SEGMENTS: Final = re.compile(r"[^A-Za-z0-9_-]+")
_FIXED: Final = frozenset({408, 429})
"""Statuses that the specification fixes: a status in an error's body cannot stand for them."""
_ABSENT: Final = object()


@dataclass(frozen=True, kw_only=True)
class ErrorShape:
    """How an error is told from a success, where a deployment answers both with 2xx."""

    at: str
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """An answer in the names of the specification.

    status: what counts as its status. is_ok: whether it is a success, None where any 2xx is.
    body: the translated body, None where nothing had to be translated.
    """

    status: int | None
    is_ok: bool | None = None
    body: bytes | None = None


class Dialect:
    """Translates the requests to one deployment, and its answers.

    without: fields left out of requests, because the deployment always acts as if they were set.

    >>> own = Dialect(fields={"containers": "vault"}, containers=["main"])
    >>> own.asked(HttpRequest(method="POST", path="/tokenize", body={"type": "token", "data": "x",
    ...     "containers": ["/main/"]})).body
    {'type': 'token', 'data': 'x', 'vault': ['main']}
    """

    def __init__(
        self,
        *,
        requests: Mapping[str, RequestShape] | None = None,
        fields: Mapping[str, str] | None = None,
        containers: Sequence[str] = (),
        errors: ErrorShape | None = None,
        without: Sequence[str] = (),
    ) -> None:
        self._requests = requests or {}
        self._spelling = Spelling(requests)
        self._there = dict(fields or {})
        self._here = {own: name for name, own in self._there.items()}
        self._names = _paths_of(containers)
        self._paths = {path: name for name, path in self._names.items() if path != name}
        self._errors = errors
        self._without = frozenset(without)
        self.speaks_otherwise = bool(self._there or self._paths or without)

    @property
    def names(self) -> tuple[str, ...]:
        """The deployment's own names of its containers."""
        return tuple(self._names)

    def path_of(self, container: str) -> str:
        """Return the path that stands for a container's own name in a run.

        >>> Dialect(containers=["Main vault", "/pci/"]).path_of("Main vault")
        '/main-vault/'
        """
        return self._names.get(container, container)

    # --- questions ------------------------------------------------------------------------------

    def asked(self, ask: HttpRequest) -> HttpRequest:
        """Return a request in the deployment's names."""
        if not self.speaks_otherwise or ask.body is None:
            return ask
        body = ask.body
        if not isinstance(body, bytes):
            return dataclasses.replace(ask, body=self._asked(body, is_patch=self._is_patch(ask)))
        try:
            plain = parsed(body)
        except ValueError:
            return ask
        translated = self._asked(plain, is_patch=self._is_patch(ask))
        if translated == plain or _tight(json.dumps(plain).encode()) != _tight(body):
            return ask  # translation would lose a repeated key, for example
        return dataclasses.replace(ask, body=json.dumps(translated).encode())

    def _is_patch(self, ask: HttpRequest) -> bool:
        operation = self._spelling.operation(ask.method, ask.path)
        return operation is not None and operation[0] == "patch"

    def _asked(self, body: Json, *, is_patch: bool = False) -> Json:
        if isinstance(body, list):
            return [self._asked(part) for part in body]
        if not isinstance(body, dict):
            return body
        if "type" in body or is_patch:
            return self._renamed(body, self._there.get, self._paths)
        translated = {key: self._asked(part) for key, part in body.items()}
        if {"container", "permissions"} == set(body):  # a grant of an application
            translated["container"] = _each(
                body["container"], lambda path: self._paths.get(path, path)
            )
        return translated

    # --- answers --------------------------------------------------------------------------------

    def heard(self, ask: HttpRequest, status: int | None, body: bytes) -> Heard:
        """Return an answer in the names of the specification."""
        operation = self._spelling.operation(ask.method, ask.path) if self._requests else None
        shape = None if operation is None else self._requests.get(operation[0])
        is_ok = None if shape is None or not shape.success else status in shape.success
        if status is None or not (self.speaks_otherwise or self._errors or shape):
            return Heard(status)
        try:
            answer = parsed(body)
        except ValueError:
            return Heard(status, is_ok)
        error_status = self._error(status, answer)
        if error_status is not None:
            return Heard(error_status, is_ok=False)
        if not (200 <= status < 300 if is_ok is None else is_ok):
            return Heard(status, is_ok)
        read = answer
        if shape is not None and shape.answer is not None:
            picked = _picked(shape.answer, answer)
            read = answer if picked is _ABSENT else picked
        if self.speaks_otherwise:
            read = self._read(read)
        same = read is answer or read == answer
        return Heard(status, is_ok, None if same else json.dumps(read).encode())

    def _error(self, status: int, answer: Any) -> int | None:  # noqa: ANN401 # reason: any JSON
        """Return the status of an error that is answered with 2xx; None for a success."""
        if self._errors is None or not 200 <= status < 300:
            return None
        if _at(answer, self._errors.at) in (_ABSENT, None, False):
            return None
        error_status = _at(answer, self._errors.status) if self._errors.status else 400
        if not isinstance(error_status, int) or not 400 <= error_status < 600:
            return 400
        return status if error_status in _FIXED else error_status

    def _read(self, answer: Json) -> Json:
        if isinstance(answer, list):
            return [self._read(part) for part in answer]
        if not isinstance(answer, dict):
            return answer
        there = self._there
        if {there.get("id", "id"), there.get("type", "type")} <= set(answer):
            return self._renamed(answer, self._here.get, self._names)
        return {key: self._read(part) for key, part in answer.items()}

    # --- one token request object, or one record ------------------------------------------------

    def _renamed(
        self,
        record: Mapping[str, Any],
        name_of: Callable[[str], str | None],
        containers: Mapping[str, str],
    ) -> dict[str, Json]:
        is_asked = containers is self._paths
        renamed: dict[str, Json] = {}
        for key, value in record.items():
            if is_asked and key in self._without:
                continue
            name = name_of(key) or key
            plain = key if is_asked else name
            if plain in _EXPRESSIONS:
                value = _each(value, lambda text: _expression(text, name_of))  # noqa: PLW2901 # reason: the value told
            elif plain not in _NO_CONTAINER:
                value = _each(value, lambda text: containers.get(text, text))  # noqa: PLW2901 # reason: the value told
            elif plain in {"data", "mask", "_extras"} and isinstance(value, Mapping):
                value = {name_of(inner) or inner: member for inner, member in value.items()}  # noqa: PLW2901 # reason: the value told
            renamed[name] = value
        return renamed


def _each(value: Json, translate: Callable[[str], str]) -> Json:
    """Return a text, or an array with each of its texts, translated."""
    if isinstance(value, list):
        return [translate(item) if isinstance(item, str) else item for item in value]
    return translate(value) if isinstance(value, str) else value


def _expression(text: str, name_of: Callable[[str], str | None]) -> str:
    def renamed(match: re.Match[str]) -> str:
        parts = [name_of(part) or part for part in match[2].split(".")]
        return match[1] + ".".join(parts) + match[3]

    return _EXPRESSION.sub(renamed, text)


def _paths_of(containers: Sequence[str]) -> dict[str, str]:
    """Return name → path; a name that is a path stays as it is."""
    paths: dict[str, str] = {}
    for name in dict.fromkeys(containers):
        path = name
        if not _PATH.fullmatch(name):
            segment = _NOT_IN_SEGMENTS.sub("-", name).strip("-").lower() or "container"
            path, number = f"/{segment}/", 1
            while path in paths.values():
                path, number = f"/{segment}-{number}/", number + 1
        paths[name] = path
    return paths


def _at(answer: Any, place: str) -> Any:  # noqa: ANN401 # reason: any JSON
    """Return the value at a dotted path; `_ABSENT` where there is none.

    >>> _at({"a": [{"b": 1}]}, "a.0.b")
    1
    """
    for step in place.split(".") if place else ():
        if isinstance(answer, dict) and step in answer:
            answer = answer[step]
        elif isinstance(answer, list) and step.isdigit() and int(step) < len(answer):
            answer = answer[int(step)]
        else:
            return _ABSENT
    return answer


def _picked(template: Any, answer: Any) -> Any:  # noqa: ANN401 # reason: any JSON
    """Return a template filled with values of an answer; members without a value are left out."""
    if isinstance(template, Mapping):
        made = {key: _picked(part, answer) for key, part in template.items()}
        return {key: part for key, part in made.items() if part is not _ABSENT}
    if isinstance(template, list | tuple):
        return [
            part for part in (_picked(inner, answer) for inner in template) if part is not _ABSENT
        ]
    match = _PLACE.fullmatch(template) if isinstance(template, str) else None
    return template if match is None else _at(answer, match[1])


def _tight(raw: bytes) -> bytes:
    return b"".join(raw.split())
