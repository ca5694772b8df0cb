"""The summary of a replayed log: its source, its content, and what was left out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from simulator.replaying._arrivals import Arrivals
from simulator.traffic.logs import LogStream

__all__ = ["log_summary", "run_name"]


def log_summary(log: LogStream, arrivals: Arrivals) -> dict[str, Any]:
    """Return what a summary says of the log that was replayed."""
    parties = arrivals.parties
    return {
        "log": log.name,
        "format": log.format,
        "requests": len(arrivals),
        "unparsed": log.unparsed,
        "unparsed_first": list(log.unparsed_first),
        "log_start": _utc(arrivals.start_ns),
        "log_end": _utc(arrivals.end_ns),
        "log_span_ns": arrivals.end_ns - arrivals.start_ns,
        "addresses": len(parties.ip.texts),
        "keys": len(set(parties.key.texts)),
    }


def _utc(at_ns: int) -> str:
    seconds, rest_ns = divmod(at_ns, 10**9)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    fraction = f".{rest_ns:09d}".rstrip("0") if rest_ns else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def run_name(log_name: str) -> str:
    """Return the log's name without what says how it is written."""
    return log_name.removesuffix(".gz").rsplit(".", 1)[0] or log_name
