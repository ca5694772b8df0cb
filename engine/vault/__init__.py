"""The vault: a data key per tenant under one master key, and ciphertexts bound to their place.

Each tenant has one random root key. It is stored wrapped (AES-256-GCM under a key derived from the
master key) and gives, by HKDF, one key for sealing and one for each kind of keyed hash. Rotation
re-wraps the root keys; no ciphertext changes.

A ciphertext is `version ‖ nonce ‖ AES-256-GCM(plaintext)` with tenant, container, record id and
purpose as associated data, so that swapped rows, columns or tenants do not open.

It uses three methods of a store, inside the caller's transaction. A tenant's keys are made in the
transaction that stores the tenant, so that neither is there without the other.

AES-GCM is the `cryptography` library's, HMAC the standard library's.

    vault = Vault(master_key, entropy, store)    # store: secret, put_secret, secrets
    vault.make(tenant_id)                        # inside the transaction that stores the tenant
    keys = vault.of(tenant_id)                   # inside a transaction
    sealed = keys.seal(container, token_id, plaintext, "data")
    plaintext = keys.open(container, token_id, sealed, "data")      # VaultError when it does not
    keys.dedup(message), keys.index(message)                       # keyed hashes
    keys.fingerprint(type, selected)                                # one as base58
    vault.rotate(new_master_key)                 # inside one transaction

    pair = jwe.generate("ECDH-ES", kid)          # pair.public_jwk, pair.private (to be sealed)
    jwe.decrypt(compact, find_private)           # → bytes; VaultError when it does not open
    jwe.encrypt(public_jwk, plaintext)           # the client's side

It knows neither tokens nor JSON. `engine.vault.jwe` opens what clients encrypt themselves.
"""

from __future__ import annotations

import hmac
import os
import struct
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol

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


class Nonces:
    """Random 96-bit nonces, drawn in batches, because a batch costs little more than one.

    Each is given out once: `list.pop` is atomic, so threads share one supply, and a forked child
    starts with an empty one. With random nonces a key is good for 2^32 messages (NIST SP 800-38D),
    which a tenant's key reaches after about four billion seals.
    """

    __slots__ = ("__weakref__", "_entropy", "_ready")

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy
        self._ready: list[bytes] = []
        _supplies.add(self)

    def take(self) -> bytes:
        """Return the next one."""
        try:
            return self._ready.pop()
        except IndexError:
            drawn = self._entropy(_BATCH_NONCES * NONCE_BYTES)
            assert len(drawn) == _BATCH_NONCES * NONCE_BYTES, "the entropy gave too little"
            fresh = [nonce for (nonce,) in _ONE_NONCE.iter_unpack(drawn)]
            mine: bytes = fresh.pop()
            self._ready.extend(fresh)
            return mine

    def drop(self) -> None:
        """Forget what was drawn and not given out."""
        self._ready = []


_supplies: weakref.WeakSet[Nonces] = weakref.WeakSet()


def _drop_all() -> None:
    for supply in list(_supplies):
        supply.drop()


if hasattr(os, "register_at_fork"):  # absent on Windows, which does not fork
    os.register_at_fork(after_in_child=_drop_all)


def hmac_sha256(key: bytes) -> KeyedHash:
    """Return HMAC-SHA-256 (RFC 2104) under `key` as a function."""
    return partial(hmac.digest, key, digest="sha256")


def derive_key(root: bytes, purpose: str) -> bytes:
    """Return the 32-byte subkey of `root` for one purpose (HKDF-SHA-256, RFC 5869)."""
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=purpose.encode()).derive(root)


