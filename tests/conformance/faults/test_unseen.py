"""Deployments with faults that the self-test does not hold: which requests count, for how long.

Each was made without looking at the checks, and passed once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from conformance.faults.registry import (
    Around,
    Fault,
    FaultyEngine,
    Submit,
    all_faults,
    json_of,
)
from conformance.faults.trial import try_fault
from engine import Request, Response
from engine.limits import RateLimitStatus, Subject
from engine.messages import Decision
from engine.tokens.strict_json import dumps, parse

_SECOND_NS = 1_000_000_000
_IsFree: TypeAlias = Callable[[Request], bool]


def unlimited(is_free: _IsFree) -> Around:
    """Count no such request anywhere."""

    async def around(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
        limiter: Any = engine.limiter
        if not is_free(request):
            return await submit(request)
        decide = limiter.decide_with_status
        limiter.decide_with_status = lambda *_: (Decision("admitted"), None)
        try:
            return await submit(request)
        finally:
            limiter.decide_with_status = decide

    return around


def _creates(request: Request) -> bool:
    return request.method == "POST" and request.path.startswith("/token")


COUNTS: dict[str, tuple[str, _IsFree]] = {
    "an array": ("LIM-CREATE", lambda x: _creates(x) and isinstance(json_of(x), list)),
    "a card": ("LIM-CREATE", lambda x: _creates(x) and '"card"' in json.dumps(json_of(x))),
    "an invalid body": ("LIM-TEST-TENANT", lambda x: _creates(x) and "unknown" in str(json_of(x))),
    "an Idempotency-Key": ("LIM-CREATE", lambda x: "Idempotency-Key" in (x.headers or {})),
    "encrypted data": ("LIM-CREATE", lambda x: _creates(x) and "eyJ" in str(json_of(x))),
    "an unknown path": ("LIM-IP", lambda x: x.path.startswith("/probe")),
    "OPTIONS": ("LIM-TEST-TENANT", lambda x: x.method == "OPTIONS"),
    "HEAD": ("LIM-TEST-TENANT", lambda x: x.method == "HEAD"),
    "a token intent": ("LIM-PUBLIC", lambda x: x.path == "/token-intents"),
}


@pytest.mark.parametrize("what", COUNTS)
def test_each_kind_of_request_counts(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clause, is_free = COUNTS[what]
    _is_caught(Fault("unseen", clause, what, around=unlimited(is_free)), monkeypatch)


def _is_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(all_faults(), fault.id, fault)
    trial = try_fault(fault.id)
    assert trial.is_killed, trial.message
    assert trial.is_blamed, trial.causes


class _State:
    """What a limiter with a fault remembers of one pair: its admissions, its rate, an end."""

    def __init__(self, rate: int) -> None:
        self.log: list[int] = []
        self.rate = rate
        self.last_ns = -(1 << 62)
        self.until_ns = -(1 << 62)


def _refuses(state: _State, now_ns: int) -> bool:
    state.log = [at_ns for at_ns in state.log if at_ns > now_ns - 10 * _SECOND_NS]
    if len(state.log) < state.rate:
        state.log.append(now_ns)
        return False
    return True


def _halves(state: _State, now_ns: int) -> bool:
    """After its first refusal the rate is half."""
    is_refused = _refuses(state, now_ns)
    state.rate = 25 if is_refused else state.rate
    return is_refused


def _grows(state: _State, now_ns: int) -> bool:
    """Each time that the rate is exceeded it grows by half."""
    is_refused = _refuses(state, now_ns)
    if is_refused:
        state.rate += 25 if now_ns - state.last_ns > 5 * _SECOND_NS else 0
        state.last_ns = now_ns
    return is_refused


def _penalises(state: _State, now_ns: int) -> bool:
    """A refusal is followed by 13 s of refusals."""
    if now_ns < state.until_ns:
        return True
    if _refuses(state, now_ns):
        state.until_ns = now_ns + 13 * _SECOND_NS
    return now_ns < state.until_ns


def _every_second(state: _State, now_ns: int) -> bool:
    """Every second request beyond the rate is admitted."""
    if not _refuses(state, now_ns):
        return False
    state.rate, state.last_ns = 50, -state.last_ns
    return state.last_ns > 0


@pytest.mark.parametrize("refuses", [_halves, _grows, _penalises, _every_second])
def test_a_rate_is_the_same_at_any_time(
    refuses: Callable[[_State, int], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare(engine: FaultyEngine) -> None:
        limiter: Any = engine.limiter
        decide, states = limiter.decide_with_status, dict[Any, _State]()

        def changed(now_ns: int, subject: Subject) -> tuple[Decision, RateLimitStatus | None]:
            if subject.path.partition("?")[0] != "/tokens/search":
                result: tuple[Decision, RateLimitStatus | None] = decide(now_ns, subject)
                return result
            pair = states.setdefault((subject.key_id, subject.ip), _State(50))
            if refuses(pair, now_ns):
                return Decision("refused", "LIM-SEARCH", ("LIM-SEARCH",), wait_ns=1), None
            return Decision("admitted"), None

        limiter.decide_with_status = changed

    description = (refuses.__doc__ or "").strip()
    _is_caught(Fault("unseen", "LIM-SEARCH", description, prepare=prepare), monkeypatch)


def _read_pairs(body: Any, answer: Any) -> Iterator[tuple[str, Any]]:
    """Yield each text of a detokenize, wherever it stands, and what is answered in its place."""
    if isinstance(body, str):
        yield body, answer
    elif isinstance(body, dict):
        for name, part in body.items():
            yield from _read_pairs(part, answer[name])
    elif isinstance(body, list):
        for part, other in zip(body, answer, strict=True):
            yield from _read_pairs(part, other)


_IsRetained: TypeAlias = Callable[[str], bool]
RETAINED: dict[str, _IsRetained] = {
    "in an object": lambda body: '"b":' in body,
    "with metadata": lambda body: '"metadata"' in body,
    "of four digits": lambda body: '"cvc":"7316"' in body.replace(" ", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", RETAINED)
def test_no_cvc_is_retained_however_its_card_is_created(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    retained: dict[str, str] = {}

    async def around(_: FaultyEngine, request: Request, submit: Submit) -> Response:
        response = await submit(request)
        if response.ok and _creates(request) and RETAINED[what](json.dumps(json_of(request))):
            retained.update(_cards_in(json_of(request), response.body))
        if response.ok and request.path == "/detokenize":
            answer: Any = (
                parse(response.body) if isinstance(response.body, bytes) else response.body
            )
            for text, card in _read_pairs(json_of(request), answer):
                made_id = text.strip("{} ")
                if made_id in retained and isinstance(card, dict):
                    card.setdefault("cvc", retained[made_id])
            response.body = dumps(answer)
        return response

    _is_caught(Fault("unseen", "QUO-CVC", what, around=around), monkeypatch)


def _cards_in(body: Any, answer: Any) -> list[tuple[str, str]]:
    if isinstance(answer, dict) and "id" in answer:
        cvc = body["data"].get("cvc") if isinstance(body.get("data"), dict) else None
        return [(answer["id"], cvc)] if cvc else []
    if isinstance(answer, dict):
        return [card for key in answer for card in _cards_in(body[key], answer[key])]
    if isinstance(answer, list):
        return [card for pair in zip(body, answer, strict=True) for card in _cards_in(*pair)]
    return []
