"""The records: what the service remembers, as frozen data.

Instants (`*_at_ns`, `*_until_ns`) are nanoseconds since the Unix epoch on the world's wall clock,
which runs with the monotonic one (`engine.world`). Identifiers are UUID strings. Nothing here
holds a sensitive value in the clear: `sealed_*` fields are ciphertexts of the vault, `*_hash`
fields are keyed hashes, and neither appears in a repr.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

TenantKind: TypeAlias = Literal["test", "production"]
ApplicationKind: TypeAlias = Literal["private", "public", "management"]
JobStatus: TypeAlias = Literal["pending", "processing", "completed", "failed"]
QuotaValue: TypeAlias = int | str
"""A count, a duration in ns, or the name of a rate-limit table, as the quota's name asks."""

_HOUR_NS: Final = 3_600 * 1_000_000_000

DEFAULT_QUOTAS: Final[Mapping[str, QuotaValue]] = {
    "Rate Limit": "Default",  # QUO-RATE
    "Log Retention": 24 * _HOUR_NS,  # QUO-LOG
    "Tokenize Limit": 5,  # QUO-TOKENIZE
    "Detokenize Limit": 5,  # QUO-DETOKENIZE
    "CVC Retention": 1 * _HOUR_NS,  # QUO-CVC
    "Token Intent Retention": 24 * _HOUR_NS,  # QUO-INTENT
}
"""Section 8.8: the quotas of a tenant at its creation (QUO-TENANT); durations in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A tenant. Its kind decides LIM-TEST-TENANT; quotas are the operator's (QUO-TENANT).

    host_suffixes: what its proxies' hostnames may end in; set by the operator too (D-HOST).
    """

    id: str
    name: str
    kind: TenantKind
    quotas: Mapping[str, Any]
    settings: Mapping[str, bool]
    created_at_ns: int
    host_suffixes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Grant:
    """Permissions on a container path and all below it, by whole segments (D-GRANT)."""

    container: str
    permissions: frozenset[str]


@dataclass(frozen=True, slots=True)
class Application:
    """A principal. Its kind is a rate-limit class (AUTH-KINDS); `created_by` names it (D-CLOCK).

    origins: the web pages that may ask with its keys, where it is a public one (D-CORS).
    """

    id: str
    tenant_id: str
    name: str
    kind: ApplicationKind
    grants: tuple[Grant, ...]
    created_at_ns: int
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """An API key; of its text only a hash is stored (D-KEY). `legacy` by its text (AUTH-LEGACY)."""

    id: str
    tenant_id: str
    application_id: str
    legacy: bool
    text_hash: bytes = field(repr=False)
    created_at_ns: int = 0


class Token(Struct, frozen=True, gc=False):
    """A stored token.

    Not tracked by the garbage collector, since a service holds millions of them and a pass over
    all would delay requests; it refers to plain data only, so it cannot be part of a cycle.

    sealed_data: the vault's ciphertext of the canonical JSON of `data` without the cvc.
    sealed_cvc: the ciphertext of the cvc until `cvc_until_ns`, then None (QUO-CVC).
    dedup_hash: keyed hash over all that D-DEDUP-KEY compares.
    index_hashes: keyed hashes of the values that `search_indexes` select.
    """

    id: str
    tenant_id: str
    type: str
    container: str
    created_by: str
    created_at_ns: int
    sealed_data: bytes
    dedup_hash: bytes
    mask: Mapping[str, Any] | None = None
    metadata: Mapping[str, str] | None = None
    search_indexes: tuple[str, ...] | None = None
    index_hashes: tuple[bytes, ...] = ()
    fingerprint: str | None = None
    fingerprint_expression: str | None = None
    sealed_cvc: bytes | None = None
    cvc_until_ns: int | None = None

    def __repr__(self) -> str:
        return f"<Token {self.id} of a {self.type} in {self.container}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows every field
        return [("id", self.id), ("type", self.type), ("container", self.container)]


@dataclass(frozen=True, slots=True)
class Intent:
    """A token intent: sealed data that a tokenize may consume until `until_ns` (QUO-INTENT)."""

    id: str
    tenant_id: str
    type: str
    created_by: str
    created_at_ns: int
    until_ns: int
    sealed_data: bytes = field(repr=False)
    mask: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The answer to a POST with an `Idempotency-Key`, kept until `until_ns` (D-IDEMPOTENCY).

    id and body_hash are keyed hashes: of who asked, where and with which key, and of the body.
    rights: those that the first answer needed, as `permission container`; entity_ids: what it
    shows.
    """

    id: str
    tenant_id: str
    body_hash: bytes = field(repr=False)
    status: int
    sealed_answer: bytes = field(repr=False)
    created_at_ns: int
    until_ns: int
    rights: tuple[str, ...] = ()
    entity_ids: tuple[str, ...] = ()


class LogEntry(Struct, frozen=True, gc=False):
    """What was done to what, by whom; never a value (D-LOGS). Untracked by the collector too."""

    id: str
    tenant_id: str
    at_ns: int
    operation: str
    entity_type: str
    entity_id: str
    actor_id: str | None
    status: int


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """A tenant's key pair for client-side encryption (D-ENCRYPTED); the private half is sealed."""

    id: str
    tenant_id: str
    algorithm: str
    public_jwk: Mapping[str, str]
    sealed_private: bytes = field(repr=False)
    created_at_ns: int = 0


@dataclass(frozen=True, slots=True)
class Reactor:
    """A reactor's definition: code and configuration, as the vault's ciphertexts.

    Code may hold passwords, as the configuration may (`engine.resources.reactors`).
    configured_by: the application that made it or changed it last (D-RIGHTS).
    """

    id: str
    tenant_id: str
    name: str
    sealed_code: bytes = field(repr=False)
    sealed_configuration: bytes = field(repr=False)
    created_by: str = ""
    created_at_ns: int = 0
    configured_by: str = ""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A pre-configured proxy. `key_hash` is of its proxy key; `host` a custom hostname.

    Its transforms are code, as the vault's ciphertexts. configured_by: the application that made it
    or changed it last, with whose rights it runs where it asks for no key (D-RIGHTS).
    """

    id: str
    tenant_id: str
    name: str
    destination_url: str
    require_auth: bool
    key_hash: bytes = field(repr=False)
    host: str | None = None
    sealed_request_transform: bytes | None = field(default=None, repr=False)
    sealed_response_transform: bytes | None = field(default=None, repr=False)
    created_by: str = ""
    created_at_ns: int = 0
    configured_by: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """An account-updater job: one per file (ACC-SPLIT).

    upload_hash: hash of the secret in `upload_url`, valid until `upload_until_ns`.
    """

    id: str
    tenant_id: str
    status: JobStatus
    created_by: str
    created_at_ns: int
    upload_until_ns: int
    upload_hash: bytes = field(repr=False)
    ends_at_ns: int | None = None


@dataclass(frozen=True, slots=True)
class JobResult:
    """The result of a job, under the job's id: made at the upload, shown at the end.

    sealed_content: the result file, or why the job fails, as a vault ciphertext. It stands apart
    from the job because it may hold tens of megabytes, and jobs are listed.
    """

    id: str
    tenant_id: str
    sealed_content: bytes = field(repr=False)
    created_at_ns: int = 0
