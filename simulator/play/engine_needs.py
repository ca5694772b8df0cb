"""Which scenarios need the whole engine.

Without bodies nothing is created, so nothing can be invalid, missing or beyond a token quota: only
the limits decide. Where something else affects a decision, a fidelity without bodies would decide
differently, so it must not run; this module returns the reason.
"""

from __future__ import annotations

from engine.profile import Profile
from simulator.scenario import Scenario
from simulator.scenario.clients import Ask, NoRetry


def needs_bodies(scenario: Scenario, profile: Profile) -> str | None:
    """Return what in the scenario needs bodies, as part of a sentence; None when nothing does."""
    if profile.limits.counted_statuses == "success":
        return 'the profile\'s counted_statuses = "success" counts by what a body answers'
    played = {429, 408, 502, profile.outside.reactor_timeout_status}
    plain = {
        app.name for app in scenario.applications if app.grants is None and app.kind != "public"
    }
    for group in scenario.clients:
        where = f"clients.{group.name}"
        retry = group.retry
        if not isinstance(retry, NoRetry) and set(retry.statuses) - played:
            return f"{where}.retry.on retries what only a body answers"
        for ask in group.mix:
            if _too_large(scenario, profile, ask):
                return f"{where} sends what is too large for what it invokes"
            behind = ask.reactor or ask.proxy or ask.is_job
            if behind and not plain.issuperset(group.applications):
                return f"{where} may lack a right, which its application's grants decide"
    return None


def _too_large(scenario: Scenario, profile: Profile, ask: Ask) -> bool:
    outside = profile.outside
    if ask.reactor is not None:
        return ask.size_bytes > outside.reactor_payload_limit_bytes
    proxy = scenario.proxy_of(ask)
    if proxy is None:
        return False
    transforms = proxy.request_transform is not None or proxy.response_transform is not None
    limit_bytes = (
        outside.reactor_payload_limit_bytes if transforms else profile.http.proxy_body_limit_bytes
    )
    return ask.size_bytes > limit_bytes
