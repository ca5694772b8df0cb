r"""/tokens: one token at a time, and the lists of them.

The specification does not show their shapes (D-CREATE, D-LIST, D-SEARCH, D-PATCH, D-DELETE). The
record is that of tokenize plus `containers`, without plaintext unless the profile says so (D-READ).

The query of POST /tokens/search is (D-SEARCH):

    query = term *( " AND " term )          exactly one data term, at most one container term
    term  = data-path ":" value | "container:" path
    value = text without spaces and quotes | '"' text with \" and \\ escaped '"'

A data term is compared exactly and case-sensitively with the values that the tokens' search
indexes selected: `data:Ada`, `data.number:4242424242424242`, `data:"Ada Lovelace"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from engine.identity import container_rule, covers, normal_container
from engine.messages import Problem, Response
from engine.model import Token
from engine.resources.context import Context
from engine.resources.detokenize import opened, plaintext_of
from engine.resources.forms import BodySchema, object_schema
from engine.resources.operation import Operation
from engine.resources.pages import DEFAULT_SIZE, LIMIT_SIZE, Page, check_filters, page_of
from engine.resources.tokenize import create_all, decrypter, log_made, validated
from engine.store import TokenFilter
from engine.tokens.expressions import index_message
from engine.tokens.patches import apply_change, validate_patch
from engine.tokens.records import NO_PLAINTEXT, record
from engine.tokens.shapes import TokenizeBody, walk_one

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
    return _page(context, Page.of(context), chosen)


def _search(context: Context) -> Response:
    context.require("token:search")
    body = _SEARCH.check(context.json)
    size = int(body.get("size", DEFAULT_SIZE))  # JSON has one kind of number
    page = Page(size, body.get("start"), clause="D-SEARCH")
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
)
