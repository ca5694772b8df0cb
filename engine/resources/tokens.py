r"""Stored tokens over HTTP: /tokens, /detokenize and /token-intents.

The specification does not show their shapes (D-CREATE, D-LIST, D-SEARCH, D-PATCH, D-DELETE). The
record is that of tokenize plus `containers`, without plaintext unless the profile says so (D-READ).

The query of POST /tokens/search is (D-SEARCH):

    query = term *( " AND " term )          exactly one data term, at most one container term
    term  = data-path ":" value | "container:" path
    value = text without spaces and quotes | '"' text with \" and \\ escaped '"'

A data term is compared exactly and case-sensitively with the values that the tokens' search
indexes selected: `data:Ada`, `data.number:4242424242424242`, `data:"Ada Lovelace"`.

POST /detokenize takes any JSON with token expressions and answers with the plaintext in their place
(D-DETOKENIZE). QUO-DETOKENIZE bounds how many a request may name; the cvc of a card is part of its
data until CVC Retention is over (QUO-CVC).

A token intent is sealed data that a later tokenize consumes (D-INTENT, QUO-INTENT).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from engine.identity import container_rule, covers, normal_container
from engine.messages import Json, Problem, Response
from engine.model import Intent, Token
from engine.resources.documents import (
    DEFAULT_SIZE,
    LIMIT_SIZE,
    Collection,
    Page,
    check_filters,
    checked_page,
    page_of,
    queried_page,
)
from engine.resources.operation import (
    INSTANT,
    MADE,
    OWNED,
    TEXT,
    BodySchema,
    Context,
    Operation,
    View,
    object_schema,
)
from engine.resources.tokenize import create_all, decrypter, log_made, validated
from engine.store import TokenFilter
from engine.tokens.expressions import index_message, read_expressions, splice
from engine.tokens.shapes import TokenizeBody, walk_one
from engine.tokens.stored import (
    NO_PLAINTEXT,
    apply_change,
    cvc_purpose,
    record,
    timestamp,
    validate_patch,
)
from engine.tokens.strict_json import parse
from engine.tokens.types import validate_intent
from engine.vault import TenantKeys

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
        quoted: str | None = term["quoted"]
        terms[name] = term["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
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


def _fault(rule: str) -> Problem:
    errors = {"/query": [rule]}
    return Problem(400, "The query cannot be understood.", errors=errors, clause="D-SEARCH")


_METADATA = "metadata."
_SEARCH = BodySchema(
    object_schema(
        {
            "query": {"type": "string", "minLength": 1, "maxLength": 2000},
            "start": {"type": ["string", "null"], "maxLength": 100},
            "size": {"type": "integer", "minimum": 1, "maximum": LIMIT_SIZE},
        },
        required=("query",),
    ),
    "D-SEARCH",
)


def _shows_plaintext(token: Token, context: Context) -> bool:
    """Return whether the caller reads the token's data with its record (D-READ)."""
    plaintext_reads = context.services.rules.tokens.plaintext_reads
    return plaintext_reads and context.may("token:read", token.container)


def _to_json(
    token: Token, context: Context, *, is_new: bool = False, deduplicated: bool = False
) -> dict[str, Any]:
    """Return a token's record (D-RECORD-VIEW, REC-DEDUP-REDACT, D-READ).

    is_new: whether the request has created it; else it was stored before.
    """
    plaintext: Any = NO_PLAINTEXT
    if _shows_plaintext(token, context):
        keys = context.services.vault.of(token.tenant_id)
        plaintext = plaintext_of(token, keys, context.steady_ns)
    return record(
        token,
        context.services.rules,
        deduplicated=deduplicated,
        may_read=is_new or context.may("token:read", token.container),
        with_container=True,
        plaintext=plaintext,
    )


def _log_read(tokens: Iterable[Token], context: Context, status: int = 200) -> None:
    """Log that plaintext was read, in one entry (D-LOGS)."""
    for token in tokens:
        if _shows_plaintext(token, context):
            context.log("token:read", "token", token.id, status)
            return


