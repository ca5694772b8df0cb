"""The vault's two primitives: an endless supply of nonces, and HMAC-SHA-256 made ready.

What it is not: a cipher. AES-GCM is the `cryptography` library's, SHA-256 is hashlib's; here they
are only prepared so that the engine's hot path pays for the bytes and not for the set-up.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from engine.world import Entropy

__all__ = ["KEY_BYTES", "NONCE_BYTES", "KeyedHash", "Nonces", "derive_key", "hmac_sha256"]

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
_BATCH_NONCES: Final = 512
_BLOCK_BYTES: Final = 64

KeyedHash = Callable[[bytes], bytes]
"""A keyed hash with its key inside: message → 32 bytes."""


class Nonces:
    """Random 96-bit nonces, drawn from the entropy many at a time.

    Each is given out once: `list.pop` is atomic, so threads share one supply, and a forked child
    starts with an empty one. With random nonces a key is good for 2^32 messages (NIST SP 800-38D),
    which a tenant's key reaches after four thousand million tokens.
    """

    __slots__ = ("__weakref__", "_entropy", "_ready")

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._ready: list[bytes] = []
        _supplies.add(self)

    def __call__(self) -> bytes:
        """Return the next nonce, 12 bytes."""
        try:
            return self._ready.pop()
        except IndexError:
            return self._draw()

    def drop(self) -> None:
        """Forget what was drawn and not given out."""
        self._ready = []

    def _draw(self) -> bytes:
        drawn = self._entropy(_BATCH_NONCES * NONCE_BYTES)
        assert len(drawn) == _BATCH_NONCES * NONCE_BYTES, "the entropy gave too little"
        fresh = [drawn[at : at + NONCE_BYTES] for at in range(0, len(drawn), NONCE_BYTES)]
        mine = fresh.pop()
        self._ready.extend(fresh)
        return mine


_supplies: weakref.WeakSet[Nonces] = weakref.WeakSet()


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
