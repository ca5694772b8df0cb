"""The starter: a target file to fill in, with what a deployment's answers show.

`init --url` sends at most 28 requests. Without a key: `POST /tokenize`, a few documents and paths,
and one request for each of fourteen other operations. Then, where the environment holds
`KEY_PRIVATE_PROD_1`, a token and a card with it, and a token in a container that is named as an
array or as a string; it deletes them again. What an answer shows is
written as a value with the reason beside it; what it leaves open is a question in a comment.
"""

from __future__ import annotations

import json
import os
import textwrap
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from conformance.runner.preflight import Unreachable
from conformance.target.form import Target, TargetKey
from conformance.target.roles import ROLES
from conformance.wire.exchange import Ask, parsed
from conformance.wire.over_http import HttpTransport
from conformance.wire.shapes import SHAPES, filled
from conformance.wire.transport import Answer, Place
from engine.errors import InputError
from engine.messages import Json

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
_SHORT: Final = ", ".join(f'"{name} Retention" = "3s"' for name in ("CVC", "Token Intent", "Log"))
_TENANTS: Final[Mapping[str, tuple[str, tuple[str, ...], str]]] = {
    "acme-test": ("a test tenant", ("private_test",), ""),
    "acme-dedup": ("deduplication is switched on", ("dedup", "dedup_reader"), ""),
    "acme-short": ("retention lasts seconds", ("short",), _SHORT),
}
"""Name of a tenant besides the first → what it is, the roles of its keys, and its quotas."""
_AS: Final = {"array": "an array", "string": "a string"}


@dataclass(slots=True)
class _Seen:
    """What a deployment's answers show. missing: operation → status without a key."""

    url: str = "https://vault.example.com/v1"
    is_asked: bool = False
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
    seen = _Seen(url=_checked(url), is_asked=True)
    _ask(seen)
    return Starter(seen.said, _text(seen), _profile(seen))


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        raise InputError(f"--url = {url!r} must be an http or https URL without query")
    try:
        _ = parts.port
    except ValueError:
        raise InputError(f"--url = {url!r} must name a port from 1 to 65535") from None
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
    except FileExistsError:
        raise InputError(f"{file} is there already; choose another name") from None
    except OSError as error:
        reason = (error.strerror or "no reason given").lower()
        raise InputError(f"{file} must be a file to write: {reason}") from None


# --- asking -------------------------------------------------------------------------------------


class _Asker:
    """Sends a few requests, one after another."""

    def __init__(self, target: Target) -> None:
        self._transport = HttpTransport(target)
        self._turn = 0

    def __call__(self, method: str, path: str, body: Json = None, **more: Any) -> Answer:  # noqa: ANN401 # reason: fields of Ask
        self._turn += 1
        ask = Ask(method=method, path=path, body=body, **more)
        found: Answer = self._transport.run(
            [self._transport.send(ask, Place("init", "main", self._turn))]
        )[0]
        return found

    def close(self) -> None:
        self._transport.close()


def _ask(seen: _Seen) -> None:
    key = os.environ.get(_KEY)
    keys = (TargetKey(role="private_prod", value=key),) if key else ()
    target = Target(base_url=seen.url, keys=keys, timeout_ns=10 * _SECOND_NS)
    ask = _Asker(target)
    try:
        first = ask("POST", "/tokenize", {"init": "a value"})
        if first.status is None:
            raise Unreachable(f"{seen.url} gives no answer: {first.error}")
        seen.status = first.status
        seen.said.append(f"POST /tokenize without a key: {first.status}")
        seen.header = _header_of(ask, first)
        _ask_operations(ask, seen)
    finally:
        ask.close()
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
        document = _json(ask("GET", path))
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
        seen.said.append(f"an unknown path answers {nowhere}: which operations exist is not seen")
    else:
        seen.said.append(f"{there} of {len(_OPTIONAL)} further operations are there")


