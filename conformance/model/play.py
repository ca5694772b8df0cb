"""A play: one sequence of steps, sent to the deployment and to the reference at the same times.

Each play renders the values of its steps afresh and has a reference of its own, so that it can be
repeated on a deployment that keeps what earlier plays stored. An answer that is missing, or that a
gateway gave, is no evidence: the play is abandoned.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlencode

from conformance.context.answers import elements_in, is_request
from conformance.context.context import GATEWAY_STATUSES, CheckContext, Lane, retry_after_ns
from conformance.messages.exchange import Exchange, HttpRequest, KeyLabel, parsed_or_none
from conformance.messages.shapes import SHAPES, filled
from conformance.model.blame import covered, value_of
from conformance.model.comparison import TOKENIZING, AnswerComparison, Mismatch, SentStep, Tie
from conformance.model.reference import Reference, ReferenceAnswer
from conformance.model.values import (
    CORE_LENGTH,
    PLAIN_FORMS,
    UNKNOWN_ID,
    Join,
    Node,
    Ref,
    Sealed,
    TextValue,
    core_text,
    parts_of,
    quoted,
    text_of,
)
from engine import Profile
from engine.messages import Json
from engine.tokens.strict_json import dumps
from engine.vault import jwe

_SECOND_NS: Final = 1_000_000_000
_RETRIES: Final = 3
_PATCH_TYPE: Final = {"Content-Type": "application/merge-patch+json"}
_LEAST_NUMBER: Final = 12
_LEAST_SECRET: Final = 3


class Abandoned(Exception):
    """A play that shows nothing, and why."""


class NotOffered(Exception):
    """An operation that the deployment does not offer to a key as it is assumed."""

    def __init__(self, operation: str, role: str, status: int | None) -> None:
        super().__init__(f"{operation} by {role}: {status}")
        self.operation = operation
        self.role = role
        self.status = status


@dataclass(slots=True)
class SequenceStep:
    """One request, before its values are rendered.

    operation: its name in the target's `[requests]`. role: of its key, or the `Ref` of a key that
    an earlier step made. values: for the placeholders of the operation's shape. body: replaces the
    shape's body. raw: bytes instead. key_header: what stands in the key's header instead of the
    key. wait_ns: how long to wait first.
    """

    number: int
    operation: str
    role: str | Ref
    values: dict[str, Node] = field(default_factory=dict)
    body: Node = None
    raw: bytes | None = None
    query: Mapping[str, Node] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    key_header: str | None = None
    wait_ns: int = 0
    is_filtered: bool = False

    @property
    def payload(self) -> Node:
        """What stands for a value in its body."""
        return self.body if self.body is not None else self.values.get("value")


Observer: TypeAlias = Callable[[SequenceStep, ReferenceAnswer, Mapping[str, Ref]], None]
"""Receives a step that both sides answered alike, the answer, and the `Ref` of each identifier."""


class SequencePlay:
    """One play. salt: makes its values; labels: the key of each role.

    proven: the operations that the deployment was seen to offer as they are assumed.
    """

    def __init__(
        self,
        ctx: CheckContext,
        lane: Lane,
        profile: Profile,
        labels: Mapping[str, KeyLabel],
        salt: str,
        proven: set[str] | None = None,
        *,
        has_uuids: bool = False,
    ) -> None:
        self._ctx = ctx
        self._lane = lane
        self._profile = profile
        self._labels = labels
        self._salt = salt
        self._proven: set[str] = set() if proven is None else proven
        self.reference = Reference(ctx.target, profile)
        self.comparison = AnswerComparison(
            profile.tokens.container_field,
            profile.dedup.flag_name,
            self.reference.is_tie,
            has_uuids,
        )
        self.exchanges: list[Exchange] = []
        self.covered: Counter[str] = Counter()
        self.began_ns = lane.now_ns
        self._expected_names: dict[Ref, str] = {}
        self._given_names: dict[Ref, str] = {}
        self._refs: dict[str, Ref] = {}
        self._elements: dict[Ref, Json] = {}
        self._read: set[Ref] = set()

    # --- running --------------------------------------------------------------------------------

    async def run(
        self, steps: Iterator[SequenceStep], observer: Observer | None = None
    ) -> tuple[Mismatch | None, list[SequenceStep]]:
        """Send steps until an answer differs; returns the difference and what was sent."""
        done: list[SequenceStep] = []
        for step in steps:
            done.append(step)
            try:
                answer = await self.send(step)
            except Mismatch as difference:
                return difference, done
            if observer is not None:
                observer(step, answer, self._refs)
        return None, done

    async def send(self, step: SequenceStep) -> ReferenceAnswer:
        """Send a step and compare the answers; raises `Mismatch`."""
        if step.wait_ns:
            await self._lane.sleep_ns(step.wait_ns)
        exchange = await self._exchange(step)
        return self.judge(step, exchange)

    async def ask(self, step: SequenceStep) -> None:
        """Send a step without comparing anything; later steps can refer to its identifiers."""
        exchange = await self._exchange(step)
        self.exchanges.append(exchange)
        body = self._render(step.payload, self._given_names, is_deployment=True)
        if exchange.ok:
            answer = parsed_or_none(exchange.content)
            for place, (_, name) in enumerate(identified(body, answer)):
                self._given_names[Ref(step.number, place)] = name

    def unread(self) -> list[Ref]:
        """Return the elements of the last tokenize that hold a string, unless some were read."""
        last = max((ref.step for ref in self._elements), default=0)
        refs = [ref for ref in self._elements if ref.step == last]
        texts = [ref for ref in refs if isinstance(value_of(self._elements[ref]), str)]
        return [] if self._read.intersection(refs) else texts

    def judge(self, step: SequenceStep, exchange: Exchange) -> ReferenceAnswer:
        """Compare an exchange with the reference's answer; raises `Mismatch`."""
        self.exchanges.append(exchange)
        self.reference.set_time(exchange.sent_ns - self.began_ns)
        answer, body = self._expect(step)
        self._check_offered(step, answer, exchange)
        if step.operation != "detokenize" or not answer.ok:
            self.comparison.secrets |= set(self._secrets(step))
        try:
            sent = self._sent(step, body)
            sent.answered_at = self._answered_at(exchange)
            self.comparison.compare(sent, answer, exchange)
        except Tie:
            raise Abandoned("equal tokens of one request are a tie") from None
        self.comparison.secrets |= set(self._secrets(step))
        if exchange.ok:
            self._proven.add(step.operation)
        if step.operation == "detokenize":
            self._read |= {part for part in parts_of(step.body) if isinstance(part, Ref)}
        self._name(step, answer, body)
        self.covered.update(
            covered(step.operation, body, answer.status, answer.body, answer.clause)
        )
        return answer

    def _check_offered(
        self, step: SequenceStep, answer: ReferenceAnswer, exchange: Exchange
    ) -> None:
        """Where shapes and rights are assumed, a refusal may be a service of another kind."""
        status = exchange.status
        if step.operation == "create" and answer.status == 403 and exchange.ok:
            raise Abandoned("rights of POST /tokens are assumed")
        if step.operation == "tokenize" or not answer.ok or exchange.ok:
            return
        if step.operation not in self._proven or status in {401, 403}:
            raise NotOffered(step.operation, str(step.role), status)

    # --- the deployment -------------------------------------------------------------------------

    async def _exchange(self, step: SequenceStep) -> Exchange:
        ask = self._ask(step)
        for turn in range(_RETRIES):
            exchange = await self._lane.once(ask)
            if exchange.status is None or exchange.status in GATEWAY_STATUSES:
                raise Abandoned(f"no answer of the service to {step.operation}")
            if exchange.status != 429:
                return exchange
            if self._profile.tokens.limit_status == 429 and turn:
                return exchange
            await self._lane.sleep_ns(retry_after_ns(exchange) or _SECOND_NS << turn)
        raise Abandoned("a rate limit refuses the requests of the model")

    def _ask(self, step: SequenceStep) -> HttpRequest:
        shape = self._ctx.target.shape(step.operation)
        values = self._render(step.values, self._given_names, is_deployment=True)
        method, path, body = cast("tuple[str, str, Any]", filled(shape, values))
        if step.raw is not None:
            body = step.raw
        elif step.body is not None:
            body = self._render(step.body, self._given_names, is_deployment=True)
        headers = {**(_PATCH_TYPE if step.operation == "patch" else {}), **step.headers}
        is_plain = not self._ctx.target.dialect.speaks_otherwise
        if is_plain and step.number % 2 and not isinstance(body, bytes | None):
            headers.setdefault("Content-Type", "application/json")
            body = dumps(body)
        key: KeyLabel | None = self._key(step)
        if step.key_header is not None:
            headers[self._ctx.target.key_header] = step.key_header.replace("KEY", f"{{key:{key}}}")
            key = None
        path += self._query(step, self._given_names)
        return HttpRequest(method=method, path=path, key=key, headers=headers, body=body)

    def _key(self, step: SequenceStep) -> KeyLabel:
        if isinstance(step.role, Ref):
            return f"{self._ctx.check.id}.{self._salt}.{step.role.step}"
        return self._labels[step.role]

    # --- the reference --------------------------------------------------------------------------

    def _expect(self, step: SequenceStep) -> tuple[ReferenceAnswer, Any]:
        values = self._render(step.values, self._expected_names, is_deployment=False)
        shape = SHAPES[step.operation]
        method, path, body = cast("tuple[str, str, Any]", filled(shape, values))
        if step.raw is not None:
            body = step.raw
        elif step.body is not None:
            body = self._render(step.body, self._expected_names, is_deployment=False)
        headers = {**(_PATCH_TYPE if step.operation == "patch" else {}), **step.headers}
        label: str | None = self._key(step)
        if step.key_header is not None:
            label = "unknown" if step.key_header else None
        path += self._query(step, self._expected_names)
        answer = self.reference.answer(method, path, label=label, body=body, headers=headers)
        return answer, body

    def _query(self, step: SequenceStep, names: Mapping[Ref, str]) -> str:
        given = self._render(dict(step.query), names, is_deployment=True)
        return f"?{urlencode(given)}" if given else ""

    def _sent(self, step: SequenceStep, body: Any) -> SentStep:  # noqa: ANN401 # reason: JSON or bytes
        label, keys = self._key(step), self._ctx.target.key_labels
        role = step.role if isinstance(step.role, str) else "private_prod"
        kind = "Detokenize Limit" if step.operation == "detokenize" else "Tokenize Limit"
        quota = self._ctx.quota(kind, self._labels[role])
        texts = [part for part in parts_of(step.payload) if isinstance(part, TextValue)]
        return SentStep(
            operation=step.operation,
            number=step.number,
            body=parsed_or_none(body) if step.raw is not None else body,
            quota=quota,
            has_dedup=label in keys and keys[label].role.startswith("dedup"),
            is_odd=any(text.wraps and text.wraps[-1] != "card 16" for text in texts)
            or any(isinstance(value_of(part), str) for part in elements_in(step.payload)),
            elements=[
                self._elements.get(part, "")
                for part in parts_of([step.body, step.values])
                if isinstance(part, Ref)
            ],
            is_filtered=step.is_filtered,
            header=step.key_header or "",
            is_raw=step.raw is not None,
        )

    def _answered_at(self, exchange: Exchange) -> datetime:
        """Return the time in an answer's `Date`, or else this machine's when it came."""
        date = exchange.header("Date")
        with contextlib.suppress(ValueError):
            answered = None if date is None else parsedate_to_datetime(date)
            if answered is not None and answered.tzinfo is not None:
                return answered
        at_ns = self._ctx.session.wall_start_ns + exchange.received_ns
        return datetime.fromtimestamp(at_ns / _SECOND_NS, UTC)

    # --- values ---------------------------------------------------------------------------------

    def _render(self, node: Node, names: Mapping[Ref, str], *, is_deployment: bool) -> Any:  # noqa: ANN401 # reason: any JSON
        def render(part: Node) -> Any:  # noqa: ANN401 # reason: any JSON
            if isinstance(part, TextValue):
                return text_of(part, self._salt)
            if isinstance(part, Ref):
                return names.get(part, UNKNOWN_ID)
            if isinstance(part, Join):
                return "".join(render_part(inner) for inner in part.parts)
            if isinstance(part, Sealed):
                return self._seal(part, render(part.data), is_deployment=is_deployment)
            if isinstance(part, dict):
                return {key: render(value) for key, value in part.items()}
            if isinstance(part, list):
                return [render(value) for value in part]
            return part

        def render_part(inner: str | Ref | TextValue) -> str:
            if isinstance(inner, TextValue):
                return quoted(text_of(inner, self._salt))
            return str(render(inner))

        return render(node)

    @cached_property
    def _jwk(self) -> Mapping[str, Any]:
        """The reference's key for client-side encryption, made for the first sealed value."""
        return self.reference.encryption_jwk(self._labels["private_prod"])

    def _seal(self, part: Sealed, data: Json, *, is_deployment: bool) -> str:
        own = self._ctx.target.encryption_jwk
        if own is None or "private_prod" not in self._labels:
            return "a.b.c.d.e"
        if is_deployment:
            name = f"{self._salt}/{part.number}"
            text = self._ctx.make(name, lambda: jwe.encrypt(own, dumps(data)))
        else:
            text = jwe.encrypt(self._jwk, dumps(data))
        return (
            text[:-6] + ("AAAAAA" if text[-6:] != "AAAAAA" else "BBBBBB")
            if part.is_broken
            else text
        )

    def _secrets(self, step: SequenceStep) -> Iterator[str]:
        """Yield what a step sends and no answer may show: cores, whole numbers, cvcs."""
        if step.operation not in {*TOKENIZING, "patch", "create_token_intent"}:
            return
        for part in parts_of(step.payload):
            if isinstance(part, TextValue):
                if part.wraps and part.wraps[0] in PLAIN_FORMS:
                    text = text_of(part, self._salt)
                    if len(text) >= _LEAST_SECRET:
                        yield text
                    if part.wraps[0].startswith("card ") and len(text) > _LEAST_NUMBER:
                        yield text[:-4]  # the rest is in every mask
                else:
                    yield core_text(self._salt, part.core)[:CORE_LENGTH]

    # --- identifiers ----------------------------------------------------------------------------

    def _name(self, step: SequenceStep, answer: ReferenceAnswer, body: Json) -> None:
        """Number the identifiers of an answer, so that later steps can refer to them."""
        if not answer.ok:
            return
        if step.operation in {"tokenize", "create", "create_token_intent"}:
            pairs = list(identified(body, answer.body))
        else:
            record = answer.body if isinstance(answer.body, dict) else {}
            pairs = [(None, record["id"])] if isinstance(record.get("id"), str) else []
        for place, (element, name) in enumerate(pairs):
            ref = Ref(step.number, place)
            self._expected_names[ref] = name
            other = self.comparison.to_deployment.get(name)
            self._given_names[ref] = str(other) if other is not None else UNKNOWN_ID
            self._refs.setdefault(name, ref)
            self._elements[ref] = element
        if step.operation == "create_application_key":
            self._learn_key(step, answer)

    def _learn_key(self, step: SequenceStep, answer: ReferenceAnswer) -> None:
        text = answer.body.get("key") if isinstance(answer.body, dict) else None
        other = self.comparison.to_deployment.get(text)
        if not isinstance(text, str) or not isinstance(other, str):
            raise Abandoned("the text of a new key is not in the answer")
        label = f"{self._ctx.check.id}.{self._salt}.{step.number}"
        self.reference.learn_key(label, text)
        self._ctx.learn_key(label, other)


def identified(body: Node, answer: Any) -> Iterator[tuple[Node, str]]:  # noqa: ANN401 # reason: any JSON
    """Yield (element, identifier) of a body, rendered or not, and its answer, in order."""
    if is_request(body):
        if isinstance(answer, dict) and isinstance(answer.get("id"), str):
            yield body, answer["id"]
    elif isinstance(body, dict):
        for key, part in body.items():
            yield from identified(part, answer.get(key) if isinstance(answer, dict) else None)
    elif isinstance(body, list):
        if isinstance(answer, list):
            for part, other in zip(body, answer, strict=False):
                yield from identified(part, other)
    elif isinstance(answer, str):
        yield body, answer
