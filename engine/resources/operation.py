"""An operation: one method on one path, with all its properties.

The registry (`engine.resources.OPERATIONS`) is the one list of what the service answers. The
router, the OpenAPI documents, the permissions table and the conformance plan are made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from engine.messages import Response
from engine.profile import Profile
from engine.resources.context import Context
from engine.resources.forms import Form

__all__ = ["Authentication", "BodyForm", "Operation", "Tier", "json_limit_bytes"]

Authentication: TypeAlias = Literal["key", "optional", "none"]
"""`key`: an API key is required; `optional`: the operation decides; `none`: never looked at."""

BodyForm: TypeAlias = Literal["none", "json", "merge-patch", "raw"]
"""How the body is read: not at all, as JSON of one of two media types, or as bytes."""

Tier: TypeAlias = Literal["specified", "assumed"]
"""Whether the seed shows the operation's shapes."""


def json_limit_bytes(profile: Profile) -> int:
    """Return the largest JSON body (D-SIZE)."""
    return profile.http.body_limit_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation.

    method: an HTTP method, or `ANY`.
    path: a template; `{name}` takes one segment, a last `{name...}` takes the rest or nothing.
    run: what answers, inside one transaction, after `prepare` where there is one, which judges the
    body with no transaction open and leaves its result as `context.prepared`; or
    run_async: what answers by awaiting the world. It opens its own transactions before and after
    (begin → await → finish) and none is open across an await.
    permission: the right it asks for, None when it asks for none or decides itself.
    form: the schema of its JSON body, where the body is a plain object.
    body_optional: no body at all is fine too.
    paged: it takes `start` and `size` and answers a page; `query`: what else the query may hold.
    body_limit_bytes: largest body by the profile (D-SIZE).
    reads_body: it reads its body itself, with `bodies.read_raw`, because what may be sent depends
    on a record (a proxy's transforms, a job's state) that is looked at first.
    """

    name: str
    method: str
    path: str
    summary: str
    prepare: Callable[[Context], Any] | None = None
    run: Callable[[Context], Response] | None = None
    run_async: Callable[[Context], Coroutine[Any, Any, Response]] | None = None
    clauses: tuple[str, ...] = ()
    tier: Tier = "assumed"
    authentication: Authentication = "key"
    permission: str | None = None
    body: BodyForm = "none"
    body_optional: bool = False
    form: Form | None = None
    paged: bool = False
    query: tuple[str, ...] = ()
    body_limit_bytes: Callable[[Profile], int] = json_limit_bytes
    reads_body: bool = False
    success_status: int = 200

    @property
    def creates(self) -> bool:
        """Whether it is a POST that creates, which may ask to create once (D-IDEMPOTENCY)."""
        return self.method == "POST" and (self.permission or "").endswith(":create")

    @property
    def reads(self) -> bool:
        """Whether it changes nothing, the log of who reads plaintext aside (D-LOGS)."""
        return self.run is not None and (self.method == "GET" or self.name == "search_tokens")

    def __post_init__(self) -> None:
        assert (self.run is None) != (self.run_async is None), "one way to answer"
