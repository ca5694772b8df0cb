"""What a request shows about a limiter: when it was sent and answered, and whether it was refused.

The deployment decided at an unknown time between `sent_ns` and `received_ns` on our own clock. An
answer that a gateway may give (408, 413, 414, 431, any 5xx), and no answer at all, show nothing:
the request may have been counted or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from conformance.messages.exchange import Exchange, parsed_or_none

GATEWAY_STATUSES: Final = frozenset({408, 413, 414, 431})
"""Answers that a gateway may give itself, before or after a limiter counts; so may any 5xx."""
_ORDINARY: Final = frozenset({400, 404, 405, 406, 409, 410, 411, 412, 415, 422, 428})
"""Refusals of a single request, which no limiter gives in place of 429 without being recognised."""
_REPEATS: Final = 3


def is_gateway_answer(status: int | None) -> bool:
    """Whether a request may never have reached the limiter, or got no answer."""
    return status is None or status >= 500 or status in GATEWAY_STATUSES


def is_missing(exchanges: Sequence[Exchange]) -> bool:
    """Whether the operation of these exchanges seems not to exist there."""
    answers = [x for x in exchanges if not is_gateway_answer(x.status) and not x.refused]
    return bool(answers) and all(exchange.is_absent for exchange in answers)


AnswerClass = tuple[int | None, tuple[str, ...]]
"""A status, and the names at the top of a JSON object: a refusal may be a 200 with an error."""


def answer_class(exchange: Exchange) -> AnswerClass:
    """Return the class of an answer."""
    names: tuple[str, ...] = ()
    if exchange.status is not None and len(exchange.content) < 4_000:
        answer = parsed_or_none(exchange.content) if exchange.content[:1] == b"{" else None
        names = tuple(sorted(answer)) if isinstance(answer, dict) else ()
    return exchange.status, names


class RefusalClassifier:
    """Recognises refusals: 429, and what a deployment that breaks ERR-429 answers instead.

    usual: by variant, the status of the first answer to it, which reached no limit. substitutes:
    the classes of answers that stand for 429 here. odd: refusals that were not 429.
    """

    def __init__(self) -> None:
        self.usual: dict[str, int] = {}
        self.substitutes: set[AnswerClass] = set()
        self.odd: list[Exchange] = []

    def is_refused(self, exchange: Exchange, variant: str) -> bool | None:
        """Return whether a request was refused by a limit; None where its answer shows nothing."""
        status = exchange.status
        if exchange.refused:
            return True
        if self.substitutes and answer_class(exchange) in self.substitutes:
            self.odd.append(exchange)
            return True
        if status is None or is_gateway_answer(status):
            return None
        usual = self.usual.setdefault(variant, status)
        if status == 401 and exchange.ask.key is None:
            return False  # AUTH-HEADER: it has no key
        if usual < 400 <= status and status != usual and status not in _ORDINARY:
            self.odd.append(exchange)
            return True
        return False

    def substitute(self, exchanges: Sequence[Exchange]) -> AnswerClass | None:
        """Return what the last answers of a burst have in common and its first have not, if so."""
        ordered = sorted(exchanges, key=lambda exchange: exchange.sent_ns)
        classes = [answer_class(exchange) for exchange in ordered]
        if len(classes) < 2 * _REPEATS:
            return None
        last = classes[-1]
        is_steady = set(classes[-_REPEATS:]) == {last} and last not in classes[:_REPEATS]
        return last if is_steady and last[0] is not None else None


class Observation(NamedTuple):
    """One request as the client saw it. refused: None where its answer shows nothing."""

    sent_ns: int
    received_ns: int
    refused: bool | None
    exchange: Exchange

    @property
    def rtt_ns(self) -> int:
        """The round-trip time."""
        return self.received_ns - self.sent_ns


class Burst:
    """What requests of one party show that were sent together."""

    def __init__(self, observations: Iterable[Observation]) -> None:
        self.all = list(observations)
        self.admitted = sorted((x for x in self.all if x.refused is False), key=lambda x: x[:2])
        self.refused = sorted((x for x in self.all if x.refused), key=lambda x: x.sent_ns)
        self.lost = len(self.all) - len(self.admitted) - len(self.refused)
        self.size = len(self.admitted)
        self.first_sent_ns = min((x.sent_ns for x in self.all), default=0)
        self.first_received_ns = min((x.received_ns for x in self.all), default=0)
        self.last_received_ns = max((x.received_ns for x in self.admitted or self.all), default=0)

    @property
    def duration_ns(self) -> int:
        """The time from the first request to the last admission."""
        return self.last_received_ns - self.first_sent_ns

    def __add__(self, other: Burst) -> Burst:
        return Burst([*self.all, *other.all])

    @property
    def span(self) -> tuple[int, int]:
        """The times of the first request and of the last admission."""
        return self.first_sent_ns, self.last_received_ns


def may_share_border(first: tuple[int, int], second: tuple[int, int], window_ns: int) -> bool:
    """Whether aligned windows may have begun in the midst of two spans of time.

    >>> may_share_border((8, 11), (20, 23), 10), may_share_border((8, 11), (20, 23), 20)
    (True, False)
    >>> may_share_border((8, 8), (18, 18), 10)  # it has no midst
    False
    """
    least = (second[0] - first[1]) // window_ns + 1
    most = (second[1] - first[0] - 1) // window_ns
    return least <= most
