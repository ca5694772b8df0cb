"""Pages: cursor pagination, the same for every list (D-LIST)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from engine.errors import did_you_mean
from engine.messages import Problem
from engine.model import LogEntry, Token
from engine.resources.context import Context
from engine.resources.forms import pointer
from engine.store import Document, cursor
from engine.tokens.rules import BodyErrors

DEFAULT_SIZE: Final = 20
LIMIT_SIZE: Final = 100
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FURTHEST_NS: Final = 2**63 - 1
_SIZE_FORM: Final = re.compile(r"[0-9]{1,3}")
_CURSOR_FORM: Final = re.compile(r"[0-9]{1,19}:[0-9a-f-]{36}")

R = TypeVar("R", bound=Token | LogEntry | Document)


class Page:
    """What a list request asks: at most `size` records after the cursor `start`.

    Raises `Problem` 400 naming `clause` for a size outside 1 … 100 or a cursor of the wrong form.
    """

    __slots__ = ("size", "start")

    def __init__(self, size: int, start: str | None, *, clause: str = "D-LIST") -> None:
        errors: dict[str, list[str]] = {}
        if not 1 <= size <= LIMIT_SIZE:
            errors["/size"] = [f"must be a whole number from 1 to {LIMIT_SIZE}"]
        if start is not None and _CURSOR_FORM.fullmatch(start) is None:
            errors["/start"] = ["must be the `next` of an earlier page"]
        if errors:
            raise Problem(
                400, "The page that is asked for does not exist.", errors=errors, clause=clause
            )
        self.size = size
        self.start = start

    @classmethod
    def of(cls, context: Context) -> Page:
        """Return the page that a query asks for."""
        size = context.query.get("size", str(DEFAULT_SIZE))
        is_number = _SIZE_FORM.fullmatch(size) is not None
        return cls(int(size) if is_number else 0, context.query.get("start"))


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
    records = fetch(page.start, page.size + 1)
    here = records[: page.size]
    following = cursor(here[-1]) if len(records) > page.size else None
    return {
        "pagination": {"next": following, "page_size": page.size},
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
