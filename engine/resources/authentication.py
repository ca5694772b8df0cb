"""Authentication: the 401 answers, and the principal of an application without a key."""

from __future__ import annotations

from engine.identity import Caller
from engine.messages import Problem
from engine.model import Application, Key, Tenant
from engine.resources.services import Services

__all__ = ["principal_of", "unauthenticated"]


def unauthenticated(
    header: str, *, what: str = "API key", scheme: str = "ApiKey", clause: str = "AUTH-HEADER"
) -> Problem:
    """Return the answer to a request without a known key in `header` (AUTH-HEADER, D-STATUSES)."""
    return Problem(
        401,
        f"A known {what} is needed in {header}.",
        headers={"WWW-Authenticate": f'{scheme} header="{header}"'},
        clause=clause,
    )


def principal_of(services: Services, application_id: str) -> Caller | None:
    """Return the principal of an application that acts without a key; inside a transaction.

    The creator of a proxy without authentication, or of an account-updater job, acts when a
    request has no key. None once that application is deleted.
    """
    application = services.store.get(Application, application_id)
    if application is None:
        return None
    tenant = services.store.get(Tenant, application.tenant_id)
    if tenant is None:
        return None
    keyless = Key("", tenant.id, application.id, legacy=False, text_hash=b"")
    return Caller(keyless, application, tenant)
