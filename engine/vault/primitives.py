"""The vault's two primitives: a supply of random bytes, and prepared HMAC-SHA-256.

AES-GCM is the `cryptography` library's, SHA-256 is hashlib's; here they are only prepared, so that
the engine's hot path pays for the bytes and not for the set-up.
"""

from __future__ import annotations

import os
import struct
import weakref
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from engine.world import Entropy

__all__ = [
    "KEY_BYTES",
    "NONCE_BYTES",
    "KeyedHash",
    "Supply",
    "derive_key",
    "hmac_sha256",
    "nonces",
]

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
_BATCH_NONCES: Final = 512
_ONE_NONCE: Final = struct.Struct(f"{NONCE_BYTES}s")
_BLOCK_BYTES: Final = 64

KeyedHash = Callable[[bytes], bytes]
"""A keyed hash with its key inside: message → 32 bytes."""

_Made = TypeVar("_Made")


class Supply(Generic[_Made]):
    """Random values drawn in batches, because a batch costs little more than one.

    draw: returns a batch, not empty. Each of it is given out once: `list.pop` is atomic, so threads
    share one supply, and a forked child starts with an empty one.
    """

    __slots__ = ("__weakref__", "_draw", "_ready")

    def __init__(self, draw: Callable[[], list[_Made]]) -> None:
        self._draw = draw
        self._ready: list[_Made] = []
        _supplies.add(self)

    def take(self) -> _Made:
        """Return the next one."""
        try:
            return self._ready.pop()
        except IndexError:
            fresh = self._draw()
            mine = fresh.pop()
            self._ready.extend(fresh)
            return mine

    def drop(self) -> None:
        """Forget what was drawn and not given out."""
        self._ready = []


def nonces(entropy: Entropy) -> Supply[bytes]:
    """Return a supply of random 96-bit nonces.

    With random nonces a key is good for 2^32 messages (NIST SP 800-38D), which a tenant's key
    reaches after four thousand million tokens.
    """

    def draw() -> list[bytes]:
        drawn = entropy(_BATCH_NONCES * NONCE_BYTES)
        assert len(drawn) == _BATCH_NONCES * NONCE_BYTES, "the entropy gave too little"
        return [nonce for (nonce,) in _ONE_NONCE.iter_unpack(drawn)]

    return Supply(draw)


_supplies: weakref.WeakSet[Supply[Any]] = weakref.WeakSet()


def _drop_all() -> None:
    for supply in list(_supplies):
        supply.drop()


if hasattr(os, "register_at_fork"):  # absent on Windows, which does not fork
    os.register_at_fork(after_in_child=_drop_all)


def hmac_sha256(key: bytes) -> KeyedHash:
    """Return HMAC-SHA-256 (RFC 2104) under `key`, at most 64 bytes, as a function.

    Both padded keys are hashed here, once; a call copies the two states, which takes less than
    half of the time of `hmac.digest`.
    """
    assert len(key) <= _BLOCK_BYTES, "a longer key would have to be hashed first"
    padded = key.ljust(_BLOCK_BYTES, b"\0")
    inner = sha256(bytes(byte ^ 0x36 for byte in padded)).copy
    outer = sha256(bytes(byte ^ 0x5C for byte in padded)).copy

    def digest(message: bytes) -> bytes:
        within = inner()
        within.update(message)
        around = outer()
        around.update(within.digest())
        return around.digest()

    return digest


def derive_key(root: bytes, purpose: str) -> bytes:
    """Return the 32-byte subkey of `root` for one purpose (HKDF-SHA-256, RFC 5869)."""
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=purpose.encode()).derive(root)
