"""Encryption at rest and client-side encryption.

    vault = Vault(master_key, entropy, store)    # store: secret, put_secret, secrets
    vault.make(tenant_id)                        # inside the transaction that stores the tenant
    keys = vault.of(tenant_id)                   # inside a transaction
    sealed = keys.seal(container, token_id, plaintext, "data")
    plaintext = keys.open(container, token_id, sealed, "data")      # VaultError when it does not
    keys.dedup(message), keys.index(message)                       # keyed hashes
    keys.fingerprint(type, selected)                                # one as base58
    vault.rotate(new_master_key)                 # inside one transaction
    hash_key_text(text)                          # of API and proxy keys, job addresses

    pair = jwe.generate("ECDH-ES", kid)          # pair.public_jwk, pair.private (to be sealed)
    jwe.decrypt(compact, find_private)           # → bytes; VaultError when it does not open
    jwe.encrypt(public_jwk, plaintext)           # the client's side

It encrypts, decrypts and hashes bytes; it knows neither tokens nor JSON, and of a store only how to
read and write wrapped keys.
"""

from __future__ import annotations

from engine.vault import jwe
from engine.vault.encryption import SecretStore, TenantKeys, Vault, hash_key_text

__all__ = ["SecretStore", "TenantKeys", "Vault", "hash_key_text", "jwe"]
