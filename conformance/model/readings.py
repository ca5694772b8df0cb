"""Readings: what the specification leaves open is learned before anything is compared.

A question is a short sequence of steps and the values that a setting of the profile may have. The
deployment answers it once; each value's reference answers it too. The value whose reference agrees
is the deployment's reading. An operation that is assumed, and whose simplest use is answered
otherwise, is left out of the sequences: the specification does not state it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from conformance.context.answers import is_refused, is_request
from conformance.context.context import CheckContext, Lane
from conformance.messages.exchange import Exchange, KeyLabel
from conformance.model.comparison import Mismatch
from conformance.model.generator import Offer
from conformance.model.play import Abandoned, NotOffered, SequencePlay, SequenceStep
from conformance.model.values import Join, Node, Ref, Sealed, TextValue, card_data
from engine import InputError, Profile
from engine.profile import choices

_CONTAINER_FIELDS: Final = ("containers", "container", "container_path", "container_id", "vault")
_SETTINGS: Final = {choice.path: choice for choice in choices()}


@dataclass(frozen=True, slots=True)
class Question:
    """Steps that show a setting. clause: what a reading is reported on."""

    setting: str
    clause: str
    steps: Callable[[int], Sequence[SequenceStep]]
    roles: tuple[str, ...] = ("private_prod",)
    needs: str = ""


@dataclass(frozen=True, slots=True)
class Learned:
    """A reading: the setting's value, and the exchanges that show it."""

    setting: str
    clause: str
    value: Any
    exchanges: tuple[Exchange, ...]


@dataclass(frozen=True, slots=True)
class _Posed:
    """A question and the deployment's answers; number: of the play, which makes its values."""

    question: Question
    number: int
    steps: Sequence[SequenceStep]
    exchanges: Sequence[Exchange]


def _tokenize(role: str, *bodies: Node) -> list[SequenceStep]:
    return [
        SequenceStep(place, "tokenize", role, {"value": body}) for place, body in enumerate(bodies)
    ]


def _token(number: int = 1, **fields: Node) -> dict[str, Node]:
    return {"type": "token", "data": TextValue(number), **fields}


def _card(number: int = 1, **fields: Node) -> dict[str, Node]:
    return {"type": "card", "data": card_data(number), **fields}


def _partial_cards() -> list[dict[str, Node]]:
    """Return cards without what may be optional: all of it, the cvc, the expiry."""
    whole = _card()["data"]
    parts = (("number",), ("number", "expiration_month", "expiration_year"), ("number", "cvc"))
    return [{"type": "card", "data": {name: whole[name] for name in names}} for names in parts]


def _detokenize(role: str, refs: Sequence[Ref], number: int = 1) -> SequenceStep:
    body = {f"v{place}": Join(("{{ ", ref, " }}")) for place, ref in enumerate(refs)}
    return SequenceStep(number, "detokenize", role, body=body)


