"""Collections of documents under one path: the operations that all of them share.

A collection is applications, reactors, proxies, encryption keys, token intents or jobs. Each is
found by id within the caller's tenant, listed in order, shown and deleted alike; what a body says
about a document stands in its own module.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from engine.messages import Problem, Response
from engine.model import Application, EncryptionKey, Intent, Job, Proxy, Reactor
from engine.resources.context import Context
from engine.resources.forms import Form
from engine.resources.operation import BodyForm, Operation
from engine.resources.pages import Page, page_of

Run: TypeAlias = Callable[[Context], Response]
D = TypeVar("D", bound=Application | EncryptionKey | Intent | Job | Proxy | Reactor)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection(Generic[D]):
    """Documents of one kind.

    name: of one document, such as `reactor`; short_name: what a 404 calls it, if something else.
        path: of the collection. right: the prefix of its permissions. shown: returns what an answer
        shows of a document. is_there: whether a stored document is still readable, such as an
        intent in [t, t + R) (QUO-INTENT). remove: deletes a document; `Store.delete` unless given.
    """

    kind: type[D]
    name: str
    path: str
    right: str
    shown: Callable[[D, Context], dict[str, Any]]
    is_there: Callable[[D, Context], bool] = lambda _record, _context: True
    remove: Callable[[Context, D], object] | None = None
    clauses: tuple[str, ...] = ()
    short_name: str | None = None

    def found(self, context: Context) -> D:
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
            Page.of(context),
            lambda after, size: store.list(self.kind, tenant_id, after=after, size=size),
            lambda record: self.shown(record, context),
        )
        return Response(200, page)

    def _get(self, context: Context) -> Response:
        context.require(f"{self.right}:read")
        return Response(200, self.shown(self.found(context), context))

    def _delete(self, context: Context) -> Response:
        context.require(f"{self.right}:delete")
        record = self.found(context)
        if self.remove is None:
            context.services.store.delete(self.kind, record.id)
        else:
            self.remove(context, record)
        context.log(f"{self.right}:delete", self._entity, record.id, 204)
        return Response(204)

    def created(self, context: Context, record: D, **more: Any) -> Response:  # noqa: ANN401 # reason: any JSON
        """Store a new document and show it, with what only this answer shows."""
        context.services.store.put(record)
        context.log(f"{self.right}:create", self._entity, record.id, 201)
        shown = {**self.shown(record, context), **more}
        return Response(201, shown, {"Location": f"{self.path}/{record.id}"})

    def changed(self, context: Context, record: D) -> Response:
        """Store a document that was changed and show it."""
        context.services.store.put(record)
        context.log(f"{self.right}:update", self._entity, record.id, 200)
        return Response(200, self.shown(record, context))

    def creation(
        self,
        summary: str,
        run: Run,
        form: Form | None = None,
        clauses: tuple[str, ...] = (),
        *,
        body: BodyForm = "json",
        body_optional: bool = False,
    ) -> Operation:
        """Return the operation that creates a document; `run` answers with `created`."""
        return Operation(
            name=f"create_{self._identifier}",
            method="POST",
            path=self.path,
            summary=summary,
            run=run,
            clauses=clauses or self.clauses,
            permission=f"{self.right}:create",
            body=body,
            body_optional=body_optional,
            form=form,
            success_status=201,
        )

    def change(
        self, summary: str, run: Run, form: Form, clauses: tuple[str, ...] = ()
    ) -> Operation:
        """Return the operation that changes one document; `run` answers with `changed`."""
        return Operation(
            name=f"patch_{self._identifier}",
            method="PATCH",
            path=f"{self.path}/{{id}}",
            summary=summary,
            run=run,
            clauses=clauses or self.clauses,
            permission=f"{self.right}:update",
            body="merge-patch",
            form=form,
        )

    def listing(self, name: str, summary: str) -> Operation:
        """Return the operation that lists a tenant's documents, a page at a time."""
        return Operation(
            name=name,
            method="GET",
            path=self.path,
            summary=summary,
            run=self._list,
            clauses=self.clauses,
            permission=f"{self.right}:read",
            paged=True,
        )

    def view(self, summary: str) -> Operation:
        """Return the operation that shows one document."""
        return Operation(
            name=f"get_{self._identifier}",
            method="GET",
            path=f"{self.path}/{{id}}",
            summary=summary,
            run=self._get,
            clauses=self.clauses,
            permission=f"{self.right}:read",
        )

    def deletion(self, summary: str) -> Operation:
        """Return the operation that deletes one document."""
        return Operation(
            name=f"delete_{self._identifier}",
            method="DELETE",
            path=f"{self.path}/{{id}}",
            summary=summary,
            run=self._delete,
            clauses=self.clauses,
            permission=f"{self.right}:delete",
            success_status=204,
        )

    @property
    def _entity(self) -> str:
        return self.name.replace(" ", "-")

    @property
    def _identifier(self) -> str:
        return self.name.replace(" ", "_")
