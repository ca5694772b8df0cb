"""Collections of documents under one path: the operations that all of them share.

A collection is applications, reactors, proxies, encryption keys, token intents or jobs. Each is
found by id within the caller's tenant, listed in order, shown and deleted alike; what a body says
about a document stands in its own module.

A `Page` is what every list answers, by cursors (D-LIST).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeAlias, TypeVar

from engine.errors import did_you_mean
from engine.messages import Problem, Response
from engine.model import Application, EncryptionKey, Intent, Job, LogEntry, Proxy, Reactor, Token
from engine.resources.operation import BodyForm, BodySchema, Context, Operation, pointer
from engine.store import Document, cursor
from engine.tokens.strict_json import BodyErrors

DEFAULT_SIZE: Final = 20
LIMIT_SIZE: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FURTHEST_NS: Final = 2**63 - 1
_SIZE_FORM: Final = re.compile(r"[0-9]{1,3}")
_CURSOR_FORM: Final = re.compile(r"[0-9]{1,19}:[0-9a-f-]{36}")

R = TypeVar("R", bound=Token | LogEntry | Document)


Page: TypeAlias = tuple[int, str | None]
"""What a list request asks for: at most so many records, after a cursor."""


def checked_page(size: int, start: str | None, clause: str = "D-LIST") -> Page:
    """Return the page; raises `Problem` 400 naming `clause` for one that cannot exist.

    Its size is 1 … 100, and its cursor is the `next` of an earlier page.
    """
    errors: dict[str, list[str]] = {}
    if not 1 <= size <= LIMIT_SIZE:
        errors["/size"] = [f"must be a whole number from 1 to {LIMIT_SIZE}"]
    if start is not None and _CURSOR_FORM.fullmatch(start) is None:
        errors["/start"] = ["must be the `next` of an earlier page"]
    if errors:
        raise Problem(
            400, "The page that is asked for does not exist.", errors=errors, clause=clause
        )
    return size, start


def queried_page(context: Context) -> Page:
    """Return the page that a query asks for."""
    size = context.query.get("size", str(DEFAULT_SIZE))
    is_number = _SIZE_FORM.fullmatch(size) is not None
    return checked_page(int(size) if is_number else 0, context.query.get("start"))


def check_filters(
    query: Mapping[str, str], *names: str, clause: str, prefix: str | None = None
) -> None:
    """Raise `Problem` 400 naming `clause` for a filter that the list does not have.

    If a misspelt filter were ignored, the answer would hold everything. prefix: the start of
    filters that may have any name.
    """
    known = ("size", "start", *names)
    faults = BodyErrors()
    for name in query:
        if name in known or (prefix is not None and name.startswith(prefix)):
            continue
        if faults.is_full:  # suggestions for all of them would take seconds
            break
        faults.add(pointer(name), "is no filter of this list" + did_you_mean(name, known), clause)
    if faults:
        raise Problem(400, "The list has no such filter.", errors=faults, clause=clause)


def page_of(
    page: Page, fetch: Callable[[str | None, int], Sequence[R]], to_json: Callable[[R], Any]
) -> dict[str, Any]:
    """Return the answer of a list: `{pagination: {next, page_size}, data: […]}`.

    `next` is null on the last page. `fetch(after, size)` gives records in order.
    """
    size, start = page
    records = fetch(start, size + 1)
    here = records[:size]
    following = cursor(here[-1]) if len(records) > size else None
    return {
        "pagination": {"next": following, "page_size": size},
        "data": [to_json(record) for record in here],
    }


def instant_ns(text: str, place: str) -> int:
    """Return the instant of an ISO 8601 text; no offset means UTC. Raises `Problem` 400.

    An instant beyond 64 bits becomes the nearest one that fits; no record is that far away.
    """
    try:
        # A query's `+` is a space once it is decoded.
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    except ValueError:
        raise Problem(
            400,
            "An instant is not of the form ISO 8601.",
            errors={place: ["must be ISO 8601"]},
            clause="D-LOG-LIST",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    at_ns = (since.days * 86_400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
    return min(max(at_ns, -_FURTHEST_NS), _FURTHEST_NS)


Run: TypeAlias = Callable[[Context], Response]
D = TypeVar("D", bound=Application | EncryptionKey | Intent | Job | Proxy | Reactor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection(Generic[D]):
    """Documents of one kind.

    name: of one document, such as `reactor`; short_name: what a 404 calls it, if something else.
        path: of the collection. right: the prefix of its permissions. to_json: returns what an
        answer shows of a document. is_there: whether a stored document is still readable, such as
        an intent in [t, t + R) (QUO-INTENT). remove: deletes a document; `Store.delete` unless
        given.
    """

    kind: type[D]
    name: str
    path: str
    right: str
    to_json: Callable[[D, Context], dict[str, Any]]
    is_there: Callable[[D, Context], bool] = lambda _record, _context: True
    remove: Callable[[Context, D], object] | None = None
    clauses: tuple[str, ...] = ()
    short_name: str | None = None

    def requested(self, context: Context) -> D:
        """Return the document that the path names; raises `Problem` 404."""
        record = context.services.store.get(self.kind, context.params["id"])
        is_own = record is not None and record.tenant_id == context.tenant.id
        if record is None or not is_own or not self.is_there(record, context):
            name = self.short_name or self.name
            raise Problem(404, f"There is no such {name}.", clause="D-STATUSES")
        return record

    def _list(self, context: Context) -> Response:
        context.require(f"{self.right}:read")
        store, tenant_id = context.services.store, context.tenant.id
        page = page_of(
            queried_page(context),
            lambda after, size: store.list(self.kind, tenant_id, after=after, size=size),
            lambda record: self.to_json(record, context),
        )
        return Response(200, page)

    def _get(self, context: Context) -> Response:
        context.require(f"{self.right}:read")
        return Response(200, self.to_json(self.requested(context), context))

    def _delete(self, context: Context) -> Response:
        context.require(f"{self.right}:delete")
        record = self.requested(context)
        if self.remove is None:
            context.services.store.delete(self.kind, record.id)
        else:
            self.remove(context, record)
        context.log(f"{self.right}:delete", self._entity, record.id, 204)
        return Response(204)

    def created(self, context: Context, record: D, **more: Any) -> Response:  # noqa: ANN401 # reason: any JSON
        """Store a new document and show it, with what only this answer shows."""
        context.shows(record.id)
        context.services.store.put(record)
        context.log(f"{self.right}:create", self._entity, record.id, 201)
        document = {**self.to_json(record, context), **more}
        return Response(201, document, {"Location": f"{self.path}/{record.id}"})

    def changed(self, context: Context, record: D) -> Response:
        """Store a document that was changed and show it."""
        context.services.store.put(record)
        context.log(f"{self.right}:update", self._entity, record.id, 200)
        return Response(200, self.to_json(record, context))

    def creation(
        self,
        summary: str,
        run: Run,
        form: BodySchema | None = None,
        clauses: tuple[str, ...] = (),
        *,
        body: BodyForm = "json",
        **more: Any,  # noqa: ANN401 # reason: fields of an operation
    ) -> Operation:
        """Return the operation that creates a document; `run` answers with `created`."""
        return self._operation(
            "create",
            "POST",
            summary,
            run,
            path=self.path,
            clauses=clauses or self.clauses,
            body=body,
            form=form,
            success_status=201,
            **more,
        )

    def change(
        self, summary: str, run: Run, form: BodySchema, clauses: tuple[str, ...] = ()
    ) -> Operation:
        """Return the operation that changes one document; `run` answers with `changed`."""
        return self._operation(
            "update",
            "PATCH",
            summary,
            run,
            name=f"patch_{self._identifier}",
            clauses=clauses or self.clauses,
            body="merge-patch",
            form=form,
        )

    def listing(self, name: str, summary: str) -> Operation:
        """Return the operation that lists a tenant's documents, a page at a time."""
        return self._operation(
            "read", "GET", summary, self._list, name=name, path=self.path, paged=True
        )

    def view(self, summary: str) -> Operation:
        """Return the operation that shows one document."""
        return self._operation("read", "GET", summary, self._get, name=f"get_{self._identifier}")

    def deletion(self, summary: str) -> Operation:
        """Return the operation that deletes one document."""
        return self._operation("delete", "DELETE", summary, self._delete, success_status=204)

    def _operation(
        self,
        right: str,
        method: str,
        summary: str,
        run: Run,
        **more: Any,  # noqa: ANN401 # reason: fields of an operation
    ) -> Operation:
        """Return an operation by that right; on one document, unless `more` says otherwise."""
        fields = {
            "name": f"{right}_{self._identifier}",
            "path": f"{self.path}/{{id}}",
            "clauses": self.clauses,
            **more,
        }
        permission = f"{self.right}:{right}"
        return Operation(method=method, summary=summary, run=run, permission=permission, **fields)

    @property
    def _entity(self) -> str:
        return self.name.replace(" ", "-")

    @property
    def _identifier(self) -> str:
        return self.name.replace(" ", "_")