_QUESTIONS: Final[tuple[Question, ...]] = (
    Question("tokens.card_view", "REC-CARD-MASK", lambda _: _tokenize("private_prod", _card())),
    Question("tokens.fpexpr_default", "REC-FPEXPR", lambda _: _tokenize("private_prod", _token())),
    Question(
        "tokens.empty_body",
        "TOK-COMPOSITE",
        lambda _: _tokenize("private_prod", {}, [], {"a": []}),
    ),
    Question(
        "tokens.non_string_leaf",
        "TOK-COMPOSITE",
        lambda _: _tokenize(
            "private_prod",
            {"a": TextValue(1), "b": 5},
            [TextValue(2), True],
            [None],
            {"a": TextValue(3), "b": None},
        ),
    ),
    Question(
        "tokens.scalar_body", "TOK-COMPOSITE", lambda _: _tokenize("private_prod", TextValue(1))
    ),
    Question(
        "tokens.unknown_field",
        "TOK-OBJECT",
        lambda _: _tokenize("private_prod", _token(no_such_field="x")),
    ),
    Question(
        "tokens.one_of",
        "TOK-ONE-OF",
        lambda _: _tokenize("private_prod", {**_card(), "encrypted": Sealed(9, _card(5)["data"])}),
        needs="encryption_jwk",
    ),
    Question(
        "tokens.token_data",
        "TOK-TOKEN-DATA",
        lambda _: _tokenize("private_prod", {"type": "token", "data": {"any": TextValue(1)}}),
    ),
    Question(
        "tokens.card_luhn",
        "TOK-CARD-DATA",
        lambda _: _tokenize(
            "private_prod",
            {"type": "card", "data": {**_card()["data"], "number": TextValue(1, ("wrong card",))}},
        ),
    ),
    Question(
        "tokens.card_all_required",
        "TOK-CARD-DATA",
        lambda _: _tokenize("private_prod", *_partial_cards()),
    ),
    Question(
        "tokens.cvc_derive",
        "TOK-FPEXPR",
        lambda _: _tokenize("private_prod", _card(fingerprint_expression="{{ data.cvc }}")),
    ),
    Question(
        "tokens.card_fpexpr",
        "TOK-FPEXPR",
        lambda _: _tokenize(
            "private_prod", _card(fingerprint_expression="{{ data.expiration_year }}")
        ),
    ),
    Question(
        "tokens.limit_counts",
        "TOK-LIMIT",
        lambda quota: _tokenize("dedup", [TextValue(1)], [TextValue(1)] * (quota + 1)),
        roles=("dedup",),
    ),
    Question(
        "tokens.detokenize_counts",
        "QUO-DETOKENIZE",
        lambda quota: [
            *_tokenize("private_reader", [TextValue(1)]),
            _detokenize("private_reader", [Ref(0, 0)] * (quota + 1)),
        ],
        roles=("private_reader",),
    ),
    Question(
        "dedup.record",
        "TOK-DEDUP",
        lambda _: _tokenize(
            "dedup_reader", _token(metadata={"o": "1"}), _token(metadata={"o": "2"})
        ),
        roles=("dedup_reader",),
    ),
    Question(
        "dedup.redact",
        "REC-DEDUP-REDACT",
        lambda _: [
            *_tokenize("dedup_reader", _card(metadata={"o": "1"})),
            SequenceStep(1, "tokenize", "dedup", {"value": _card()}),
        ],
        roles=("dedup", "dedup_reader"),
    ),
    Question(
        "dedup.container_in_key",
        "TOK-DEDUP",
        lambda _: _tokenize("dedup_reader", _token(containers="A"), _token(containers="B")),
        roles=("dedup_reader",),
        needs="containers",
    ),
    Question(
        "tokens.record_view",
        "REC-DEDUP-REDACT",
        lambda _: [
            *_tokenize("dedup_reader", _token(metadata={"o": "1"})),
            SequenceStep(1, "patch", "dedup", {"id": Ref(0, 0)}, body={"metadata": {"p": "2"}}),
        ],
        roles=("dedup", "dedup_reader"),
        needs="patch",
    ),
    Question(
        "tokens.plaintext_reads",
        "REC-SECRET",
        lambda _: [
            *_tokenize("private_reader", _token()),
            SequenceStep(1, "get", "private_reader", {"id": Ref(0, 0)}),
        ],
        roles=("private_reader",),
        needs="get",
    ),
)


def _uses(containers: Sequence[str]) -> Mapping[str, Sequence[SequenceStep]]:
    """Return the simplest use of each assumed operation and of each open field."""
    made = _tokenize("private_reader", _token(search_indexes=["{{ data }}"], metadata={"a": "b"}))
    ref = Ref(0, 0)
    return {
        "get": [*made, SequenceStep(1, "get", "private_reader", {"id": ref})],
        "list": [*made, SequenceStep(1, "list", "private_reader", query={"size": 100})],
        "create": [SequenceStep(0, "create", "private_prod", {"value": TextValue(1)})],
        "search": [
            *made,
            SequenceStep(1, "search", "private_reader", {"value": TextValue(1)}, is_filtered=True),
            SequenceStep(2, "search", "private_reader", {"value": TextValue(2)}, is_filtered=True),
        ],
        "patch": [
            *made,
            SequenceStep(1, "patch", "private_reader", {"id": ref}, body={"metadata": {"a": "c"}}),
            SequenceStep(2, "patch", "private_reader", {"id": ref}, body={"data": TextValue(3)}),
        ],
        "delete": [
            *made,
            SequenceStep(1, "delete", "private_reader", {"id": ref}),
        ],
        "detokenize": [
            *made,
            SequenceStep(1, "detokenize", "private_reader", {"id": ref}),
        ],
        "create_token_intent": [
            SequenceStep(0, "create_token_intent", "private_reader", body=_token()),
            SequenceStep(
                1,
                "tokenize",
                "private_reader",
                {"value": {"type": "token", "token_intent_id": ref}},
            ),
        ],
        "flag": _tokenize(
            "private_prod", _token(deduplicate_token=True), _token(deduplicate_token=True)
        ),
        "containers": _tokenize(
            "private_prod", *(_token(containers=path) for path in containers[:2])
        ),
        "card_parts": _tokenize("private_prod", *_partial_cards()),
        "depth": _tokenize("private_prod", _nested(14)),
        "metadata": _tokenize("private_prod", _token(metadata={"a": "v" * 256, "b": "c", "d": ""})),
    }