def _prepare_creation(context: Context) -> TokenizeBody:
    services = context.services
    return validated(walk_one(context.json, services.rules), context)


def _create(context: Context) -> Response:
    made = create_all(context.prepared, context)
    _, token, deduplicated = made[0]
    if not log_made(made, context, 201):
        _log_read([token], context, 201)
    context.shows(token.id)
    document = _to_json(token, context, is_new=not deduplicated, deduplicated=deduplicated)
    return Response(201, document, {"Location": f"/tokens/{token.id}"})


def _requested(context: Context, permission: str) -> Token:
    """Return the token; 403 before 404 for a key that holds the right nowhere."""
    context.require(permission)
    token = context.services.store.token(context.tenant.id, context.params["id"].lower())
    if token is None:
        raise Problem(404, "There is no such token.", clause="D-STATUSES")
    context.require(permission, token.container)
    return token


def _get(context: Context) -> Response:
    token = _requested(context, "token:read")
    _log_read([token], context)
    return Response(200, _to_json(token, context))


def _reach(context: Context, permission: str, asked: str | None) -> tuple[str, ...] | None:
    """Return the requested container paths in which the caller holds the right."""
    context.require(permission)
    granted = context.caller.containers(permission)
    if asked is None:
        return None if "/" in granted else granted
    limit = context.services.profile.tokens.container_limit
    path = normal_container(asked, limit)
    if path is None:
        rule = container_rule(asked, limit)
        raise Problem(
            400, "The container is no path.", errors={"/container": [rule]}, clause="D-CONTAINER"
        )
    if any(covers(grant, path) for grant in granted):
        return (path,)
    return tuple(grant for grant in granted if covers(path, grant))


def _page(context: Context, page: Page, chosen: TokenFilter) -> Response:
    store, tenant_id = context.services.store, context.tenant.id
    has_data = context.services.rules.tokens.plaintext_reads
    here: list[Token] = []

    def to_json(token: Token) -> dict[str, Any]:
        here.append(token)
        return _to_json(token, context)

    answer = page_of(
        page,
        lambda after, size: store.find_tokens(
            tenant_id, chosen, after=after, size=size, has_data=has_data
        ),
        to_json,
    )
    _log_read(here, context)
    return Response(200, answer)


def _list(context: Context) -> Response:
    query = context.query
    containers = _reach(context, "token:read", query.get("container"))
    check_filters(query, "container", "type", "fingerprint", clause="D-LIST", prefix=_METADATA)
    pairs = [(k.removeprefix(_METADATA), v) for k, v in query.items() if k.startswith(_METADATA)]
    chosen = TokenFilter(
        containers=containers,
        type=query.get("type"),
        fingerprint=query.get("fingerprint"),
        metadata=tuple(pairs),
    )
    return _page(context, queried_page(context), chosen)


def _search(context: Context) -> Response:
    context.require("token:search")
    body = _SEARCH.check(context.json)
    size = int(body.get("size", DEFAULT_SIZE))  # JSON has one kind of number
    page = checked_page(size, body.get("start"), "D-SEARCH")
    query = parse_search(body["query"], context.services.profile.tokens.container_limit)
    containers = _reach(context, "token:search", query.container)
    keys = context.services.vault.of(context.tenant.id)
    hashed = keys.index(index_message(query.path, query.value))
    return _page(context, page, TokenFilter(containers=containers, index_hash=hashed))


def _patch(context: Context) -> Response:
    services, tenant = context.services, context.tenant
    token = _requested(context, "token:update")
    keys = services.vault.of(tenant.id)
    data, cvc = opened(token, keys, context.steady_ns)
    change = validate_patch(
        context.json,
        token,
        data,
        cvc,
        services.rules,
        decrypt=decrypter(context),
    )
    context.require("token:update", change.container)
    until_ns = context.steady_ns + tenant.quotas["CVC Retention"]
    changed = apply_change(token, change, keys, services.rules, cvc_until_ns=until_ns)
    services.store.update_token(changed)
    context.log("token:update", "token", changed.id, 200)
    return Response(200, _to_json(changed, context))


