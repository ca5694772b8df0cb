"""Logs: what was done, by whom, readable until `Log Retention` is over (QUO-LOG, D-LOGS)."""

from __future__ import annotations

from typing import Final

from engine.messages import Response
from engine.resources.context import Context
from engine.resources.forms import INSTANT, OWNED, TEXT, View
from engine.resources.operation import Operation
from engine.resources.pages import Page, check_filters, instant_ns, page_of
from engine.store import LogFilter
from engine.tokens.records import timestamp

VIEW: Final = View(
    {
        **OWNED,
        "created_at": INSTANT,
        "operation": TEXT,
        "entity_type": TEXT,
        "entity_id": TEXT,
        "actor_id": {"type": ["string", "null"]},
        "status": {"type": "integer"},
    }
)


def _list(context: Context) -> Response:
    """List entries whose age is below the quota of the moment (D-QUOTA-CHANGE)."""
    context.require("log:read")
    query, store, tenant = context.query, context.services.store, context.tenant
    names = ("entity_type", "entity_id", "start_date", "end_date")
    check_filters(query, *names, clause="D-LOG-LIST")
    from_ns = context.wall_ns - tenant.quotas["Log Retention"] + 1  # obeys QUO-LOG
    if "start_date" in query:
        from_ns = max(from_ns, instant_ns(query["start_date"], "/start_date"))
    before_ns = instant_ns(query["end_date"], "/end_date") if "end_date" in query else None
    chosen = LogFilter(
        entity_type=query.get("entity_type"),
        entity_id=query.get("entity_id"),
        from_ns=from_ns,
        before_ns=before_ns,
    )
    page = page_of(
        Page.of(context),
        lambda after, size: store.find_logs(tenant.id, chosen, after=after, size=size),
        lambda entry: VIEW.of(entry, created_at=timestamp(entry.at_ns)),
    )
    return Response(200, page)


OPERATIONS = (
    Operation(
        name="list_logs",
        method="GET",
        path="/logs",
        summary="List the tenant's log.",
        run=_list,
        clauses=("QUO-LOG",),
        permission="log:read",
        paged=True,
        query=("entity_type", "entity_id", "start_date", "end_date"),
    ),
)
