"""Upgrade a store of an older version with the master key, in one transaction.

- Code and configuration, which the upgrade of the file has moved into cells in the clear, are
sealed.
- A cvc is sealed anew together with its deadline.
- Every document is written with its keyed hash; from then on `Store.guard` refuses rows that
  another program has changed.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from msgspec.structs import replace

from engine.model import (
    Application,
    EncryptionKey,
    Intent,
    Job,
    JobResult,
    KeptAnswer,
    Key,
    Proxy,
    Reactor,
    Tenant,
)
from engine.store import Document, Store
from engine.tokens import cvc_purpose
from engine.vault import TenantKeys, Vault

__all__ = ["guard_store"]

_PLAIN: Final = b"\0"
"""The prefix of a text that an upgrade has moved into a cell."""


def guard_store(store: Store, vault: Vault) -> None:
    """Authenticate the documents of a kept store from now on; inside a transaction."""
    old = vault.unguarded()
    records = {tenant_id: _documents(store, tenant_id) for tenant_id in old}
    store.guard(vault.record_mac)
    for tenant_id, documents in records.items():
        keys = vault.of(tenant_id)
        for document in documents:
            store.put(_sealed(document, keys))
        for token in store.tokens_with_cvc(tenant_id):
            if token.sealed_cvc is not None:
                place = (token.container, token.id)
                cvc = keys.open(*place, token.sealed_cvc, "cvc")
                sealed = keys.seal(*place, cvc, cvc_purpose(token.cvc_until_ns))
                store.update_token(replace(token, sealed_cvc=sealed))
        vault.guard(tenant_id)


def _documents(store: Store, tenant_id: str) -> list[Document]:
    return [
        *store.list(Tenant, tenant_id),
        *store.list(Application, tenant_id),
        *store.list(Key, tenant_id),
        *store.list(EncryptionKey, tenant_id),
        *store.list(Reactor, tenant_id),
        *store.list(Proxy, tenant_id),
        *store.list(Job, tenant_id),
        *store.list(JobResult, tenant_id),
        *store.list(Intent, tenant_id),
        *store.list(KeptAnswer, tenant_id),
    ]


def _sealed(document: Document, keys: TenantKeys) -> Document:
    """Return the document with its code sealed, where that was in the clear."""

    def sealed(text: bytes, purpose: str) -> bytes:
        if not text.startswith(_PLAIN):
            return text
        return keys.seal("/code/", document.id, text.removeprefix(_PLAIN), purpose)

    if isinstance(document, Reactor):
        return dataclasses.replace(
            document,
            sealed_code=sealed(document.sealed_code, "code"),
            sealed_configuration=sealed(document.sealed_configuration, "configuration"),
        )
    if isinstance(document, Proxy):
        request, response = document.sealed_request_transform, document.sealed_response_transform
        return dataclasses.replace(
            document,
            sealed_request_transform=request and sealed(request, "request_transform"),
            sealed_response_transform=response and sealed(response, "response_transform"),
        )
    return document
