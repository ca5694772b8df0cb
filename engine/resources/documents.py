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
from engine.resources.forms import BodySchema
from engine.resources.operation import BodyForm, Operation
from engine.resources.pages import Page, page_of

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
            Page.of(context),
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
