"""API-key texts: how they are made and what their form says.

Only a hash of a text is ever stored (D-KEY). The form tells one thing to the service, whether the
key is a legacy one; tenant and application kind come from the records, never from the text.
"""

from __future__ import annotations

import re
from typing import Final, Self

from engine.errors import InputError, wrong_type
from engine.model import ApplicationKind, TenantKind
from engine.world import Entropy

__all__ = [
    "REGION_FORM",
    "REGION_RULE",
    "KeyText",
    "check_region",
    "is_legacy_text",
    "new_key_text",
    "secret_text",
]

REGION_FORM: Final = "[a-z0-9]{1,16}"
REGION_RULE: Final = "must be at most 16 lower-case letters and digits"
"""A region stands in key texts between underscores, and key texts in a header (D-KEY)."""

_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_SECRET_CHARACTERS: Final = 22
_ENVIRONMENTS: Final = {"production": "prod", "test": "test"}
_KINDS: Final = {"public": "pub", "private": "pvt", "management": "mgt"}


class KeyText(str):
    """A key's text, shown once to whoever made it; its repr hides it.

    `key_id` is the id of the stored key.
    """

    __slots__ = ("key_id",)

    key_id: str

    def __new__(cls, text: str, key_id: str) -> Self:
        """Make a text that knows its key's id."""
        made = super().__new__(cls, text)
        made.key_id = key_id
        return made

    def __repr__(self) -> str:
        return f"<KeyText of key {self.key_id}; str() shows it>"


def check_region(region: str) -> None:
    """Raise `InputError` for a region that cannot stand in a key's text."""
    given: object = region
    if not isinstance(given, str):
        raise wrong_type("region", given, "a text such as 'us'")
    if re.fullmatch(REGION_FORM, region) is None:
        raise InputError(f"region = {region!a} {REGION_RULE}, such as 'us'")


def is_legacy_text(text: str) -> bool:
    """Return whether a key text is a legacy one (AUTH-LEGACY).

    >>> is_legacy_text("key_7Yb"), is_legacy_text("key_prod_us_pvt_7Yb")
    (True, False)
    """
    return "_prod_" not in text and "_test_" not in text


def new_key_text(
    tenant_kind: TenantKind,
    application_kind: ApplicationKind,
    *,
    region: str,
    legacy: bool,
    entropy: Entropy,
) -> str:
    """Return a fresh key text in the form of D-KEY; about 129 bits of it are chance."""
    secret = secret_text(entropy)
    if legacy:
        return f"key_{secret}"
    return f"key_{_ENVIRONMENTS[tenant_kind]}_{region}_{_KINDS[application_kind]}_{secret}"


def secret_text(entropy: Entropy, characters: int = _SECRET_CHARACTERS) -> str:
    """Return base58 characters, each drawn evenly."""
    drawn: list[str] = []
    while len(drawn) < characters:
        # 232 = 4 * 58: a byte above it would favour the first letters.
        drawn.extend(_BASE58[byte % 58] for byte in entropy(32) if byte < 232)
    return "".join(drawn[:characters])
