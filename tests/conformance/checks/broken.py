"""One check before one deployment whose answers, or requests, are changed on the way.

The engine behind it is the reference; a change of what a check sees stands for a deployment that
does so. `judged` runs a check as a run would, without preflight: so a check must hold off a
hopeless deployment by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from conformance.runner.bench import Bench
from conformance.runner.outcome import judge_one, judge_side_by_side
from conformance.runner.registry import Check, all_checks
from conformance.runner.session import Session
from conformance.runner.verdicts import Finding, Verdict
from conformance.wire.exchange import Ask
from conformance.wire.in_process import Deployment, deploy, secrets_of
from conformance.wire.transport import Answer, EngineTransport, Place
from engine import Engine, Profile, Request, Response
from engine.hosts import EXAMPLE_SUFFIXES
from engine.model import QuotaValue, Tenant, TenantKind

__all__ = [
    "Broken",
    "Change",
    "PartlyCreating",
    "Redirect",
    "SixAtMost",
    "bench_of",
    "changed_json",
    "clause_checks",
    "judged",
    "verdicts",
]

Change = Callable[[Ask, Answer], Answer]
Redirect = Callable[[Ask], Ask]


class Broken(EngineTransport):
    """Straight into an engine, with a change of each request and of each answer."""

    def __init__(
        self,
        deployment: Deployment,
        change: Change | None = None,
        redirect: Redirect | None = None,
    ) -> None:
        texts, hosts = secrets_of(deployment.target)
        super().__init__(deployment.engine, texts, hosts=hosts)
        self._change = change
        self._redirect = redirect

    async def send(self, ask: Ask, place: Place) -> Answer:
        """Send as the redirect says, return what the change makes of the answer."""
        sent = ask if self._redirect is None else self._redirect(ask)
        answer = await super().send(sent, place)
        return answer if self._change is None else self._change(ask, answer)


def clause_checks() -> dict[str, Check]:
    """Return the checks of `conformance.checks`, those of limits aside."""
    return {
        name: check
        for name, check in all_checks().items()
        if check.judge.__module__.startswith("conformance.checks.")
        and not check.judge.__module__.startswith("conformance.checks.limits")
    }


def judged(
    check_id: str,
    change: Change | None = None,
    redirect: Redirect | None = None,
    *,
    profile: Profile | None = None,
    told: Profile | None = None,
    engine: type[Engine] = Engine,
    seed: int = 3,
) -> list[Finding]:
    """Return what a check finds about a deployment that is changed so."""
    bench = bench_of(
        check_id, change, redirect, profile=profile, told=told, engine=engine, seed=seed
    )
    if bench.check.is_side_by_side:
        found: list[Finding] = bench.transport.run([judge_side_by_side(bench)])[0]
        return found
    return judge_one(bench)


def bench_of(
    check_id: str,
    change: Change | None = None,
    redirect: Redirect | None = None,
    *,
    profile: Profile | None = None,
    told: Profile | None = None,
    engine: type[Engine] = Engine,
    seed: int = 3,
) -> Bench:
    """Return the bench of a check before a deployment that is changed so."""
    deployment = deploy(profile=profile, engine=engine, keys_a_role=2)
    transport = Broken(deployment, change, redirect)
    session = Session(deployment.target, transport, seed=seed, profile=told)
    return Bench(all_checks()[check_id], session)


def verdicts(findings: list[Finding], clause: str) -> set[Verdict]:
    """Return the verdicts on one clause."""
    return {finding.verdict for finding in findings if finding.clause == clause}


def changed_json(answer: Answer, change: Callable[[Any], Any]) -> Answer:
    """Return an accepted answer with its JSON changed; any other answer as it is."""
    if answer.status is None or not 200 <= answer.status < 300 or not answer.body:
        return answer
    try:
        body = change(json.loads(answer.body))
    except ValueError:
        return answer
    raw = json.dumps(body, ensure_ascii=False).encode()
    return Answer(answer.sent_ns, answer.received_ns, answer.status, answer.headers, raw)


class PartlyCreating(Engine):
    """Creates the valid parts of a tokenize that it refuses, one after the other."""

    async def submit(self, request: Request) -> Response:
        """Answer, and leave behind what should not be there."""
        response = await super().submit(request)
        if request.path != "/tokenize" or response.status < 400 or not request.body:
            return response
        body = json.loads(request.body) if isinstance(request.body, bytes) else request.body
        for part in _parts(body):
            again = Request(
                "POST", "/tokenize", key=request.key, ip=request.ip, headers=None, body=[part]
            )
            await super().submit(again)
        return response


def _parts(body: Any) -> list[Any]:  # reason: any JSON
    if isinstance(body, str) or (isinstance(body, dict) and "type" in body):
        return [body]
    inner = body.values() if isinstance(body, dict) else body if isinstance(body, list) else ()
    return [part for one in inner for part in _parts(one)]


class SixAtMost(Engine):
    """Allows one token more than the quota, and knows no shorter retention than the default."""

    def create_tenant(
        self,
        name: str,
        kind: TenantKind = "production",
        *,
        quotas: Mapping[str, QuotaValue] | None = None,
        settings: Mapping[str, bool] | None = None,
        host_suffixes: Iterable[str] = EXAMPLE_SUFFIXES,
    ) -> Tenant:
        """Create a tenant with quotas of our own."""
        del quotas
        wrong: dict[str, QuotaValue] = {"Tokenize Limit": 6, "Detokenize Limit": 6}
        return super().create_tenant(
            name, kind, quotas=wrong, settings=settings, host_suffixes=host_suffixes
        )
