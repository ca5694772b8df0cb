"""The rate-limit header fields of an answer (D-429-HEADERS)."""

from __future__ import annotations

from engine.limits import Headroom
from engine.profile import HttpProfile

__all__ = ["rate_fields"]


def rate_fields(
    headers: dict[str, str], headroom: Headroom | None, profile: HttpProfile, *, refused: bool
) -> None:
    """Add `Retry-After` (when refused), `RateLimit-Policy` and `RateLimit` to the headers."""
    if headroom is None:
        return
    if refused and profile.retry_after:
        headers["Retry-After"] = str(headroom.retry_after_s)
    if profile.rate_limit_fields:
        headers["RateLimit-Policy"] = (
            f'"{headroom.rule}";q={headroom.limit_requests};w={headroom.window_s}'
        )
        headers["RateLimit"] = (
            f'"{headroom.rule}";r={headroom.remaining_requests};t={headroom.reset_s}'
        )