def _delete(context: Context) -> Response:
    token = _requested(context, "token:delete")
    context.services.store.delete_token(context.tenant.id, token.id)
    context.log("token:delete", "token", token.id, 204)
    return Response(204)


_TOKENS_A_TRANSACTION: Final = 10
"""Others wait for a transaction; a token may hold megabytes."""

_JSON_FIELDS: Final = {"Content-Type": "application/json", "Cache-Control": "no-store"}


def opened(token: Token, keys: TenantKeys, steady_ns: int) -> tuple[Json, str | None]:
    """Return a token's data in the clear and its cvc until the deadline (QUO-CVC), apart."""
    data: Json = parse(keys.open(token.container, token.id, token.sealed_data, "data"))
    if token.sealed_cvc is None or token.cvc_until_ns is None:
        return data, None
    if token.cvc_until_ns <= steady_ns:  # obeys QUO-CVC
        return data, None
    purpose = cvc_purpose(token.cvc_until_ns)
    return data, keys.open(token.container, token.id, token.sealed_cvc, purpose).decode()


def plaintext_of(token: Token, keys: TenantKeys, steady_ns: int) -> Json:
    """Return a token's data in the clear, a card's with its cvc while there is one."""
    data, cvc = opened(token, keys, steady_ns)
    if cvc is not None and isinstance(data, dict):
        return {**data, "cvc": cvc}
    return data


def reveal(
    body: Json, context: Context, permission: str, raw: bytes | None = None
) -> tuple[Json | bytes, list[str]]:
    """Return the body with its expressions replaced, and the ids of the tokens that were read.

    raw: the body as bytes; the answer is bytes then, with everything but expressions exactly as
    sent (D-PASS-THROUGH). No transaction is open: other requests are served while a large body is
    walked, and tokens are looked up in batches.

    Raises `Problem`: the profile's status over the Detokenize Limit, 400 for unknown ids, 403
    without `permission` in the container of a token that is named.
    """
    services, tenant = context.services, context.tenant
    expressions = read_expressions(body, services.rules)
    limit = tenant.quotas["Detokenize Limit"]
    expressions.check_cost(limit, services.rules)
    named = list(dict.fromkeys(expressions.token_ids))
    tokens = _looked_up(named, context, has_data=expressions.count(services.rules) <= limit)
    for token in tokens.values():
        context.require(permission, token.container)
    missing = [token_id for token_id in named if token_id not in tokens]
    if missing:
        raise expressions.unknown(missing)
    expressions.check_limit(limit, services.rules)
    sizes = {token_id: len(token.sealed_data) for token_id, token in tokens.items()}
    repeated_bytes = sum(sizes[token_id] for token_id in expressions.token_ids) - sum(
        sizes.values()
    )
    services.world.reserve(repeated_bytes)
    with services.store.transaction(write=False):
        keys = services.vault.of(tenant.id)
    values = {i: plaintext_of(token, keys, context.steady_ns) for i, token in tokens.items()}
    if raw is not None:
        return (splice(raw, values.__getitem__) if named else raw), named
    # A text with a character beyond ASCII takes up to four times its bytes.
    wide_bytes = sum(sys.getsizeof(values[i]) - sizes[i] for i in expressions.token_ids)
    services.world.reserve(max(0, wide_bytes))
    return expressions.rebuild(values.__getitem__), named


def _looked_up(token_ids: list[str], context: Context, *, has_data: bool) -> dict[str, Token]:
    """Return the tenant's tokens of these ids, without those that do not exist.

    has_data: whether their data will be read; of too many tokens, only their containers are.
    """
    store, tenant_id = context.services.store, context.tenant.id
    tokens: dict[str, Token] = {}
    for start in range(0, len(token_ids), _TOKENS_A_TRANSACTION):
        read_bytes = 0
        with store.transaction(write=False):
            for token_id in token_ids[start : start + _TOKENS_A_TRANSACTION]:
                token = store.token(tenant_id, token_id)
                if token is not None:
                    tokens[token_id] = token if has_data else replace(token, sealed_data=b"")
                    read_bytes += len(tokens[token_id].sealed_data)
        context.services.world.reserve(read_bytes)
    return tokens


