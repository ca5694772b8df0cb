"""Records: what callers see of a stored token (section 2.1).

    REC-ID, REC-TENANT, REC-TYPE   as stored
    REC-CARD-MASK                  of a card: the masked object, where D-CARD-VIEW says
    REC-TOKEN-DATA, REC-SECRET     no sensitive input, ever; plaintext only where D-READ allows it
    REC-METADATA, REC-INDEXES      present only if supplied
    REC-FINGERPRINT, REC-FPEXPR    present with an expression in force
    REC-CREATED                    the application, and ISO 8601 with UTC offset
    REC-EXTRAS                     `_extras.deduplicated` on every record
    REC-DEDUP-REDACT               without token:read a stored one loses data and metadata

There is one rule of redaction (D-RECORD-VIEW): every operation shows a token that was stored before
in the same way to a key without token:read in the token's container.

Each record is a deep copy: changing it changes no stored data.
"""

from __future__ import annotations

import datetime as dt
from functools import lru_cache
from typing import Any, Final

from engine.messages import Json
from engine.model import Token
from engine.tokens.rules import Rules

NO_PLAINTEXT: Final = object()
"""The default of `record`: no plaintext is shown."""

_SECOND_NS: Final = 1_000_000_000


def record(
    token: Token,
    rules: Rules,
    deduplicated: bool = False,  # noqa: FBT001, FBT002 # reason: the hot path calls by position
    may_read: bool = True,  # noqa: FBT001, FBT002 # reason: likewise
    *,
    with_container: bool = False,
    plaintext: Any = NO_PLAINTEXT,  # noqa: ANN401 # reason: any JSON, or NO_PLAINTEXT
) -> dict[str, Any]:
    """Return the record of a token.

    deduplicated: whether this request found the token instead of creating it. may_read: False where
    the token was stored before and the key lacks token:read in its container (AUTH-READ).
    with_container: adds `containers`, for the reads of /tokens (D-READ). plaintext: shown as
    `data` under the profile's `plaintext_reads`; the caller has asked for token:read before.
    """
    redacted = not may_read
    if redacted and rules.dedup.redact == "narrow":
        return _narrow(token, deduplicated=deduplicated)
    # obeys REC-TENANT, REC-TYPE
    document: dict[str, Any] = {"id": token.id, "tenant_id": token.tenant_id, "type": token.type}
    if token.mask is not None:  # obeys REC-TOKEN-DATA
        view = rules.tokens.card_view
        if view != "mask" and not redacted:
            document["data"] = {**token.mask}
        if view != "data":
            document["mask"] = {**token.mask}
    if plaintext is not NO_PLAINTEXT and rules.tokens.plaintext_reads and not redacted:
        document["data"] = plaintext
    if token.metadata is not None and (
        not redacted  # obeys REC-DEDUP-REDACT
        or (not deduplicated and rules.tokens.record_view == "metadata")
    ):
        document["metadata"] = {**token.metadata}  # obeys REC-METADATA
    if token.search_indexes is not None:
        document["search_indexes"] = [*token.search_indexes]  # obeys REC-INDEXES
    if token.fingerprint is not None:
        document["fingerprint"] = token.fingerprint
        document["fingerprint_expression"] = token.fingerprint_expression
    if with_container:
        document["containers"] = [token.container]
    document["created_by"] = token.created_by
    document["created_at"] = timestamp(token.created_at_ns)  # obeys REC-CREATED
    document["_extras"] = {"deduplicated": deduplicated}  # obeys REC-EXTRAS
    return document


def _narrow(token: Token, *, deduplicated: bool) -> dict[str, Json]:
    """D-DEDUP-REDACT, the narrow reading."""
    document: dict[str, Json] = {"id": token.id, "type": token.type, "tenant_id": token.tenant_id}
    if token.fingerprint is not None:
        document["fingerprint"] = token.fingerprint
    document["containers"] = [token.container]
    document["_extras"] = {"deduplicated": deduplicated}
    return document


@lru_cache(maxsize=64)  # the tokens of one request were created at one instant
def timestamp(at_ns: int) -> str:
    """Return an instant as ISO 8601 with UTC offset, in microseconds (REC-CREATED).

    >>> timestamp(1_767_225_600_000_001_999)
    '2026-01-01T00:00:00.000001+00:00'
    """
    seconds, rest_ns = divmod(at_ns, _SECOND_NS)
    moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest_ns // 1000:06d}+00:00"
