"""The vault: a data key per tenant under one master key, and ciphertexts bound to their place.

Each tenant has one random root key. It is stored wrapped (AES-256-GCM under a key derived from the
master key) and gives, by HKDF, one key for sealing and one for each kind of keyed hash. Rotation
re-wraps the root keys; no ciphertext changes.

A ciphertext is `version ‖ nonce ‖ AES-256-GCM(plaintext)` with tenant, container, record id and
purpose as associated data, so that swapped rows, columns or tenants do not open.

It uses three methods of a store, inside the caller's transaction. No key can be lost: a root key
made in a transaction that was rolled back is written again by the next use, until `confirm` says
that it was committed.

AES-GCM is the `cryptography` library's, HMAC the standard library's.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import struct
import weakref
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any, Final, Generic, Protocol, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from engine.errors import InputError, VaultError, wrong_type
from engine.world import Entropy

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
_BATCH_NONCES: Final = 512
_ONE_NONCE: Final = struct.Struct(f"{NONCE_BYTES}s")

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
    reaches after about four billion seals.
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
    """Return HMAC-SHA-256 (RFC 2104) under `key` as a function."""
    return lambda message: hmac.digest(key, message, "sha256")


def derive_key(root: bytes, purpose: str) -> bytes:
    """Return the 32-byte subkey of `root` for one purpose (HKDF-SHA-256, RFC 5869)."""
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=purpose.encode()).derive(root)


_VERSION: Final = b"\x01"
_WRAPPED_VERSION: Final = b"\x02"
_HEAD_BYTES: Final = len(_VERSION) + NONCE_BYTES
_TABLES: Final = {
    "/keys/": "encryption_keys",
    "/intents/": "intents",
    "/account-updater/": "job_results",
    "/code/": "reactors or proxies",
    "/idempotency/": "kept_answers",
}
"""The table of each sealed place; all other places are containers of tokens."""

_NAME_START: Final = "vault/tenant/"


class SecretStore(Protocol):
    """Keeps wrapped keys by name; `engine.store` implements it."""

    def secret(self, name: str) -> bytes | None:
        """Return the wrapped secret of that name."""

    def put_secret(self, name: str, wrapped: bytes) -> None:
        """Insert or replace a wrapped secret."""

    def secrets(self) -> Mapping[str, bytes]:
        """Return all wrapped secrets by name."""


class TenantKeys:
    """One tenant's keys, unwrapped: sealing, opening, and the keyed hashes.

    `fingerprint`, `dedup` and `index` are HMAC-SHA-256 (bytes → 32 bytes) under three different
    keys, so that no stored hash equals a fingerprint that callers see (D-FINGERPRINT).
    """

    def __init__(self, tenant_id: str, root: bytes, supply: Supply[bytes]) -> None:
        self._tenant_id = tenant_id
        self._next_nonce = supply.take
        self._cipher = AESGCM(derive_key(root, "seal"))
        self._encrypt = self._cipher.encrypt
        self.fingerprint = hmac_sha256(derive_key(root, "fingerprint"))
        self.dedup = hmac_sha256(derive_key(root, "dedup"))
        self.index = hmac_sha256(derive_key(root, "index"))

    def __repr__(self) -> str:
        return f"<TenantKeys of {self._tenant_id}>"

    def seal(
        self, container: str, record_id: str, plaintext: bytes, purpose: str = "data"
    ) -> bytes:
        """Return the ciphertext of `plaintext` for that place: 29 bytes longer.

        No part of the place may hold a NUL, which is the separator.
        """
        place = f"{purpose}\0{self._tenant_id}\0{container}\0{record_id}".encode()
        assert place.count(0) == 3, "a NUL in a place would make two places one"
        nonce = self._next_nonce()
        return _VERSION + nonce + self._encrypt(nonce, plaintext, place)

    def open(self, container: str, record_id: str, sealed: bytes, purpose: str = "data") -> bytes:
        """Return the plaintext; raises `VaultError` when it was sealed elsewhere or changed.

        The error names the table and the row, which is what an operator can look at.
        """
        place = f"{purpose}\0{self._tenant_id}\0{container}\0{record_id}".encode()
        try:
            return _open(self._cipher, sealed, place, "a sealed value")
        except VaultError as error:
            table = _TABLES.get(container, "tokens")
            raise VaultError(f"{table} row {record_id}: its {purpose}: {error}") from None


class Vault:
    """Every tenant's keys under one master key.

    master_key: 32 bytes from outside; never stored. `of` and `rotate` call the store, so they
    stand inside its transaction. Raises `InputError` when the master key has another length.
    """

    __slots__ = ("_entropy", "_known", "_masters", "_nonces", "_store", "_unconfirmed")

    def __init__(self, master_key: bytes, entropy: Entropy, store: SecretStore) -> None:
        self._masters: tuple[AESGCM, ...] = (_wrapping_cipher(master_key),)
        self._entropy = entropy
        self._store = store
        self._nonces = nonces(entropy)
        self._known: dict[str, TenantKeys] = {}
        self._unconfirmed: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"<Vault of {len(self._known)} unwrapped tenant keys>"

    def of(self, tenant_id: str) -> TenantKeys:
        """Return a tenant's keys; makes and stores them at first use.

        Raises `VaultError` when the master key does not open what is stored.
        """
        keys = self._known.get(tenant_id)
        if keys is not None and not self._unconfirmed:
            return keys
        return self._load(tenant_id)

    def confirm(self) -> None:
        """Mark all keys that `of` has made as committed; later uses do not read the store."""
        self._unconfirmed.clear()

    def verify(self) -> None:
        """Raise `VaultError` unless the master key opens every stored key."""
        for name, wrapped in self._store.secrets().items():
            if name.startswith(_NAME_START):
                self._unwrap(name, wrapped)

    def rotate(self, new_master_key: bytes) -> None:
        """Re-wrap every tenant's key under a new master key; all or none is written.

        Raises `VaultError` when the old one does not open a key, `InputError` for a new one of
        another length; nothing is written then. Call it in one transaction; this vault still
        opens keys wrapped by either master key, so a rolled-back transaction can be repeated.
        Other processes keep using their unwrapped keys, and start with the new one next time.
        """
        fresh = _wrapping_cipher(new_master_key)
        roots = {
            name: self._unwrap(name, wrapped)
            for name, wrapped in self._store.secrets().items()
            if name.startswith(_NAME_START)
        }
        for name, root in roots.items():
            self._store.put_secret(name, self._wrap(fresh, name, root))
        self._masters = (fresh, *self._masters)

    def _load(self, tenant_id: str) -> TenantKeys:
        if tenant_id in self._known and tenant_id not in self._unconfirmed:
            return self._known[tenant_id]
        name = _NAME_START + tenant_id
        wrapped = self._store.secret(name)
        made = self._unconfirmed.get(tenant_id)
        if wrapped is not None:
            root = self._unwrap(name, wrapped)
        else:
            root = made if made is not None else self._entropy(KEY_BYTES)
            assert len(root) == KEY_BYTES, "the entropy gave too little"
            self._store.put_secret(name, self._wrap(self._master_in_force(), name, root))
            self._unconfirmed[tenant_id] = root
        if made != root or tenant_id not in self._known:
            self._known[tenant_id] = TenantKeys(tenant_id, root, self._nonces)
        return self._known[tenant_id]

    def _master_in_force(self) -> AESGCM:
        """Return the cipher that the stored keys are wrapped under.

        Another process may have rotated, or a rotation here may have been rolled back; a new key
        wrapped under a different master key would leave a store that no single key opens.
        """
        name, wrapped = "", None
        for known in self._known:  # any that was committed will do
            name = _NAME_START + known
            wrapped = self._store.secret(name)
            if wrapped is not None:
                break
        else:
            stored = self._store.secrets().items()
            name, wrapped = next((s for s in stored if s[0].startswith(_NAME_START)), ("", None))
        if wrapped is None:
            return self._masters[0]  # the store's first
        for cipher in self._masters:
            with contextlib.suppress(VaultError):
                _unwrap(cipher, wrapped, name)
                return cipher
        raise VaultError(
            "the store's keys were rotated to another master key; start again with that one"
        )

    def _wrap(self, cipher: AESGCM, name: str, root: bytes) -> bytes:
        nonce = self._nonces.take()
        return _WRAPPED_VERSION + nonce + cipher.encrypt(nonce, root, _place(name))

    def _unwrap(self, name: str, wrapped: bytes) -> bytes:
        for cipher in self._masters[:-1]:
            with contextlib.suppress(VaultError):
                return _unwrap(cipher, wrapped, name)
        return _unwrap(self._masters[-1], wrapped, name)


def hash_key_text(text: str) -> bytes:
    """Return the 32-byte hash under which a key's text is stored and looked up (D-KEY).

    Plain SHA-256 with a prefix of its own, and no key: the text holds 128 random bits, so nobody
    can try them all, and the hash stays the same across restarts, processes and master keys.
    """
    return sha256(b"tollgate key text\0" + text.encode("utf-8", "surrogatepass")).digest()


def _wrapping_cipher(master_key: bytes) -> AESGCM:
    if not isinstance(master_key, bytes):
        raise wrong_type("master_key", master_key, f"{KEY_BYTES} bytes")
    if len(master_key) != KEY_BYTES:
        raise InputError(
            f"master_key of {len(master_key)} bytes must have {KEY_BYTES}; "
            "draw one with secrets.token_bytes(32)"
        )
    return AESGCM(derive_key(master_key, "wrap"))


def _place(name: str) -> bytes:
    return f"{name}\0guarded".encode()


def _unwrap(cipher: AESGCM, wrapped: bytes, name: str) -> bytes:
    return _open(cipher, wrapped, _place(name), "a tenant's wrapped key", _WRAPPED_VERSION)


def _open(
    cipher: AESGCM, sealed: bytes, place: bytes, what: str, version: bytes = _VERSION
) -> bytes:
    if len(sealed) < _HEAD_BYTES or sealed[:1] != version:
        raise VaultError(f"{what} does not open: it is none of this version")
    try:
        return cipher.decrypt(sealed[1:_HEAD_BYTES], sealed[_HEAD_BYTES:], place)
    except InvalidTag:
        pass
    raise VaultError(f"{what} does not open: wrong key, wrong place, or changed bytes")
