"""The rate-limit header fields of an answer (D-429-HEADERS)."""

from __future__ import annotations

from functools import lru_cache

from engine.limits import Headroom
from engine.messages import Decision
from engine.profile import HttpProfile

__all__ = ["rate_fields"]


def rate_fields(
    headroom: Headroom | None, profile: HttpProfile, decision: Decision
) -> dict[str, str]:
    """Return `Retry-After` (when refused), `RateLimit-Policy` and `RateLimit`."""
    if headroom is None:
        return {}
    headers = {}
    if decision.refusing and profile.retry_after:
        headers["Retry-After"] = str(headroom.retry_after_s)
    if profile.rate_limit_fields:
        headers["RateLimit-Policy"], headers["RateLimit"] = _texts(headroom)
    return headers


@lru_cache(maxsize=4096)  # most headrooms repeat
def _texts(headroom: Headroom) -> tuple[str, str]:
    """Return the values of `RateLimit-Policy` and `RateLimit`."""
    rule = headroom.rule
    return (
        _policy(rule, headroom.limit_requests, headroom.window_ns),
        f'"{rule}";r={headroom.remaining_requests};t={headroom.reset_s}',
    )


@lru_cache(maxsize=256)
def _policy(rule: str, limit_requests: int, window_ns: int) -> str:
    return f'"{rule}";q={limit_requests};w={-(-window_ns // 1_000_000_000)}'
