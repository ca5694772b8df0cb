"""Judges every tokenize answer of a run once more, to find faults that show only sometimes.

Each check sends a request once or twice. Most checks miss a fault that shows in two answers of a
hundred, and a check that meets it takes it for another fault. So here all answers that the earlier
checks received are judged alike: does the answer mirror the body, and are the records sound? A
request that was answered wrongly is sent again; if the answer is then right, that and the number
of wrong answers are reported. Where values can be read back, a sample of the plain strings is: each
token must hold its own string.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from conformance.checks._oracle import SHAPES, Contradiction, answer_faults
from conformance.context.answers import elements, is_refused, is_request, parts
from conformance.context.check import Inconclusive, Skip, check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding, Symptom
from conformance.messages.exchange import Exchange, KeyLabel, parsed
from conformance.model.blame import shape_clause, shapes_in
from engine.messages import Json

_RECORDS: Final = (
    "REC-ID",
    "REC-EXTRAS",
    "REC-CARD-MASK",
    "REC-TOKEN-DATA",
    "REC-METADATA",
    "REC-INDEXES",
)
_DEPTH: Final = 8
"""A body that is nested deeper may be refused."""
_AGAIN: Final = 3
_READ_BACK: Final = 160
"""How many plain strings are read back."""
_ALONE: Final = 15
"""How many of them are read back one by one."""
_TYPES: Final = ("token", "card")


@dataclass(slots=True)
class _ClauseAnswers:
    """What was seen of one clause: how many answers, which were wrong, and how."""

    total: int = 0
    right: Exchange | None = None
    wrong: list[Exchange] = field(default_factory=list)
    faults: Counter[Contradiction] = field(default_factory=Counter)


def _check_specified(body: Json) -> None:
    """Raise `ValueError` if the specification does not say what the answer to a body must be."""
    is_of_other_type = is_request(body) and body["type"] not in _TYPES
    if is_of_other_type or not isinstance(body, str | dict | list):
        raise ValueError
    for one in parts(body):
        _check_specified(one)


def _clauses_of(body: Json) -> set[str]:
    """Return the clauses that the answer to a body shows."""
    found = set(shapes_in(body))
    if "TOK-OBJECT" in found:
        found |= set(_RECORDS)
    return found | ({"REC-ID"} if "TOK-LEAF" in found else set())


def _body_of(exchange: Exchange) -> Json:
    body = exchange.ask.body
    found: Json = parsed(body) if isinstance(body, bytes) else body
    return found


def _exchange_faults(exchange: Exchange) -> Iterator[Contradiction]:
    """Yield what is wrong with the answer to an accepted tokenize request, or with a 5xx.

    Raises `ValueError` where the specification does not say what the answer must be.
    """
    body = _body_of(exchange)
    _check_specified(body)
    if exchange.status is not None and exchange.status >= 500:  # reason: the service's own fault
        yield Contradiction(shape_clause(body), f"answered {exchange.status}", symptom="crashed")
        return
    if not exchange.ok or not isinstance(body, dict | list):
        raise ValueError
    try:
        answer = exchange.json
    except ValueError:
        yield Contradiction(shape_clause(body), "the answer is not JSON")
        return
    yield from answer_faults(body, answer)


def _strings(exchange: Exchange) -> Iterator[tuple[str, Json]]:
    """Yield each plain string of a body with its part of the answer."""
    pairs = elements(_body_of(exchange), exchange.json)
    return (pair for pair in pairs if isinstance(pair[0], str))


def _is_plainly_valid(ctx: CheckContext, exchange: Exchange) -> bool:
    """Whether every service must accept this body with its key."""
    body, key = exchange.ask.body, exchange.ask.key
    if key is None or key not in ctx.target.key_labels or exchange.ask.headers:
        return False
    if not isinstance(body, dict | list):
        return False
    if not ctx.target.may(key, "token:create"):
        return False
    leaves = list(_leaves(body, _DEPTH))
    return None not in leaves and 1 <= len(leaves) <= ctx.quota("Tokenize Limit", key)


def _leaves(body: Json, depth: int) -> Iterator[str | None]:
    """Yield the values of a body of plain strings and plain tokens; None for anything else."""
    if isinstance(body, dict) and body.keys() == {"type", "data"} and body["type"] == "token":
        body = body["data"]
        yield body if isinstance(body, str) and body else None
    elif isinstance(body, str):
        yield body or None
    elif depth and parts(body):
        for one in parts(body):
            yield from _leaves(one, depth - 1)
    else:
        yield None


def _faults(ctx: CheckContext, exchange: Exchange) -> Iterator[Contradiction]:
    is_refused_here = is_refused(exchange) and exchange.status not in {401, 403}
    if is_refused_here and _is_plainly_valid(ctx, exchange):
        message = f"a valid body is refused with {exchange.status}"
        yield Contradiction(shape_clause(_body_of(exchange)), message, symptom="refused")
        return
    yield from _exchange_faults(exchange)


@check(
    "tokenize.steady",
    *SHAPES,
    "TOK-LEAF",
    *_RECORDS,
    accepts="every answer of the run mirrors its body and has sound records",
    requests=4 * _AGAIN,
    load="closing",
)
def steady(ctx: CheckContext) -> Iterator[Finding]:
    """Every tokenize answer that earlier checks received is right, and stays so."""
    seen: dict[str, _ClauseAnswers] = {clause: _ClauseAnswers() for clause in ctx.check.clauses}
    for exchange in ctx.session.settled_exchanges():
        found = ctx.target.spelling.operation(exchange.ask.method, exchange.ask.path)
        if found is None or found[0] != "tokenize":
            continue
        try:
            clauses = _clauses_of(_body_of(exchange))
            faults = {fault.clause: fault for fault in _faults(ctx, exchange)}
        except (ValueError, RecursionError):
            continue
        for clause in clauses & seen.keys():
            seen[clause].total += 1
            if clause not in faults:
                seen[clause].right = exchange
        for clause, fault in faults.items():
            if clause in seen:
                seen[clause].wrong.append(exchange)
                seen[clause].faults[fault._replace(place="")] += 1
    for clause, one in seen.items():
        yield _judged(ctx, clause, one)


def _judged(ctx: CheckContext, clause: str, seen: _ClauseAnswers) -> Finding:
    if not seen.wrong:
        if seen.right is None:
            return ctx.informs(clause, "no answer of the run shows this")
        return ctx.passes(clause, f"{seen.total} answers of the run were right", seen.right)
    wrong, fault = len(seen.wrong), seen.faults.most_common(1)[0][0]
    message, symptoms = fault.message, fault.symptoms()
    shown = seen.wrong[:_AGAIN]
    again = [one for one in (_again(ctx, exchange) for exchange in shown) if one is not None]
    if not again:
        return ctx.informs(clause, f"{message}, in {wrong} answers: see the other checks", *shown)
    if not any(_is_wrong(ctx, one, clause) for one in again):
        told = f"{message}: in {wrong} of {seen.total} answers, and right when sent again"
        symptoms = (*symptoms, "once")
        return ctx.fails(clause, told, *shown, *again, symptoms=symptoms, place=message)
    told = f"{message}; the same when sent again"
    return ctx.fails(clause, told, *shown, *again, symptoms=symptoms)


def _again(ctx: CheckContext, exchange: Exchange) -> Exchange | None:
    """Send the same request again, with a permitted key; None if that is not possible."""
    ask = exchange.ask
    key = ask.key if ask.key in ctx.target.key_labels else ctx.spread_key("private_prod")
    try:
        return ctx.ask(ask.method, ask.path, ask.body, key=key, headers=ask.headers, retry=False)
    except (Inconclusive, Skip):
        return None


def _is_wrong(ctx: CheckContext, exchange: Exchange, clause: str) -> bool:
    try:
        return any(fault.clause == clause for fault in _faults(ctx, exchange))
    except ValueError:
        return False


# --- values read back ---------------------------------------------------------------------------

_Stored = tuple[str, str, Exchange]
"""An identifier, the string that it stands for, and the exchange that shows it."""


@check(
    "tokenize.read-back",
    "TOK-LEAF",
    "TOK-PLAIN",
    "TOK-ARRAY",
    "TOK-COMPOSITE",
    accepts="every identifier of the run belongs to the string at its place",
    roles=("private_reader",),
    requests=_READ_BACK // 4 + _ALONE,
    load="closing",
    is_extra=True,
)
def read_back(ctx: CheckContext) -> Iterator[Finding]:
    """Strings that earlier checks stored are read back, up to a number, and compared."""
    key = ctx.spread_key("private_reader")
    most = ctx.quota("Detokenize Limit", key)
    stored = _stored(ctx, key)[: most * (_READ_BACK // 5)]
    seen: list[tuple[_Stored, str | None]] = []
    alone = _ALONE
    for start in range(0, len(stored), most):
        part = stored[start : start + most]
        values = _values(ctx, key, part)
        if values:
            seen += zip(part, values, strict=True)
        elif not seen:
            break  # nothing can be read back here
        elif alone >= len(part):
            # One of them is unknown: read each alone to find which.
            alone -= len(part)
            seen += [(one, (_values(ctx, key, [one]) or [None])[0]) for one in part]
    read = [one[2] for one, _ in seen]
    wrong = [(one, value) for one, value in seen if value != one[1]]
    for clause in ctx.check.clauses:
        own = [(one, value) for one, value in wrong if _at_fault(one, value) == clause]
        is_again = _is_wrong_again(ctx, key, [one for one, _ in own[:_AGAIN]])
        yield _value_finding(ctx, clause, read, own, is_again=is_again)


def _is_wrong_again(ctx: CheckContext, key: KeyLabel, wrong: Sequence[_Stored]) -> bool | None:
    """Whether a string that was read back wrongly is wrong again in the same body, sent again.

    None if that cannot be seen: with deduplication the same token comes back.
    """
    told = []
    for identifier, text, exchange in wrong:
        again = _again(ctx, exchange)
        if again is None or not again.ok:
            continue
        try:
            pairs = list(_strings(again))
        except (ValueError, RecursionError):
            continue
        given = [one for sent, one in pairs if sent == text and isinstance(one, str)]
        fresh = [(one, text, again) for one in given if one != identifier]
        values = _values(ctx, key, fresh[: ctx.quota("Detokenize Limit", key)])
        told += [value != text for value in values]
    return any(told) if told else None


def _values(ctx: CheckContext, key: KeyLabel, part: Sequence[_Stored]) -> list[str | None]:
    """Return the strings behind some identifiers; nothing where the request is refused."""
    body: Json = {f"v{place}": f"{{{{ {one[0]} }}}}" for place, one in enumerate(part)}
    shown = ctx.call("detokenize", body=body, key=key)
    answer = shown.json if shown.ok else None
    values = [answer.get(f"v{n}") for n in range(len(part))] if isinstance(answer, dict) else []
    return [str(one) for one in values] if all(isinstance(x, str) for x in values) else []


def _stored(ctx: CheckContext, key: KeyLabel) -> list[_Stored]:
    """Return a sample of the plain strings that the tenant of a key stored during the run."""
    labels = ctx.target.key_labels
    touched = set()
    found: dict[str, _Stored] = {}
    for exchange in ctx.session.settled_exchanges():
        operation = ctx.target.spelling.operation(exchange.ask.method, exchange.ask.path)
        if operation is None or operation[0] != "tokenize":
            touched |= set((operation[1] if operation else {}).values())
            continue
        asker = labels.get(exchange.ask.key or "")
        if asker is None or asker.tenant != labels[key].tenant:
            continue
        try:
            if any(True for _ in _exchange_faults(exchange)):
                continue
            pairs = list(_strings(exchange))
        except (ValueError, RecursionError):
            continue
        found |= {given: (given, text, exchange) for text, given in pairs if isinstance(given, str)}
    kept = [one for token_id, one in found.items() if token_id not in touched]
    return kept[:: max(1, len(kept) // _READ_BACK)]


def _at_fault(stored: _Stored, value: str | None) -> str:
    """Return the broken clause: the body's shape if its strings changed places, else TOK-LEAF."""
    _, _, exchange = stored
    others = [text for text, _ in _strings(exchange)]
    return shape_clause(_body_of(exchange)) if value in others else "TOK-LEAF"


def _value_finding(
    ctx: CheckContext,
    clause: str,
    read: list[Exchange],
    wrong: list[tuple[_Stored, str | None]],
    *,
    is_again: bool | None,
) -> Finding:
    """Judge the strings of one shape that were read back; is_again: by `_is_wrong_again`."""
    if not read:
        return ctx.informs(clause, "no stored string could be read back")
    total = len(read)
    if not wrong:
        says = f"{total} stored strings were read back; none of this shape in another's place"
        return ctx.passes(clause, says, read[-1])
    shown = [one[2] for one, _ in wrong[:_AGAIN]]
    what = "the token holds another string than the one that was sent"
    if all(value is None for _, value in wrong):
        what = "the identifier belongs to no token that can be read"
    if clause != "TOK-LEAF":
        what = "two identifiers have changed places"
    then = {True: "; the same when sent again", False: "; right when sent again", None: ""}
    told = f"in {len(wrong)} of {total} strings read back: {what}{then[is_again]}"
    symptoms: tuple[Symptom, ...] = ("once",) if is_again is False else ()
    return ctx.fails(clause, told, *shown, symptoms=symptoms, place=what)
