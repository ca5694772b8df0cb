"""Section 4.1: what answers are made of, reviewed over all that the run has received.

The model cannot show it: it reads answers as lenient clients do, and compares what they mean.
"""

from __future__ import annotations

from conformance.context.check import check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding
from conformance.messages.exchange import Exchange, json_fault


@check(
    "answers.json",
    "TOK-JSON",
    accepts="JSON as RFC 8259 defines it: UTF-8, no byte order mark, no NaN, unique names",
    requests=1,
    load="closing",
    beside=("TOK-JSON",),
)
async def json_answers(ctx: CheckContext) -> list[Finding]:
    """The answers to accepted tokenize requests are JSON that every reader reads alike."""
    await ctx.ready_key("private_prod")
    path = ctx.target.shape("tokenize").path
    answers = [
        exchange
        for exchange in ctx.session.settled_exchanges()
        if exchange.ok and exchange.body and exchange.ask.path == path
    ]
    faults: dict[str, list[Exchange]] = {}
    for exchange in answers:
        fault = json_fault(exchange.body)
        if fault is not None:
            faults.setdefault(fault.partition(":")[0], []).append(exchange)
    findings = [
        ctx.fails(
            "TOK-JSON",
            f"{len(exchanges)} of {len(answers)} answers must be strict JSON; {fault}",
            *exchanges[:2],
        )
        for fault, exchanges in faults.items()
    ]
    if answers and not faults:
        message = f"{len(answers)} answers are strict JSON"
        findings.append(ctx.passes("TOK-JSON", message, answers[-1]))
    return findings
