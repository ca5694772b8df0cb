"""Origins: the web pages whose scripts may ask with a public key (D-CORS).

An origin is what a browser sends as `Origin` (RFC 6454): scheme, host and port, no path. Only
public applications have any: a key of another kind in a page would be exposed to everybody.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from engine.errors import InputError, wrong_type
from engine.model import ApplicationKind

__all__ = ["ORIGIN_FORM", "make_origins"]

ORIGIN_FORM: Final = (
    r"https?://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?"
)
"""In lower case, as browsers send it."""


def make_origins(
    origins: Iterable[str], kind: ApplicationKind | None = None, thing: str = "origins"
) -> tuple[str, ...]:
    """Return origins in lower case; raises `InputError` for what is none.

    kind: the application's that is to have them; only a public one may have any.

    >>> make_origins(["https://Shop.example"], "public")
    ('https://shop.example',)
    """
    given: object = origins
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise wrong_type(thing, given, "a list such as ['https://shop.example']")
    found: dict[str, None] = {}
    for place, origin in enumerate(given):
        text = origin.lower() if isinstance(origin, str) else ""
        if re.fullmatch(ORIGIN_FORM, text) is None:
            raise InputError(
                f"{thing}[{place}] = {origin!a} must be a scheme and a host, with a port where it "
                "is not the usual one, such as 'https://shop.example'"
            )
        found[text] = None
    if found and kind not in {None, "public"}:
        raise InputError(
            f"{thing} must be empty for a {kind} application: a key in a page is everybody's, so "
            "only public applications have origins"
        )
    return tuple(found)
