"""Fingerprints and the deduplication hash: what "the same value" means (D-FINGERPRINT).

A fingerprint is HMAC-SHA-256 under a key of the tenant over type and canonical JSON of the value
that the expression in force selects, written in base58 (REC-FINGERPRINT). Equal values of a tenant
and type have equal fingerprints, which reveal nothing without the key.

The deduplication hash is taken under a second key over the same and the container (D-DEDUP-KEY),
so that it can be compared in the store and never equals what a caller sees.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

__all__ = ["KeyedHash", "base58", "dedup_place", "fingerprint"]

KeyedHash = Callable[[bytes], bytes]
"""A keyed hash, its key inside: message → 32 bytes."""

_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_PAIRS: Final = [high + low for high in _ALPHABET for low in _ALPHABET]
_TWO: Final = 58**2
_FOUR: Final = 58**4
"""Four digits at a time: a quarter of the divisions of a long number."""


def fingerprint(type_: str, selected: bytes, keyed: KeyedHash) -> str:
    """Return the fingerprint of a selected value, given as canonical JSON."""
    return base58(keyed(type_.encode() + b"\0" + selected))


@lru_cache(maxsize=1024)
def dedup_place(type_: str, container: str) -> bytes:
    """Return the prefix of the selected value in the message that D-DEDUP-KEY compares.

    container: "" where it is not compared.
    """
    return f"{type_}\0{container}\0".encode()


def base58(raw: bytes) -> str:
    """Return base58 (the Bitcoin alphabet) of any bytes; a leading zero byte is a leading `1`.

    >>> base58(bytes([0, 0, 1]))
    '112'
    """
    rest = int.from_bytes(raw, "big")
    digits = ""
    while rest:
        rest, four = divmod(rest, _FOUR)
        digits = _PAIRS[four // _TWO] + _PAIRS[four % _TWO] + digits
    zeros = len(raw) - len(raw.lstrip(b"\0"))
    return "1" * zeros + digits.lstrip("1")
