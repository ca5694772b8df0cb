"""The tables of a SQLite store, and how a file is identified as one.

Ciphertexts have a table of their own. SQLite's `secure_delete` overwrites deleted data, but when
SQLite moves rows between pages to balance a tree, it leaves copies that are never overwritten. So
ciphertexts are in cells of the table `sealed` that never move: rows are only appended, and a cell
is rewritten in place with the same length (`sqlite_slots`). Every `sealed_*` column holds the
number of such a slot.
"""

# ruff: noqa: S608  # reason: names of tables and columns are constants here

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

__all__ = ["APPLICATION_ID", "FIRST_SEALED", "SCHEMA", "UPGRADES", "VERSION"]

APPLICATION_ID: Final = 0x544F4C47
"""`TOLG`: the `PRAGMA application_id` of our files."""

VERSION: Final = 7
"""The `PRAGMA user_version`: the version of a file's tables."""

_TABLES: Final = """
-- Changes of documents (for the copies in other processes), and each tenant's tokens.
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('documents', 0);
CREATE TABLE sealed (slot INTEGER PRIMARY KEY, cell BLOB NOT NULL);
CREATE TABLE free_slots (
    size_bytes INTEGER, slot INTEGER, PRIMARY KEY (size_bytes, slot)
) WITHOUT ROWID;
CREATE TABLE tenants (
    id TEXT PRIMARY KEY, name TEXT, kind TEXT, quotas TEXT, settings TEXT,
    created_at_ns INTEGER, host_suffixes TEXT, mac BLOB
);
CREATE TABLE applications (
    id TEXT PRIMARY KEY, tenant_id TEXT, name TEXT, kind TEXT, grants TEXT,
    created_at_ns INTEGER, origins TEXT, mac BLOB
);
CREATE INDEX applications_listed ON applications (tenant_id, created_at_ns, id);
CREATE TABLE api_keys (
    id TEXT PRIMARY KEY, tenant_id TEXT, application_id TEXT, legacy INTEGER,
    text_hash BLOB UNIQUE, created_at_ns INTEGER, mac BLOB
);
CREATE INDEX api_keys_listed ON api_keys (tenant_id, created_at_ns, id);
CREATE TABLE encryption_keys (
    id TEXT PRIMARY KEY, tenant_id TEXT, algorithm TEXT, public_jwk TEXT,
    sealed_private INTEGER, created_at_ns INTEGER, mac BLOB
);
CREATE INDEX encryption_keys_listed ON encryption_keys (tenant_id, created_at_ns, id);
CREATE TABLE reactors (
    id TEXT PRIMARY KEY, tenant_id TEXT, name TEXT, sealed_code INTEGER,
    sealed_configuration INTEGER, created_by TEXT, created_at_ns INTEGER, mac BLOB
);
CREATE INDEX reactors_listed ON reactors (tenant_id, created_at_ns, id);
CREATE TABLE proxies (
    id TEXT PRIMARY KEY, tenant_id TEXT, name TEXT, destination_url TEXT,
    require_auth INTEGER, key_hash BLOB UNIQUE, host TEXT UNIQUE,
    sealed_request_transform INTEGER, sealed_response_transform INTEGER,
    created_by TEXT, created_at_ns INTEGER, mac BLOB
);
CREATE INDEX proxies_listed ON proxies (tenant_id, created_at_ns, id);
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, tenant_id TEXT, status TEXT, created_by TEXT,
    created_at_ns INTEGER, upload_until_ns INTEGER, upload_hash BLOB, ends_at_ns INTEGER, mac BLOB
);
CREATE INDEX jobs_listed ON jobs (tenant_id, created_at_ns, id);
CREATE TABLE job_results (
    id TEXT PRIMARY KEY, tenant_id TEXT, sealed_content INTEGER, created_at_ns INTEGER, mac BLOB
);
CREATE INDEX job_results_listed ON job_results (tenant_id, created_at_ns, id);
CREATE TABLE intents (
    id TEXT PRIMARY KEY, tenant_id TEXT, type TEXT, created_by TEXT, created_at_ns INTEGER,
    until_ns INTEGER, sealed_data INTEGER, mask TEXT, mac BLOB
);
CREATE INDEX intents_listed ON intents (tenant_id, created_at_ns, id);
CREATE INDEX intents_due ON intents (until_ns);
CREATE TABLE kept_answers (
    id TEXT PRIMARY KEY, tenant_id TEXT, body_hash BLOB, status INTEGER,
    sealed_answer INTEGER, created_at_ns INTEGER, until_ns INTEGER, mac BLOB
);
CREATE INDEX kept_answers_listed ON kept_answers (tenant_id, created_at_ns, id);
CREATE INDEX kept_answers_due ON kept_answers (until_ns);
-- Rows of tokens are appended; what is looked up at random stands in the indices.
CREATE TABLE tokens (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, tenant_id TEXT NOT NULL, type TEXT,
    container TEXT, created_by TEXT, created_at_ns INTEGER, sealed_data INTEGER,
    dedup_hash BLOB, mask TEXT, metadata TEXT, search_indexes TEXT, index_hashes TEXT,
    fingerprint TEXT, fingerprint_expression TEXT, sealed_cvc INTEGER, cvc_until_ns INTEGER
);
CREATE UNIQUE INDEX tokens_by_id ON tokens (tenant_id, id);
CREATE INDEX tokens_listed ON tokens (tenant_id, created_at_ns, id);
CREATE INDEX tokens_equal ON tokens (tenant_id, dedup_hash, created_at_ns, id);
CREATE INDEX tokens_due ON tokens (cvc_until_ns) WHERE cvc_until_ns IS NOT NULL;
CREATE TABLE token_terms (
    tenant_id TEXT, term BLOB, created_at_ns INTEGER, id TEXT,
    PRIMARY KEY (tenant_id, term, created_at_ns, id)
) WITHOUT ROWID;
CREATE TABLE logs (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, tenant_id TEXT NOT NULL, at_ns INTEGER,
    operation TEXT, entity_type TEXT, entity_id TEXT, actor_id TEXT, status INTEGER
);
CREATE UNIQUE INDEX logs_by_id ON logs (tenant_id, id);
CREATE INDEX logs_listed ON logs (tenant_id, at_ns);
CREATE INDEX logs_by_entity ON logs (tenant_id, entity_id, at_ns);
CREATE INDEX logs_by_type ON logs (tenant_id, entity_type, at_ns);
CREATE TABLE secrets (name TEXT PRIMARY KEY, sealed INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE work (
    id TEXT PRIMARY KEY, tenant_id TEXT, at_ns INTEGER, operation TEXT, entity_type TEXT,
    entity_id TEXT, actor_id TEXT, status INTEGER, owner TEXT
);
"""

