"""Pacing: keeps the suite below the limits that it does not want to reach.

The engine's own limiter models the deployment, with nine tenths of each limit, windows one second
longer, and no blocks. A request that it would refuse is delayed, or sent from another address. So
the rules of which request counts where exist only once. A deployment that counts differently still
answers 429 now and then; `CheckContext` then waits as `Retry-After` says and retries.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Sequence
from typing import Final

from conformance.messages.exchange import HttpRequest
from conformance.messages.shapes import SHAPES
from conformance.target import Source, Target, TargetKey
from engine import Limiter, LimitTable, Subject
from engine.files import Rate
from engine.limits import KeyIdentity, Match, Rule, TenantIdentity
from engine.model import ApplicationKind
from engine.profile import LimitsProfile

_SECOND_NS: Final = 1_000_000_000
_SLACK_NS: Final = _SECOND_NS
"""Added to each window, because latency and jitter move requests."""
_DEFAULT_SOURCE: Final = "default"


class Pacer:
    """Says from where, and when, a request may be sent. `admit` is safe to call from threads."""

    def __init__(self, target: Target, limits: LimitTable) -> None:
        self._target = target
        self._lock = threading.Lock()
        calm = LimitTable(
            tuple(
                dataclasses.replace(
                    rule,
                    action="throttle",
                    block_ns=None,
                    algorithm=None,
                    burst_requests=None,
                    rate=Rate(max(1, rule.limit_requests * 9 // 10), rule.window_ns + _SLACK_NS),
                )
                for rule in (*limits, *_own_rules(target))
                if not rule.shadow
            )
        )
        self._limiter = Limiter({"Default": calm}, LimitsProfile())
        self._turn = 0

    def admit(self, now_ns: int, ask: HttpRequest, sources: Sequence[Source]) -> tuple[Source, int]:
        """Return a source, and the nanoseconds until it may send: 0 where it may send now."""
        with self._lock:
            self._turn += 1
            best: tuple[int, Source] | None = None
            for step in range(len(sources)):
                source = sources[(self._turn + step) % len(sources)]
                decision = self._limiter.decide(now_ns, self._subject(ask, source))
                if decision.admitted:
                    return source, 0
                if best is None or decision.wait_ns < best[0]:
                    best = (decision.wait_ns, source)
            assert best is not None, "there is always a source to send from"
            return best[1], max(best[0], 1)

    def _subject(self, ask: HttpRequest, source: Source) -> Subject:
        key = self._target.key_labels.get(ask.key or "")
        identity = tenant = None
        if key is not None:
            owner = self._target.tenant_of(key)
            # A target does not say which keys share an application: those of one role may.
            application_id = f"{owner.name}/{key.role}"
            identity = KeyIdentity(
                str(ask.key), key.role == "legacy", application_id, application_kind(key)
            )
            tenant = TenantIdentity(owner.name, owner.kind, "Default")
        return Subject.of(
            ask.method,
            self._target.spelling.assumed(ask.method, ask.path).partition("?")[0],
            source or _DEFAULT_SOURCE,
            key=identity,
            tenant=tenant,
            proxy_key_id=ask.proxy_key,
            host_id=ask.host,
        )


class Traffic:
    """What each key and address has sent lately in probes, so that no other row is exceeded.

    The rows for any resource count what all probes send: by address, and by private key. measuring:
    the rows that are measured now; what one of them holds back, others on its address wait for too.
    """

    def __init__(self, limits: LimitTable) -> None:
        rows = [
            rule
            for rule in limits
            if rule.counter in {"ip", "key|ip"} and not rule.shadow and not rule.match.resource
        ]
        narrow = min(rows, key=lambda rule: rule.limit_requests / rule.window_ns, default=None)
        self._most = 0 if narrow is None else narrow.limit_requests * 7 // 10
        self._window_ns = 0 if narrow is None else narrow.window_ns
        self._sent: dict[str | None, list[tuple[int, int]]] = {}
        self.measuring: set[str] = set()

    def wait_ns(self, names: Sequence[str | None], size: int, now_ns: int) -> int:
        """Return how long these keys and addresses must wait before they send so many."""
        until_ns = now_ns
        for name in names if self._most else ():
            since_ns = now_ns - self._window_ns
            recent = [entry for entry in self._sent.get(name, ()) if entry[0] > since_ns]
            self._sent[name] = recent
            if recent and sum(count for _, count in recent) + size > self._most:
                until_ns = max(until_ns, recent[0][0] + self._window_ns)
        return until_ns - now_ns

    def note(self, names: Sequence[str | None], size: int, now_ns: int) -> None:
        """Note requests that are sent now."""
        for name in names:
            self._sent.setdefault(name, []).append((now_ns, size))


def _own_rules(target: Target) -> list[Rule]:
    """Return a rule for each operation that has a limit of its own here.

    The rule counts by key (of proxies by address), whatever the deployment counts by.
    """
    rules = []
    for name, shape in (target.requests or {}).items():
        if shape.limit is None:
            continue
        is_proxy = name == "invoke_proxy"
        resource = "ANY /proxy/*" if is_proxy else f"{SHAPES[name].method} {SHAPES[name].path}"
        rules.append(
            Rule(
                id="OWN-" + name.replace("_", "-").upper(),
                match=Match(resource=(resource,)),
                counter="ip" if is_proxy else "key",
                rate=shape.limit,
            )
        )
    return rules


def application_kind(key: TargetKey) -> ApplicationKind:
    """Return the kind of application that a key of this role belongs to."""
    if key.role == "public":
        return "public"
    return "management" if key.role == "management" else "private"
