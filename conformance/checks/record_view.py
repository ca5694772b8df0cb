"""D-RECORD-VIEW: what a key without token:read sees of a stored record outside of deduplication."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from conformance.bench import Bench
from conformance.checks._common import informs, reads, ready, record_of, spread_key, token, tokenize
from conformance.registry import check
from conformance.verdicts import Finding

__all__: list[str] = []

_MERGE_PATCH: Final = {"Content-Type": "application/merge-patch+json"}


@check(
    "record.view",
    "REC-DEDUP-REDACT",
    accepts="metadata shown or left out: a reading",
    roles=("private_prod",),
    requests=3,
)
def view(bench: Bench) -> Iterator[Finding]:
    """Whether a patched record shows its metadata to a key that may not read."""
    key = spread_key(bench, "private_prod")
    ready(bench, key)
    made = tokenize(bench, token(bench, "view", metadata={"note": "one"}), key)
    values = {"id": record_of(made)["id"], "value": "two"}
    patched = bench.call("patch", values, key=key, headers=_MERGE_PATCH)
    try:
        record = patched.json if patched.ok else None
    except ValueError:
        record = None
    if not isinstance(record, dict) or "id" not in record:
        says = f"PATCH shows no record to a key that may not read: {patched.status}"
        yield informs(bench, "REC-DEDUP-REDACT", says, made, patched)
        return
    seen = "metadata" if "metadata" in record else "redacted"
    yield reads(bench, "REC-DEDUP-REDACT", "tokens.record_view", seen, made, patched)