def _ask_with_key(seen: _Seen, keys: tuple[TargetKey, ...], header: str) -> None:
    form = "Bearer {key}" if header == "Authorization" else "{key}"
    ask = _Asker(
        Target(
            base_url=seen.url,
            keys=keys,
            key_header=header,
            key_format=form,
            timeout_ns=10 * _SECOND_NS,
        )
    )
    card: Json = {"number": "4242424242424242", "expiration_month": 12, "expiration_year": 2031}
    bodies: Mapping[str, Json] = {
        "token": {"type": "token", "data": f"init {uuid.uuid4()}"},
        "card": {"type": "card", "data": card},
    }
    try:
        for kind, body in bodies.items():
            answer = ask("POST", "/tokenize", body, key="private_prod.1")
            if answer.status is None or not 200 <= answer.status < 300:
                seen.refused_key = answer.status
                seen.said.append(f"POST /tokenize of a {kind} with {_KEY}: {answer.status}")
                continue
            seen.tokenized = answer.status
            record = _json(answer)
            _learn_record(seen, kind, record)
            _delete(ask, seen, record)
        if seen.container_field is not None:
            _ask_form(ask, seen, seen.container_field)
    finally:
        ask.close()
    if seen.tokenized is not None:
        seen.said.append(f"POST /tokenize with {_KEY}: {seen.tokenized}")


def _delete(ask: _Asker, seen: _Seen, record: object) -> None:
    if isinstance(record, dict) and "delete" not in seen.missing:
        method, path, _ = filled(SHAPES["delete"], {"id": str(record.get("id"))})
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
            _delete(ask, seen, _json(answer))
            break
    form_seen = seen.container_form
    says = f"named as {_AS[form_seen]}" if form_seen else "refused, as an array and as a string"
    seen.said.append(f"a container in `{name}` is {says}")


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


def _json(answer: Answer) -> object:
    try:
        return parsed(answer.body) if answer.status is not None else None
    except ValueError:
        return None


def _in(value: object, *steps: str) -> object:
    for step in steps:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


# --- writing ------------------------------------------------------------------------------------


