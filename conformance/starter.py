"""The starter: a target file to fill in, with what a deployment's answers show.

`init --url` sends at most 28 requests. Without a key: `POST /tokenize`, a few documents and paths,
and one request for each of fourteen other operations. Then, where the environment holds
`KEY_PRIVATE_PROD_1`, a token and a card with it, and a token in a container that is named as an
array or as a string; it deletes them again. What an answer shows is
written as a value with the reason beside it; what it leaves open is a question in a comment.
"""

from __future__ import annotations

import contextlib
import json
import os
import textwrap
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from conformance.messages.exchange import HttpRequest, parsed_or_none
from conformance.messages.shapes import SHAPES, filled
from conformance.runner.preflight import Unreachable
from conformance.target.form import Target, TargetKey, url_fault
from conformance.target.roles import ROLES, Role
from conformance.wire.over_http import HttpTransport
from conformance.wire.transport import Answer, Place
from engine.errors import InputError, reason_of
from engine.messages import Json
from engine.profile import Profile

SCHEMA_FILE: Final = "target.schema.json"
PROFILE_FILE: Final = "profile.toml"
_KEY: Final = "KEY_PRIVATE_PROD_1"
_SECOND_NS: Final = 1_000_000_000
_OPTIONAL: Final = (
    "create",
    "list",
    "get",
    "search",
    "patch",
    "delete",
    "detokenize",
    "create_token_intent",
    "list_logs",
    "get_tenant",
    "create_application",
    "create_reactor",
    "create_proxy",
    "list_account_updater_jobs",
)
_DOCUMENTS: Final = ("/openapi.json", "/openapi.yaml", "/docs/openapi.json", "/swagger.json")
_HEADERS: Final = ("SVC-API-KEY", "Authorization", "X-API-Key", "API-Key")
_WIDTH: Final = 92
_TENANTS: Final[Mapping[str, str]] = {
    "private_test": "acme-test",
    "dedup": "acme-dedup",
    "dedup_reader": "acme-dedup",
    "short": "acme-short",
}
"""Role → the tenant of its keys, where that is not the first one."""


@dataclass(slots=True)
class _Seen:
    """What a deployment's answers show. missing: operation → status without a key."""

    url: str = "https://vault.example.com/v1"
    header: tuple[str, str] | None = None
    status: int | None = None
    missing: dict[str, int] = field(default_factory=dict)
    hides_paths: bool = False
    tokenized: int | None = None
    container_field: str | None = None
    container_form: str | None = None
    defaults: dict[str, str] = field(default_factory=dict)
    refused_key: int | None = None
    said: list[str] = field(default_factory=list)

    @property
    def form_says(self) -> str:
        """The form in which a container was accepted, in words."""
        return "an array" if self.container_form == "array" else "a string"


class Starter(NamedTuple):
    """What the files of a new target hold.

    said: what the deployment's answers show, in sentences. text: the target file. profile: the
    profile beside it, where an answer shows a choice that differs from the default.
    """

    said: list[str]
    text: str
    profile: str | None = None


def starter(url: str | None) -> Starter:
    """Return what a deployment's answers show, and the files that it leads to.

    Raises `InputError` for an invalid URL, `Unreachable` when there is no answer.
    """
    if url is None:
        return Starter([], _text(_Seen()))
    seen = _Seen(url=_checked(url))
    _ask(seen)
    return Starter(seen.said, _text(seen), _profile(seen))


def _checked(url: str) -> str:
    fault = url_fault(url)
    if fault is not None:
        given = "" if "@" in url else f" = {url!r}"  # it may hold a password
        raise InputError(f"--url{given} {fault}")
    return url.rstrip("/")


