"""Cards: what a card number must be, and the masked object that stands for a card.

It knows no issuers or card brands; the specification names neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["card_mask", "is_card_number", "is_luhn_valid"]

_DOUBLED: Final = bytes(
    sum(divmod(2 * (byte - 48), 10)) if 48 <= byte <= 57 else 0 for byte in range(256)
)


def is_card_number(text: str) -> bool:
    """Whether the text is 12 to 19 ASCII digits (D-CARD)."""
    return 12 <= len(text) <= 19 and text.isascii() and text.isdigit()


def is_luhn_valid(digits: str) -> bool:
    """Whether the check digit of ISO/IEC 7812-1 is right (D-CARD).

    >>> is_luhn_valid("4242424242424242"), is_luhn_valid("4242424242424241")
    (True, False)
    """
    backwards = digits.encode()[::-1]
    plain = backwards[::2]
    total = sum(plain) - 48 * len(plain) + sum(backwards[1::2].translate(_DOUBLED))
    return total % 10 == 0


def card_mask(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the masked object of a card (REC-CARD-MASK): of what was given, never the cvc.

    Every digit of the number is `X` but the last four; month and year stand as they are.

    >>> card_mask({"number": "4242424242424242", "expiration_month": 12, "cvc": "123"})
    {'number': 'XXXXXXXXXXXX4242', 'expiration_month': 12}
    """
    number = data["number"]
    mask = {"number": "X" * (len(number) - 4) + number[-4:]}
    if "expiration_month" in data:
        mask["expiration_month"] = data["expiration_month"]
    if "expiration_year" in data:
        mask["expiration_year"] = data["expiration_year"]
    return mask
