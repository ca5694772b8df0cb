"""Authority: no action gives its caller, or anyone else, access that the caller lacks (D-RIGHTS).

Every operation that could pass on access asks here, and nowhere else:

    grants                  given within the giver's own scope (D-GRANT-SCOPE), by `check_grants`
    grants, keys and        changed and deleted within the same scope, by `check_application`
    applications
    API keys                made by management applications alone, by `check_makes_keys`
    proxies and reactors    changed by whoever holds what runs through them, by `check_takes_over`

What runs later runs with the rights of whoever configured it last; where it asks for a key (a
reactor, a proxy with authentication), only with those that its caller holds too. An application may
change one only if it holds what runs through it now, the rights of its configurer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from engine.identity import ADMINISTRATIVE, Caller
from engine.messages import Problem
from engine.model import Application, Grant, Proxy, Reactor
from engine.resources.context import Context
from engine.resources.identification import principal_of

_READS_TOKENS: Final = frozenset({"token:use"})
_RUNS_CODE: Final = frozenset({"token:use", "token:create"})


def check_grants(
    context: Context, right: str, grants: Iterable[Grant], recipient: Application | None = None
) -> None:
    """Raise `Problem` 403 for a grant that the caller, who acts by `right`, may not give.

    A management application gives any right within its own scope, but rights over applications,
    keys and the tenant only where it holds them. Another application, and one that changes its own
    grants, gives only what it holds.
    """
    if context.services.profile.identity.grant_scope == "any":
        return
    giver = context.caller.application
    holds_all = giver.kind != "management" or (recipient is not None and recipient.id == giver.id)
    for grant in grants:
        given = grant.permissions if holds_all else grant.permissions & ADMINISTRATIVE
        for permission in (right, *sorted(given)):
            _check_holds(context, permission, grant.container, "D-GRANT-SCOPE")


def check_application(context: Context, right: str, application: Application) -> None:
    """Raise `Problem` 403 unless the caller, who acts by `right`, could have given the grants."""
    if context.services.profile.identity.grant_scope == "any":
        return
    for grant in application.grants:
        for permission in (right, *sorted(grant.permissions & ADMINISTRATIVE)):
            _check_holds(context, permission, grant.container, "D-RIGHTS")


def check_makes_keys(context: Context, application: Application) -> None:
    """Raise `Problem` 403 unless the caller may make an API key of the application."""
    if context.caller.application.kind != "management":
        raise Problem(403, "API keys are made by management applications alone.", clause="D-RIGHTS")
    check_application(context, "key:create", application)


def check_takes_over(context: Context, record: Proxy | Reactor) -> None:
    """Raise `Problem` 403 unless the caller holds what runs through a proxy or a reactor."""
    if record.configured_by == context.caller.application.id:
        return
    rights = _READS_TOKENS if isinstance(record, Proxy) else _RUNS_CODE
    configurer = context.services.store.get(Application, record.configured_by)
    for grant in () if configurer is None else configurer.grants:
        for permission in sorted(grant.permissions & rights):
            _check_holds(context, permission, grant.container, "D-RIGHTS")


def taken_over(
    context: Context, record: Proxy | Reactor, body: Mapping[str, object]
) -> dict[str, str]:
    """Return who configures a record from a change on; `Problem` 403 as `check_takes_over`."""
    if body.keys() <= {"name"}:
        return {}
    check_takes_over(context, record)
    return {"configured_by": context.caller.application.id}


def configurer_of(context: Context, record: Proxy | Reactor) -> Caller:
    """Return the principal that configured a record last; `Problem` 403 where it is gone."""
    principal = principal_of(context.services, record.configured_by)
    if principal is None:
        raise Problem(
            403,
            "The application that configured this is gone, and with it its rights.",
            clause="D-RIGHTS",
        )
    return principal


def _check_holds(context: Context, permission: str, container: str, clause: str) -> None:
    if not context.may(permission, container):
        raise Problem(
            403,
            f"The key cannot act for rights on {container}; it lacks {permission} there.",
            clause=clause,
        )
