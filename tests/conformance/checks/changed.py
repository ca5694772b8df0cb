"""One check before one deployment whose answers, or requests, are changed on the way.

The engine behind it is the reference; a change of what a check sees stands for a deployment that
does so. `judged` runs a check as a run would, without preflight: so a check must hold off a
hopeless deployment by itself.
"""

from __future__ import annotations

from collections.abc import Callable

from conformance.context.check import Check, all_checks
from conformance.context.context import CheckContext
from conformance.context.session import Session
from conformance.context.verdicts import Finding
from conformance.messages.exchange import HttpRequest
from conformance.runner.outcome import judge
from conformance.wire.in_process import Deployment, deploy
from conformance.wire.transport import Answer, EngineTransport, Place
from engine import Profile

__all__ = ["Change", "Changed", "Redirect", "bench_of", "clause_checks", "judged", "judged_of"]

Change = Callable[[HttpRequest, Answer], Answer]
Redirect = Callable[[HttpRequest], HttpRequest]


class Changed(EngineTransport):
    """Straight into an engine, with a change of each request and of each answer."""

    def __init__(
        self,
        deployment: Deployment,
        change: Change | None = None,
        redirect: Redirect | None = None,
    ) -> None:
        super().__init__(deployment.engine, deployment.target)
        self._change = change
        self._redirect = redirect

    async def send(self, ask: HttpRequest, place: Place) -> Answer:
        """Send as the redirect says, return what the change makes of the answer."""
        sent = ask if self._redirect is None else self._redirect(ask)
        answer = await super().send(sent, place)
        return answer if self._change is None else self._change(ask, answer)


def clause_checks() -> dict[str, Check]:
    """Return the checks of `conformance.checks`, those of limits aside."""
    return {
        name: check
        for name, check in all_checks().items()
        if check.judge.__module__.startswith(("conformance.checks.", "conformance.model."))
        and not check.judge.__module__.startswith("conformance.checks.limits")
    }


def judged(
    check_id: str,
    change: Change | None = None,
    redirect: Redirect | None = None,
    *,
    profile: Profile | None = None,
) -> list[Finding]:
    """Return what a check finds about a deployment that is changed so."""
    return judged_of(bench_of(check_id, change, redirect, profile=profile))


def judged_of(ctx: CheckContext) -> list[Finding]:
    """Return what the check of a context finds."""
    found: list[Finding] = ctx.transport.run([judge(ctx)])[0]
    return found


def bench_of(
    check_id: str,
    change: Change | None = None,
    redirect: Redirect | None = None,
    *,
    profile: Profile | None = None,
) -> CheckContext:
    """Return the context of a check before a deployment that is changed so."""
    deployment = deploy(profile=profile, keys_a_role=2)
    transport = Changed(deployment, change, redirect)
    session = Session(deployment.target, transport, seed=3)
    return CheckContext(all_checks()[check_id], session)
