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

from gmpy2 import mpz

__all__ = ["KeyedHash", "base58", "dedup_place", "fingerprint"]

KeyedHash = Callable[[bytes], bytes]
"""A keyed hash, its key inside: message → 32 bytes."""

_BITCOIN: Final = bytes.maketrans(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuv",
    b"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
)
"""From the digits that GMP counts with to the Bitcoin alphabet."""


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
    rest = raw.lstrip(b"\0")
    digits = mpz.from_bytes(rest, "big").digits(58) if rest else ""
    return "1" * (len(raw) - len(rest)) + digits.encode().translate(_BITCOIN).decode()