def _nested(depth: int) -> Node:
    return [_nested(depth - 1)] if depth else TextValue(1)


class Readings:
    """Asks the questions that the profile does not answer.

    faults: the clause, the rule and the exchanges of what no reading allows. undecided: those of
    what cannot be learned.
    """

    def __init__(
        self, ctx: CheckContext, lane: Lane, offer: Offer, labels: Mapping[str, KeyLabel]
    ) -> None:
        self._ctx = ctx
        self._lane = lane
        self._labels = labels
        self._plays = 0
        self._posed: dict[str, _Posed] = {}
        self.offer = offer
        self.profile = ctx.session.given_profile
        self.learned: list[Learned] = []
        self.faults: list[tuple[str, str, Sequence[Exchange]]] = []
        self.undecided: list[tuple[str, str, Sequence[Exchange]]] = []
        self.left_out: list[str] = []

    async def run(self) -> None:
        """Learn the container field, then each setting; leave out what is not offered."""
        await self._learn_container_field()
        await self._learn_default_containers()
        await self._learn_limit_status()
        for question in _QUESTIONS:
            if self._is_open(question):
                await self._pose(question)
        count = -1
        while count != len(self._posed):  # a reading that is known lets another be seen
            count = len(self._posed)
            for setting in tuple(self._posed):
                self._learn(setting)
        for name, steps in _uses(self._containers()).items():
            if name in self.offer.operations or name in self.offer.fields:
                await self._try(name, self._adapted(steps))
        self.offer = replace(self.offer, profile=self.profile)

    def _knows(self, setting: str) -> bool:
        """Whether the operator has stated a setting; what other checks learn depends on timing."""
        return setting in self._ctx.session.given

    def _is_open(self, question: Question) -> bool:
        needs = question.needs
        if needs == "containers" and "containers" not in self.offer.fields:
            return False
        if needs in {"patch", "get"} and needs not in self.offer.operations - self.offer.mapped:
            return False
        if needs == "encryption_jwk" and not self.offer.can_encrypt:
            return False
        has_roles = set(question.roles) <= self.offer.roles
        return has_roles and not self._knows(question.setting)

    def _containers(self) -> tuple[str, ...]:
        return self.offer.containers or ("/conformance/one/", "/conformance/two/")

    # --- playing --------------------------------------------------------------------------------

    def _play(self, profile: Profile, number: int) -> SequencePlay:
        salt = f"{self._ctx.seed}{self._ctx.session.nonce}/reading {number}"
        proven = set(self.offer.operations)
        return SequencePlay(self._ctx, self._lane, profile, self._labels, salt, proven)

    async def _answers(
        self, steps: Sequence[SequenceStep], profile: Profile | None = None
    ) -> tuple[int, list[Exchange]]:
        """Send steps whatever the answers are; returns the play's number and the exchanges."""
        self._plays += 1
        play = self._play(profile or self.profile, self._plays)
        for step in steps:
            await play.ask(step)
        return self._plays, play.exchanges

    def _agrees(self, profile: Profile, posed: _Posed) -> bool:
        """Whether a profile's reference answers a question as the deployment has."""
        play = self._play(profile, posed.number)
        play.began_ns = posed.exchanges[0].sent_ns
        try:
            for step, exchange in zip(posed.steps, posed.exchanges, strict=True):
                play.judge(step, exchange)
        except (Mismatch, NotOffered, Abandoned):
            return False
        return True

    async def _pose(self, question: Question) -> None:
        label = self._labels[question.roles[0]]
        is_detokenize = question.setting == "tokens.detokenize_counts"
        quota = self._ctx.quota("Detokenize Limit" if is_detokenize else "Tokenize Limit", label)
        steps = self._adapted(question.steps(quota))
        with contextlib.suppress(Abandoned):
            number, exchanges = await self._answers(steps)
            if not self._is_crashed(question.clause, question.setting, exchanges):
                self._posed[question.setting] = _Posed(question, number, steps, exchanges)

    def _is_crashed(self, clause: str, what: str, exchanges: Sequence[Exchange]) -> bool:
        """Note an answer of 5xx: whatever the reading is, a refusal is a 4xx."""
        crashes = [exchange for exchange in exchanges if (exchange.status or 0) >= 500]
        for exchange in crashes[:1]:
            message = f"{what}: must be accepted or refused with a 4xx, got {exchange.status}"
            self.faults.append((clause, message, [exchange]))
        return bool(crashes)

    def _learn(self, setting: str) -> None:
        """Note the value whose reference agrees, where it is one alone."""
        section, _, name = setting.partition(".")
        posed = self._posed[setting]
        values = [
            value
            for value in _SETTINGS[setting].listed
            if self._agrees(self.profile.replace(**{section: {name: value}}), posed)
        ]
        if len(values) == 1:
            del self._posed[setting]
            self._note(setting, posed.question.clause, values[0], posed.exchanges)

    def _note(self, setting: str, clause: str, value: Any, exchanges: Sequence[Exchange]) -> None:  # noqa: ANN401 # reason: any setting
        section, _, name = setting.partition(".")
        try:
            self.profile = self.profile.replace(**{section: {name: value}})
        except InputError:
            return
        self.learned.append(Learned(setting, clause, value, tuple(exchanges)))

    async def _try(self, name: str, steps: Sequence[SequenceStep]) -> None:
        """Leave out an operation or a field whose simplest use is not as assumed."""
        if any(step.role not in self._labels for step in steps):
            return
        if any(step.operation in self.offer.mapped and step.body for step in steps):
            return
        self._plays += 1
        play = self._play(self.profile, self._plays)
        try:
            difference, _ = await play.run(iter(steps))
        except NotOffered:
            difference = Mismatch("", "status", "")
        except Abandoned:
            return
        if difference is None or difference.kind == "secret":
            return  # it is offered; no shape allows an answer to show a secret
        if name == "detokenize" and difference.kind == "value":
            return
        self._leave_out(name)

    def _leave_out(self, name: str) -> None:
        self.left_out.append(name)
        self.offer = replace(
            self.offer,
            operations=self.offer.operations - {name},
            fields=self.offer.fields - {name},
        )

    # --- names and containers -------------------------------------------------------------------

    def _adapted(self, steps: Sequence[SequenceStep]) -> list[SequenceStep]:
        """Return steps with the deployment's container field, form and flag."""
        return [
            replace(step, values=self._renamed(step.values), body=self._renamed(step.body))
            for step in steps
        ]

    def _renamed(self, node: Node) -> Any:  # noqa: ANN401 # reason: a node
        tokens, paths = self.profile.tokens, self._containers()
        if isinstance(node, list):
            return [self._renamed(part) for part in node]
        if not isinstance(node, dict):
            return node
        renamed: dict[str, Node] = {}
        for key, part in node.items():
            if key == "containers" and is_request(node):
                path = {"A": paths[0], "B": paths[-1]}.get(part, part)
                renamed[tokens.container_field] = (
                    path if tokens.container_form == "string" else [path]
                )
            elif key == "deduplicate_token":
                renamed[self.profile.dedup.flag_name] = part
            else:
                renamed[key] = self._renamed(part)
        return renamed

    async def _learn_container_field(self) -> None:
        """Find the field whose container the record then shows, and its form (D-CONTAINER).

        The field that the profile names must be the one. A field that refuses what names no
        container is understood: the token must go where it says.
        """
        clause, path = "TOK-CONTAINER", self._containers()[0]
        usual, form_told = self.profile.tokens.container_field, self.profile.tokens.container_form
        is_told = self._knows("tokens.container_field")
        is_understood = await self._refuses_odd_containers(usual) or is_told
        names, forms = (usual, *_CONTAINER_FIELDS), (form_told, "array", "string")
        accepted: list[tuple[str, str | None, Sequence[Exchange]]] = []
        for name, form in itertools.product(dict.fromkeys(names), dict.fromkeys(forms)):
            value: Node = [path] if form == "array" else path
            container, exchanges = await self._container_of({**_token(), name: value}, name)
            if container == path and (name == usual or not is_told):
                self._note("tokens.container_field", clause, name, exchanges)
                self._note("tokens.container_form", clause, form, exchanges)
                return
            if container == path:
                rule = f"`{usual}` must select the container, as the profile says; `{name}` does"
                self.faults.append((clause, rule, exchanges))
                self._leave_out("containers")
                return
            if name == usual and exchanges and exchanges[0].ok:
                accepted.append((form, container, exchanges))
        if not accepted or not is_understood:
            message = f"none of {', '.join(dict.fromkeys(names))} was seen to select a container"
            self.undecided.append((clause, f"{message}; {self._way_out(is_told)}", ()))
        elif accepted[0][1] is None:
            self._note("tokens.container_form", clause, accepted[0][0], accepted[0][2])
        else:
            rule = f"the token must be in {path}; its record shows {accepted[0][1]}"
            self.faults.append((clause, rule, accepted[0][2]))
        if not is_told:
            self._leave_out("containers")

    async def _refuses_odd_containers(self, field: str) -> bool:
        """Return whether values that cannot name a container are refused."""
        bodies = ({**_token(), field: value} for value in (5, {"a": "b"}, [5]))
        try:
            _, exchanges = await self._answers(_tokenize("private_prod", *bodies))
        except Abandoned:
            return False
        self._is_crashed("TOK-CONTAINER", f"`{field}` that names no container", exchanges)
        return all(map(is_refused, exchanges))

    def _way_out(self, is_told: bool) -> str:  # noqa: FBT001 # reason: its one question
        """Return what to add to the target or its profile so that containers can be judged."""
        if not is_told:
            return "name the field in the profile (tokens.container_field)"
        if not self.offer.containers:
            return "name containers that exist in the target (containers)"
        return "neither the record nor a read of the token shows its container"

    async def _learn_default_containers(self) -> None:
        """Find the container of a token whose request names none (D-CONTAINER-DEFAULT)."""
        field = self.profile.tokens.container_field
        for kind, element in (("token", _token()), ("card", _card())):
            setting = f"tokens.container_default_{kind}"
            if self._knows(setting):
                continue
            container, exchanges = await self._container_of(element, field)
            if container is not None:
                self._note(setting, "TOK-CONTAINER", container, exchanges)

    async def _container_of(self, element: Node, field: str) -> tuple[str | None, list[Exchange]]:
        """Tokenize an element; return the container that its record, or a read of it, shows."""
        role = "private_reader" if "private_reader" in self.offer.roles else "private_prod"
        steps = _tokenize(role, element)
        if "get" in self.offer.operations:
            steps.append(SequenceStep(1, "get", role, {"id": Ref(0, 0)}))
        try:
            _, exchanges = await self._answers(steps)
        except Abandoned:
            return None, []
        for exchange in exchanges:
            containers = list(_containers_of(exchange, field))
            if len(containers) == 1:
                return containers[0], exchanges
        return None, exchanges

    async def _learn_limit_status(self) -> None:
        """Find the status over a token quota (D-LIMIT-STATUS)."""
        setting = "tokens.limit_status"
        if self._knows(setting):
            return
        quota = self._ctx.quota("Tokenize Limit", self._labels["private_prod"])
        body = [TextValue(place + 1) for place in range(quota + 1)]
        patient = self.profile.replace(tokens={"limit_status": 429})  # a 429 is an answer here
        with contextlib.suppress(Abandoned):
            _, exchanges = await self._answers(_tokenize("private_prod", body), patient)
            if exchanges[0].status in _SETTINGS[setting].listed:
                self._note(setting, "TOK-LIMIT", exchanges[0].status, exchanges)


def _containers_of(exchange: Exchange, field: str) -> Iterator[str]:
    """Yield the containers that the record in an answer shows."""
    try:
        record = exchange.json if exchange.ok else None
    except ValueError:
        return
    for name in dict.fromkeys((field, "containers", "container")):
        value = record.get(name) if isinstance(record, dict) else None
        if isinstance(value, str | list):
            yield from (
                [value]
                if isinstance(value, str)
                else [path for path in value if isinstance(path, str)]
            )
            return