def _text(seen: _Seen) -> str:
    parts = [
        _deployment(seen),
        _reach(),
        _words(seen),
        _keys(seen),
        _tenants(),
        _encryption(),
        _operations(seen),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _deployment(seen: _Seen) -> Iterator[str]:
    yield "# A deployment under test. `python -m conformance check THIS-FILE` says what it allows"
    yield "# to be judged, `python -m conformance run THIS-FILE` judges it."
    yield f"#:schema {SCHEMA_FILE}"
    yield f"base_url = {json.dumps(seen.url)}"
    if seen.header is not None:
        name, why = seen.header
        yield f"key_header = {json.dumps(name)}  # {why}"
        if name == "Authorization":
            yield 'key_format = "Bearer {key}"  # is it a bearer token?'
    else:
        yield "# Which header carries the API key?"
        yield '# key_header = "SVC-API-KEY"'
        yield '# key_format = "{key}"  # or "Bearer {key}"'


def _reach() -> Iterator[str]:
    yield "# From which addresses may the run ask? Limits by address need several: local ones to"
    yield "# bind, or a header that the deployment trusts from you, which may then name any."
    yield '# sources = ["127.0.0.2", "127.0.0.3"]'
    yield '# forwarded = "X-Forwarded-For"'
    yield ""
    yield "# What may a run cost? It never sends more, and its plan says what it will send."
    yield "# budget = { requests = 120000, minutes = 10 }"
    yield '# pacing = "100/1s"  # the most that is sent, whatever the deployment allows'
    yield '# timeout = "40s"  # the longest wait for one answer'
    yield '# forbidden = ["DELETE /tokens/{id}"]  # what must not be asked for'
    yield '# expected_failures = ["LIM-LEGACY"]  # what is known to fail'
    yield '# tls = { verify = true, ca_file = "ca.pem" }'


def _words(seen: _Seen) -> Iterator[str]:
    yield "# What does it do where the specification leaves a choice open?"
    mark = "" if _profile(seen) else "# "
    yield f'{mark}profile = "{PROFILE_FILE}"  # what is known of its choices; a run finds more'
    yield '# limits = "limits.toml"  # its limit table, where it is not the specification\'s own'
    yield "# Which containers may the run use, by their own names, paths or not?"
    yield '# containers = ["main", "cards"]'
    if seen.container_form is None:
        yield "# Does a request name its container as an array or as a string? If as a string, say"
        yield "# so in the profile: container_form under tokens."
    else:
        yield f"# Requests may name a container as {_AS[seen.container_form]}: that was accepted."
    if seen.defaults:
        table = ", ".join(f"{kind} = {json.dumps(name)}" for kind, name in seen.defaults.items())
        yield f"default_containers = {{ {table} }}  # as its records say"
    else:
        yield "# Into which container does a token go that names none?"
        yield '# default_containers = { token = "main", card = "cards" }'
    yield "# Is deduplication always on, for every tenant?"
    yield '# always = ["deduplication"]'
    yield "# Which echoing destination may its proxies call?"
    yield '# destination_url = "https://echo.example.com"'
    yield '# proxy_key_header = "SVC-PROXY-KEY"'
    yield '# proxy_host = "{proxy_key}.proxy.example.com"  # where a host names a proxy'


def _profile(seen: _Seen) -> str | None:
    """Return a profile with what is known to differ from the default, None where nothing is."""
    if seen.container_form != "string":
        return None
    return (
        "# The choices of this deployment that are known; a run discovers the rest.\n"
        "[tokens]\n"
        'container_form = "string"  # it refused an array and accepted a string\n'
    )


def _keys(seen: _Seen) -> Iterator[str]:
    yield "# Which keys are there? Each has a role: what it is for. private_prod is enough to"
    yield "# begin with. Limits use keys up: eight of each role marked (several) measure all limits"
    yield "# in one round. A value such as ${NAME} is taken from the environment."
    yield "#"
    for role in ROLES.values():
        many = " (several)" if role.many else ""
        yield from _comment(f"{role.name}{many}: {role.holds}. For {role.purpose}.")
    yield ""
    yield "[[keys]]"
    yield 'role = "private_prod"'
    yield f'value = "${{{_KEY}}}"'
    yield 'tenant = "acme"'
    for name, role in ROLES.items():
        if name != "private_prod":
            yield ""
            yield "# [[keys]]"
            yield f'# role = "{name}"'
            if name == "custom_hostname":
                yield '# host = "pay.example.com"'
            else:
                yield f'# value = "${{KEY_{name.upper()}_1}}"'
            tenant = next((one for one, told in _TENANTS.items() if name in told[1]), "acme")
            yield f'# tenant = "{tenant}"'
            yield from _more(role.name)
    if seen.refused_key is not None:
        yield ""
        yield f"# {_KEY} got {seen.refused_key}: does it hold token:create on every container?"


def _more(role: str) -> Iterator[str]:
    if role == "slow_destination":
        yield '# path = "/proxy/delay/26"'
    if role == "private_one_container":
        yield '# container = "/pci/"'


def _tenants() -> Iterator[str]:
    yield "# Which tenants do these keys belong to, test or production, and with which quotas?"
    yield "# A tenant that no key names is not used."
    yield "[[tenants]]"
    yield 'name = "acme"'
    yield 'kind = "production"'
    yield '# quotas = { "Tokenize Limit" = 5, "CVC Retention" = "1h" }'
    for name, (about, _, quotas) in _TENANTS.items():
        yield ""
        yield f"[[tenants]]  # {about}"
        yield f'name = "{name}"'
        yield 'kind = "test"'
        if quotas:
            yield f"quotas = {{ {quotas} }}"


def _encryption() -> Iterator[str]:
    yield "# With which public key are values encrypted (TOK-ENCRYPTED, TOK-ONE-OF)? As a JWK:"
    yield "# [encryption_jwk]"
    yield '# kty = "OKP"'
    yield '# crv = "X25519"'
    yield '# x = "3p7bfXt9wbTTW2HC7OQ1Nz-DQ8hbeGdNrfx-FG-IK08"'


def _operations(seen: _Seen) -> Iterator[str]:
    yield "# The specification gives a shape to POST /tokenize alone. Where another operation is"
    yield "# spelled otherwise, say how it is asked and how its answer reads: `answer` is the one"
    yield "# that the engine gives, {a.b} what stands there in the deployment's own."
    yield "# [requests.search]"
    yield '# method = "POST"'
    yield '# path = "/find"'
    yield '# body = { q = "data:{value}" }'
    yield '# answer = { data = "{results}" }'
    yield '# limit = "20/10s"  # a limit of its own, besides the specification\'s'
    if seen.container_field is not None and seen.container_field != "containers":
        yield ""
        yield "[fields]  # a field's name in the specification = its name here"
        yield f"containers = {json.dumps(seen.container_field)}  # as its records say"
    else:
        yield ""
        yield "# [fields]  # a field's name in the specification = its name here"
        yield '# containers = "vault"'
    if seen.missing:
        yield ""
        yield "# These answered as if they were not there. Are they spelled otherwise? A check"
        yield "# that needs a missing operation is skipped, with the reason."
        for name, status in seen.missing.items():
            shape = SHAPES[name]
            yield f"# [requests.{name}]  # {shape.method} {shape.path}: {status}"
    elif seen.hides_paths:
        yield ""
        yield "# It answers unknown paths as known ones: which operations exist could not be seen."


def _comment(text: str) -> Iterator[str]:
    first, *rest = textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    yield f"# {first}"
    for line in rest:
        yield f"# {line}"