def write_starter(file: Path, made: Starter) -> None:
    """Write a new target file, and its schema and profile beside it; raises `InputError`."""
    profile = file.parent / PROFILE_FILE
    if made.profile is not None and profile.exists():
        raise InputError(f"{profile} is there already; choose another folder")
    try:
        with file.open("x", encoding="utf-8", newline="\n") as opened:
            opened.write(made.text)
        schema = json.dumps(Target.schema(), indent=2) + "\n"
        (file.parent / SCHEMA_FILE).write_text(schema, "utf-8", newline="\n")
        if made.profile is not None:
            profile.write_text(made.profile, "utf-8", newline="\n")
            schema = json.dumps(Profile.json_schema(), indent=2) + "\n"
            profile.with_name("profile.schema.json").write_text(schema, "utf-8", newline="\n")
    except FileExistsError:
        raise InputError(f"{file} is there already; choose another name") from None
    except OSError as error:
        raise InputError(f"{file} must be a file to write: {reason_of(error)}") from None


# --- asking -------------------------------------------------------------------------------------


class _Asker:
    """Sends a few requests, one after another."""

    def __init__(self, url: str, keys: tuple[TargetKey, ...], **more: str) -> None:
        target = Target(base_url=url, keys=keys, timeout_ns=10 * _SECOND_NS, **more)  # type: ignore[arg-type] # reason: fields that hold texts
        self._transport = HttpTransport(target)
        self._turn = 0

    def __call__(self, method: str, path: str, body: Json = None, **more: Any) -> Answer:  # noqa: ANN401 # reason: fields of HttpRequest
        self._turn += 1
        ask = HttpRequest(method=method, path=path, body=body, **more)
        answer: Answer = self._transport.run(
            [self._transport.send(ask, Place("init", "main", self._turn))]
        )[0]
        return answer

    def close(self) -> None:
        self._transport.close()


def _ask(seen: _Seen) -> None:
    key = os.environ.get(_KEY)
    keys = (TargetKey(role="private_prod", value=key),) if key else ()
    with contextlib.closing(_Asker(seen.url, keys)) as ask:
        first = ask("POST", "/tokenize", {"init": "a value"})
        if first.status is None:
            raise Unreachable(f"{seen.url} gives no answer: {first.error}")
        seen.status = first.status
        seen.said.append(f"POST /tokenize without a key: {first.status}")
        seen.header = _header_of(ask, first)
        _ask_operations(ask, seen)
    if key:
        header = seen.header[0] if seen.header else "SVC-API-KEY"
        _ask_with_key(seen, keys, header)
    else:
        seen.said.append(
            f"to find out more, set {_KEY} to a key with token:create and let init write a new file"
        )


def _header_of(ask: _Asker, refused: Answer) -> tuple[str, str] | None:
    """Return the key's header and its source: an OpenAPI document, or the refusal."""
    for path in _DOCUMENTS:
        document = parsed_or_none(ask("GET", path).body)
        schemes = _in(document, "components", "securitySchemes")
        for scheme in schemes.values() if isinstance(schemes, Mapping) else ():
            if isinstance(scheme, Mapping) and scheme.get("type") == "apiKey":
                if scheme.get("in") == "header" and isinstance(scheme.get("name"), str):
                    return str(scheme["name"]), f"{path} says so"
            elif isinstance(scheme, Mapping) and scheme.get("scheme") == "bearer":
                return "Authorization", f"{path} says so"
    text = " ".join(refused.headers.values()) + refused.body[:2_000].decode(errors="replace")
    for name in _HEADERS:
        if name.lower() in text.lower():
            return name, "the answer without a key names it"
    return None


def _ask_operations(ask: _Asker, seen: _Seen) -> None:
    nowhere = ask("GET", f"/{uuid.uuid4().hex}").status
    seen.hides_paths = nowhere not in {404, 405}
    for name in _OPTIONAL:
        method, path, body = filled(SHAPES[name], {"id": str(uuid.uuid4()), "value": "init"})
        status = ask(method, path, body).status
        if status in {404, 405, 501} and not seen.hides_paths:
            seen.missing[name] = status
    there = len(_OPTIONAL) - len(seen.missing)
    if seen.hides_paths:
        answers = "gets no answer" if nowhere is None else f"answers {nowhere}"
        seen.said.append(f"an unknown path {answers}: which operations exist is not seen")
    else:
        seen.said.append(f"{there} of {len(_OPTIONAL)} further operations are there")