def _revealed(context: Context) -> tuple[Json | bytes, list[str]]:
    context.require("token:read")
    return reveal(context.json, context, "token:read", context.raw)


def _detokenize(context: Context) -> Response:
    answer, read = context.prepared
    if read:
        context.log("token:read", "token", read[0], 200)
    return Response(200, answer, {} if context.raw is None else dict(_JSON_FIELDS))


INTENT_VIEW: Final = View({**OWNED, "type": TEXT, "mask": {}, **MADE, "expires_at": INSTANT})


def _intent_json(intent: Intent, _: Context) -> dict[str, Any]:
    mask = None if intent.mask is None else {**intent.mask}
    document = INTENT_VIEW.of(intent, mask=mask, expires_at=timestamp(intent.until_ns))
    return {name: value for name, value in document.items() if value is not None}


def _create_intent(context: Context) -> Response:
    services, tenant = context.services, context.tenant
    walked = walk_one(context.json, services.rules)
    context.require("token-intent:create")
    keys = services.vault.of(tenant.id)
    new_token = validate_intent(walked, services.rules, decrypt=decrypter(context))
    intent_id = services.new_id()
    intent = Intent(
        intent_id,
        tenant.id,
        new_token.type,
        context.caller.application.id,
        context.wall_ns,
        context.steady_ns + tenant.quotas["Token Intent Retention"],
        keys.seal("/intents/", intent_id, new_token.plaintext),
        new_token.mask,
    )
    return _INTENTS.created(context, intent)


_INTENTS: Final = Collection(
    kind=Intent,
    name="token intent",
    path="/token-intents",
    right="token-intent",
    to_json=_intent_json,
    is_there=lambda intent, context: intent.until_ns > context.steady_ns,
    clauses=("QUO-INTENT",),
)


OPERATIONS = (
    Operation(
        name="create_token",
        method="POST",
        path="/tokens",
        summary="Create one token.",
        prepare=_prepare_creation,
        run=_create,
        clauses=("TOK-OBJECT", "TOK-ATOMIC", "TOK-LIMIT"),
        permission="token:create",
        body="json",
        success_status=201,
    ),
    Operation(
        name="list_tokens",
        method="GET",
        path="/tokens",
        summary="List tokens.",
        run=_list,
        clauses=("REC-SECRET",),
        permission="token:read",
        paged=True,
        query=("container", "type", "fingerprint", "metadata.<key>"),
    ),
    Operation(
        name="search_tokens",
        method="POST",
        path="/tokens/search",
        summary="Find tokens by an indexed value.",
        run=_search,
        clauses=("TOK-INDEXES",),
        permission="token:search",
        body="json",
        form=_SEARCH,
    ),
    Operation(
        name="get_token",
        method="GET",
        path="/tokens/{id}",
        summary="Show a token.",
        run=_get,
        clauses=("REC-SECRET",),
        permission="token:read",
    ),
    Operation(
        name="patch_token",
        method="PATCH",
        path="/tokens/{id}",
        summary="Change a token.",
        run=_patch,
        clauses=("TOK-METADATA", "QUO-CVC"),
        permission="token:update",
        body="merge-patch",
        is_costly=True,  # the token may hold megabytes, which are sealed anew
    ),
    Operation(
        name="delete_token",
        method="DELETE",
        path="/tokens/{id}",
        summary="Delete a token.",
        run=_delete,
        clauses=("REC-ID",),
        permission="token:delete",
        success_status=204,
    ),
    Operation(
        name="detokenize",
        method="POST",
        path="/detokenize",
        summary="Replace token expressions by the plaintext of their tokens.",
        prepare=_revealed,
        run=_detokenize,
        clauses=("QUO-DETOKENIZE", "QUO-CVC", "AUTH-READ"),
        permission="token:read",
        body="json",
        is_costly=True,  # tokens may hold megabytes
    ),
    _INTENTS.creation("Store sensitive data for a later tokenize call.", _create_intent),
    _INTENTS.view("Show a token intent, without its data."),
    _INTENTS.deletion("Delete a token intent."),
)