SCHEMA: Final = (
    *(statement for statement in _TABLES.split(";\n") if statement.strip()),
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)
"""The statements that make an empty file a store, in one transaction."""

_GUARDED: Final = (
    "tenants",
    "applications",
    "api_keys",
    "encryption_keys",
    "reactors",
    "proxies",
    "jobs",
    "job_results",
    "intents",
    "kept_answers",
)


def _moved(table: str, column: str) -> Iterator[str]:
    """Yield statements that move a text into a cell in the clear; the engine seals it at its start.

    `plain_cell` is the session's. The slots come after the last one, in the order of the rows.
    """
    numbered = (
        f"SELECT id, (SELECT coalesce(max(slot), 0) FROM sealed) + row_number() OVER (ORDER BY id)"
        f" AS slot, {column} AS text FROM {table} WHERE {column} IS NOT NULL"
    )
    yield f"CREATE TEMP TABLE moved AS {numbered}"
    yield "INSERT INTO sealed (slot, cell) SELECT slot, plain_cell(text) FROM moved"
    yield (
        f"UPDATE {table} SET sealed_{column} = (SELECT slot FROM moved WHERE moved.id = {table}.id)"
    )
    yield "DROP TABLE moved"
    yield f"ALTER TABLE {table} DROP COLUMN {column}"


FIRST_SEALED: Final = 7
"""Stores of older versions held code in the clear; once upgraded they are written out anew."""

UPGRADES: Final[Mapping[int, tuple[str, ...]]] = {
    1: (
        """CREATE TABLE job_results (
            id TEXT PRIMARY KEY, tenant_id TEXT, sealed_content INTEGER, created_at_ns INTEGER
        )""",
        "CREATE INDEX job_results_listed ON job_results (tenant_id, created_at_ns, id)",
        """INSERT INTO job_results SELECT id, tenant_id, sealed_result, created_at_ns FROM jobs
        WHERE sealed_result IS NOT NULL""",
        "ALTER TABLE jobs DROP COLUMN sealed_result",
        "ALTER TABLE work ADD COLUMN owner TEXT",
        "PRAGMA user_version = 2",
    ),
    2: (
        "ALTER TABLE work ADD COLUMN entity_type TEXT",
        "ALTER TABLE work ADD COLUMN entity_id TEXT",
        "ALTER TABLE work ADD COLUMN actor_id TEXT",
        "ALTER TABLE work ADD COLUMN status INTEGER",
        "UPDATE work SET entity_type = 'work', entity_id = id, status = 500",
        "PRAGMA user_version = 3",
    ),
    3: (
        "ALTER TABLE tenants ADD COLUMN host_suffixes TEXT",
        "PRAGMA user_version = 4",
    ),
    4: (
        """CREATE TABLE kept_answers (
            id TEXT PRIMARY KEY, tenant_id TEXT, body_hash BLOB, status INTEGER,
            sealed_answer INTEGER, created_at_ns INTEGER, until_ns INTEGER
        )""",
        "CREATE INDEX kept_answers_listed ON kept_answers (tenant_id, created_at_ns, id)",
        "CREATE INDEX kept_answers_due ON kept_answers (until_ns)",
        "PRAGMA user_version = 5",
    ),
    5: (
        "ALTER TABLE applications ADD COLUMN origins TEXT",
        "PRAGMA user_version = 6",
    ),
    6: (
        *(f"ALTER TABLE {table} ADD COLUMN mac BLOB" for table in _GUARDED),
        "ALTER TABLE reactors ADD COLUMN sealed_code INTEGER",
        "ALTER TABLE reactors ADD COLUMN sealed_configuration INTEGER",
        "ALTER TABLE proxies ADD COLUMN sealed_request_transform INTEGER",
        "ALTER TABLE proxies ADD COLUMN sealed_response_transform INTEGER",
        *_moved("reactors", "code"),
        *_moved("reactors", "configuration"),
        *_moved("proxies", "request_transform"),
        *_moved("proxies", "response_transform"),
        "PRAGMA user_version = 7",
    ),
}
"""The statements that upgrade a store by one version, in one transaction."""