def _ask_with_key(seen: _Seen, keys: tuple[TargetKey, ...], header: str) -> None:
    form = "Bearer {key}" if header == "Authorization" else "{key}"
    card: Json = {"number": "4242424242424242", "expiration_month": 12, "expiration_year": 2031}
    bodies: Mapping[str, Json] = {
        "token": {"type": "token", "data": f"init {uuid.uuid4()}"},
        "card": {"type": "card", "data": card},
    }
    with contextlib.closing(_Asker(seen.url, keys, key_header=header, key_format=form)) as ask:
        for kind, body in bodies.items():
            answer = ask("POST", "/tokenize", body, key="private_prod.1")
            if answer.status is None or not 200 <= answer.status < 300:
                seen.refused_key = answer.status
                seen.said.append(f"POST /tokenize of a {kind} with {_KEY}: {answer.status}")
                continue
            seen.tokenized = answer.status
            record = parsed_or_none(answer.body)
            _learn_record(seen, kind, record)
            _delete(ask, seen, record)
        if seen.container_field is not None:
            _ask_form(ask, seen, seen.container_field)
    if seen.tokenized is not None:
        seen.said.append(f"POST /tokenize with {_KEY}: {seen.tokenized}")


def _delete(ask: _Asker, seen: _Seen, record: object) -> None:
    made_id = record.get("id") if isinstance(record, dict) else None
    if isinstance(made_id, str) and "delete" not in seen.missing:
        method, path, _ = filled(SHAPES["delete"], {"id": made_id})
        ask(method, path, key="private_prod.1")


def _ask_form(ask: _Asker, seen: _Seen, name: str) -> None:
    """Name a container as an array and, where that is refused, as a string."""
    container = next(iter(seen.defaults.values()))
    forms: Mapping[str, Json] = {"array": [container], "string": container}
    for form, named in forms.items():
        body: Json = {"type": "token", "data": f"init {uuid.uuid4()}", name: named}
        answer = ask("POST", "/tokenize", body, key="private_prod.1")
        if answer.status is not None and 200 <= answer.status < 300:
            seen.container_form = form
            _delete(ask, seen, parsed_or_none(answer.body))
            break
    rule = "refused, as an array and as a string"
    if seen.container_form is not None:
        rule = f"named as {seen.form_says}"
    seen.said.append(f"a container in `{name}` is {rule}")


def _learn_record(seen: _Seen, kind: str, record: object) -> None:
    if not isinstance(record, dict):
        return
    for name in ("containers", "container", "container_id", "container_path", "vault"):
        value = record.get(name)
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if isinstance(value, str):
            seen.container_field = name
            seen.defaults[kind] = value
            return


def _in(value: object, *steps: str) -> object:
    for step in steps:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


# --- writing ------------------------------------------------------------------------------------


def _text(seen: _Seen) -> str:
    """Return the text of the target file: `target.toml.jinja`, filled in."""
    environment = Environment(
        loader=PackageLoader("conformance.target", ""),
        autoescape=False,  # noqa: S701 # reason: TOML, not HTML
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"text": json.dumps, "comment": _comment}
    return environment.get_template("target.toml.jinja").render(
        seen=seen,
        schema_file=SCHEMA_FILE,
        profile_file=PROFILE_FILE,
        has_profile=_profile(seen) is not None,
        roles=ROLES.values(),
        tenants=_TENANTS,
        shapes=SHAPES,
    )


def _profile(seen: _Seen) -> str | None:
    """Return a profile with what is known to differ from the default, None where nothing is."""
    if seen.container_form != "string":
        return None
    return (
        "# The choices of this deployment that are known; a run discovers the rest.\n"
        "[tokens]\n"
        'container_form = "string"  # it refused an array and accepted a string\n'
    )


def _comment(role: Role) -> str:
    """Return what a role is for, as a comment."""
    many = " (several)" if role.many else ""
    text = f"{role.name}{many}: {role.holds}. For {role.purpose}."
    lines = textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join(f"# {line}" for line in lines)