_ALPHABET: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def base58(raw: bytes) -> str:
    """Return base58 (the Bitcoin alphabet) of any bytes; a leading zero byte is a leading `1`.

    >>> base58(bytes([0, 0, 1]))
    '112'
    """
    rest = int.from_bytes(raw, "big")
    digits = ""
    while rest:
        rest, digit = divmod(rest, 58)
        digits = _ALPHABET[digit] + digits
    zeros = len(raw) - len(raw.lstrip(b"\0"))
    return "1" * zeros + digits


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

    `dedup` and `index` are HMAC-SHA-256 (bytes → 32 bytes), and so is what a fingerprint is made
    of, under three different keys, so that no stored hash equals a fingerprint that callers see
    (D-FINGERPRINT).
    """

    def __init__(self, tenant_id: str, root: bytes, supply: Nonces) -> None:
        self._tenant_id = tenant_id
        self._next_nonce = supply.take
        self._cipher = AESGCM(derive_key(root, "seal"))
        self._encrypt = self._cipher.encrypt
        self._fingerprint = hmac_sha256(derive_key(root, "fingerprint"))
        self.dedup = hmac_sha256(derive_key(root, "dedup"))
        self.index = hmac_sha256(derive_key(root, "index"))

    def __repr__(self) -> str:
        return f"<TenantKeys of {self._tenant_id}>"

    def fingerprint(self, type_: str, selected: bytes) -> str:
        """Return the fingerprint of a selected value, given as canonical JSON."""
        return base58(self._fingerprint(type_.encode() + b"\0" + selected))  # obeys REC-FINGERPRINT

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

    master_key: 32 bytes from outside; never stored. `of`, `make`, `verify` and `rotate` call the
    store, so they stand inside its transaction. master: the cipher that wraps keys. Raises
    `InputError` when the master key has another length.
    """

    __slots__ = ("_entropy", "_known", "_nonces", "_store", "master")

    def __init__(self, master_key: bytes, entropy: Entropy, store: SecretStore) -> None:
        self.master = _wrapping_cipher(master_key)
        self._entropy = entropy
        self._store = store
        self._nonces = Nonces(entropy)
        self._known: dict[str, TenantKeys] = {}

    def __repr__(self) -> str:
        return f"<Vault of {len(self._known)} unwrapped tenant keys>"

    def of(self, tenant_id: str) -> TenantKeys:
        """Return a tenant's keys.

        Raises `VaultError` when the store holds none, or the master key does not open them.
        """
        keys = self._known.get(tenant_id)
        if keys is None:
            name = _NAME_START + tenant_id
            wrapped = self._store.secret(name)
            if wrapped is None:
                raise VaultError(f"the store holds no key of tenant {tenant_id}")
            keys = TenantKeys(tenant_id, _unwrap(self.master, wrapped, name), self._nonces)
            self._known[tenant_id] = keys
        return keys

    def make(self, tenant_id: str) -> TenantKeys:
        """Make and store the keys of a new tenant, in the transaction that stores the tenant."""
        root = self._entropy(KEY_BYTES)
        assert len(root) == KEY_BYTES, "the entropy gave too little"
        self._put(_NAME_START + tenant_id, root)
        keys = self._known[tenant_id] = TenantKeys(tenant_id, root, self._nonces)
        return keys

    def verify(self) -> None:
        """Raise `VaultError` unless the master key opens every stored key."""
        self._roots()

    def rotate(self, new_master_key: bytes) -> None:
        """Re-wrap every tenant's key under a new master key, in one transaction.

        Raises `VaultError` when the old one does not open a key, `InputError` for a new one of
        another length; nothing is written then. Whoever rolls the transaction back sets `master`
        back too.
        """
        fresh, roots = _wrapping_cipher(new_master_key), self._roots()
        self.master = fresh
        for name, root in roots.items():
            self._put(name, root)

    def _roots(self) -> dict[str, bytes]:
        return {
            name: _unwrap(self.master, wrapped, name)
            for name, wrapped in self._store.secrets().items()
            if name.startswith(_NAME_START)
        }

    def _put(self, name: str, root: bytes) -> None:
        nonce = self._nonces.take()
        wrapped = self.master.encrypt(nonce, root, _place(name))
        self._store.put_secret(name, _WRAPPED_VERSION + nonce + wrapped)


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
