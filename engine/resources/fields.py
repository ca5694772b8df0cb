"""The rate-limit header fields of an answer (D-429-HEADERS)."""

from __future__ import annotations

from functools import lru_cache

from engine.limits import Headroom
from engine.profile import HttpProfile

__all__ = ["rate_fields"]


def rate_fields(
    headroom: Headroom | None,
    profile: HttpProfile,
    refused: bool,  # noqa: FBT001 # reason: the hot path calls by position
) -> dict[str, str]:
    """Return `Retry-After` (when refused), `RateLimit-Policy` and `RateLimit`."""
    if headroom is None:
        return {}
    headers = {}
    if refused and profile.retry_after:
        headers["Retry-After"] = str(headroom.retry_after_s)
    if profile.rate_limit_fields:
        rule = headroom.rule
        headers["RateLimit-Policy"] = _policy(rule, headroom.limit_requests, headroom.window_ns)
        headers["RateLimit"] = f'"{rule}";r={headroom.remaining_requests};t={headroom.reset_s}'
    return headers


@lru_cache(maxsize=256)
def _policy(rule: str, limit_requests: int, window_ns: int) -> str:
    return f'"{rule}";q={limit_requests};w={-(-window_ns // 1_000_000_000)}'
