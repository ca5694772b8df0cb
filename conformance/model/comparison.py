"""Comparison of two answers to one step: the reference's and the deployment's.

Identifiers and fingerprints are matched by a bijection, times by their distance. Only what the
specification states is compared: a field that it does not name may be there, and where an
operation's shape is assumed, a field may be missing. The first difference ends a sequence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from conformance.context.answers import (
    UUID,
    elements_in,
    flag_of,
    is_known,
    is_request,
    is_secret_in,
    is_uuid,
    strings_in,
    text_in,
)
from conformance.messages.exchange import Exchange, parsed_or_none
from conformance.model.blame import (
    FIELD_CLAUSES,
    acceptance_clause,
    refusal_clause,
    shape_clause,
    value_clause,
    value_of,
)
from conformance.model.reference import ReferenceAnswer
from engine.messages import Json

_CLOCK_S: Final = 2.0
_CLOCKS_DIFFER: Final = timedelta(minutes=5)
_WORD: Final = r"(?<![\w.:-]){}(?![\w.:-])"
_CVC: Final = '"cvc"'
_SHORT: Final = 8
"""A secret of at most this many characters is looked for as a whole word."""
TYPES: Final = ("token", "card")
TOKENIZING: Final = frozenset({"tokenize", "create"})
_PRESENT_IF_SUPPLIED: Final = ("metadata", "search_indexes")
_SHOWN_FIELDS: Final = ("data", "metadata", "search_indexes", "mask", "fingerprint")


class Tie(Exception):
    """Equal tokens of one request: a deduplicated element may be either (D-DEDUP-KEY)."""


class Mismatch(Exception):
    """A difference of two answers: its clause, its kind, and what differs.

    kind: what stays the same while a sequence is shrunk. is_direct: whether the answer to the
    request itself is wrong, not what a later request finds of it. place: for a record that is not
    redacted, its type and whether it shows all of what it must hide.
    """

    def __init__(
        self, clause: str, kind: str, message: str, *, is_direct: bool = True, place: str = ""
    ) -> None:
        super().__init__(f"{clause}: {message}")
        self.place = place
        self.clause = clause
        self.kind = kind
        self.message = message
        self.is_direct = is_direct


@dataclass(slots=True)
class SentStep:
    """What a step sent, and what is needed to judge it.

    operation: its name. body: the rendered body of the reference. number: the
    step's. quota: the Tokenize Limit of the caller's tenant; of a detokenize, the Detokenize Limit.
    has_dedup: whether deduplication is on for the tenant. is_odd: whether a value is not plain.
    elements: of a detokenize, the request elements behind its expressions. is_filtered: whether it
    asks for some tokens alone. header: what stands in the key's header instead of the key. is_raw:
    whether the body is bytes with a form of their own. answered_at: when the answer was given, by
    its `Date` or this machine's clock.
    """

    operation: str
    number: int
    body: Json = None
    quota: int = 5
    has_dedup: bool = False
    is_odd: bool = False
    elements: Sequence[Json] = ()
    is_filtered: bool = False
    header: str = ""
    is_raw: bool = False
    answered_at: datetime | None = None


@dataclass(slots=True)
class AnswerComparison:
    """The bijection of one play, and what it knows of the deployment's tokens.

    container_field, flag: the names of these fields. is_tie: whether two tokens of the reference
    are equal and of one instant. has_uuids: whether records were seen to have UUIDs as identifiers.
    secrets: texts that no answer may show.
    """

    container_field: str
    flag: str
    is_tie: Callable[[str, str], bool]
    has_uuids: bool = False
    secrets: set[str] = field(default_factory=set)
    to_deployment: dict[Hashable, Hashable] = field(default_factory=dict)
    to_reference: dict[Hashable, Hashable] = field(default_factory=dict)
    _principals: dict[str, str] = field(default_factory=dict)
    _created_at: dict[str, str] = field(default_factory=dict)
    _offset_s: float | None = None
    _origins: dict[str, tuple[int, Json]] = field(default_factory=dict)
    _bodies: dict[int, Json] = field(default_factory=dict)
    _refused: dict[str, str] = field(default_factory=dict)

    # --- one step -------------------------------------------------------------------------------

    def compare(self, sent: SentStep, expected: ReferenceAnswer, exchange: Exchange) -> None:
        """Compare the answers to a step; raises `Mismatch`."""
        status = exchange.status
        assert status is not None, "a step without an answer is not compared"
        is_expected, is_ok = expected.ok, exchange.ok
        if not is_expected and is_ok:
            raise self._accepted(sent, expected, status)
        if is_expected and not is_ok:
            self._check_secrets(sent, expected, exchange)
            raise self._refused_by(sent, status)
        if is_expected and sent.operation == "detokenize":
            self._detokenized(sent, expected.body, parsed_or_none(exchange.content))
        if not is_expected:
            self._check_secrets(sent, expected, exchange)
            self._note_refusal(sent, expected)
            if status // 100 != 4:
                message = f"a refusal must be a 4xx, got {status}"
                raise Mismatch(_refusal_clause(sent, expected), "status", message)
            return
        if sent.operation == "detokenize":
            return
        if sent.operation in TOKENIZING and parsed_or_none(exchange.content) is None:
            raise Mismatch("TOK-JSON", "json", "the answer must be JSON")
        self._answers(sent, expected.body, parsed_or_none(exchange.content))
        self._check_secrets(sent, expected, exchange)

    def _answers(self, sent: SentStep, expected: Any, given: Any) -> None:  # noqa: ANN401 # reason: any JSON
        """Compare two successful answers."""
        if sent.operation in TOKENIZING:
            self._bodies[sent.number] = sent.body
            self._walk(sent, sent.body, expected, given, "")
        elif sent.operation in {"list", "search"}:
            self._page(sent, expected, given)
        elif isinstance(expected, dict):
            self._object(sent, expected, given)

    def _accepted(self, sent: SentStep, expected: ReferenceAnswer, status: int) -> Mismatch:
        clause = _refusal_clause(sent, expected)
        if sent.header:
            clause = "AUTH-HEADER"
        elif expected.status == 404 and sent.operation not in TOKENIZING:  # reason: not found
            clause = "TOK-DEDUP" if sent.operation == "search" else _default_clause(sent)
        rule = f"{sent.operation} must be refused with a 4xx, got {status}"
        return Mismatch(clause, "status", rule)

    def _refused_by(self, sent: SentStep, status: int) -> Mismatch:
        message = f"{sent.operation} must be accepted, got {status}"
        if sent.header or sent.is_raw:
            clause = "AUTH-HEADER" if sent.header else "TOK-JSON"
            return Mismatch(clause, "status", message)
        if sent.operation == "detokenize":
            clause = value_clause(next(iter(sent.elements), ""))
            if len(sent.elements) >= sent.quota and status != 404:  # reason: an unknown token
                clause = "QUO-DETOKENIZE"
            return Mismatch(clause, "status", message, is_direct=False)
        if sent.operation not in TOKENIZING:
            return Mismatch(_default_clause(sent), "status", message, is_direct=False)
        body = sent.body
        clause = acceptance_clause(
            body,
            status,
            quota=sent.quota,
            container_field=self.container_field,
            is_odd=sent.is_odd,
        )
        if self.flag in str(body) and clause in {"TOK-OBJECT", "TOK-ARRAY", "TOK-COMPOSITE"}:
            clause = "TOK-DEDUP"
        return Mismatch(clause, "status", message)

    def _note_refusal(self, sent: SentStep, expected: ReferenceAnswer) -> None:
        """Remember the elements of a refused request: none of them may have been created."""
        if sent.operation in TOKENIZING:
            clause = "TOK-LIMIT" if expected.clause == "TOK-LIMIT" else "TOK-ATOMIC"
            if expected.status == 403:  # reason: forbidden
                clause = "AUTH-CREATE"
            for element in elements_in(sent.body):
                self._refused.setdefault(_value_key(element), clause)

    def _check_secrets(self, sent: SentStep, expected: ReferenceAnswer, exchange: Exchange) -> None:
        """No answer may show what was sent as sensitive, unless the reference shows it too."""
        text = exchange.body.decode(errors="replace")
        whole = text_in(exchange)
        lower = whole.lower()
        due = "\n".join((expected.raw, *strings_in(expected.body))).lower()
        query = str(sent.body).lower() if sent.operation == "search" else ""
        for secret in self.secrets:
            if secret.lower() in query:
                continue  # an answer may repeat its own query
            if len(secret) > _SHORT:
                is_there = secret.lower() in lower or is_secret_in(whole, secret)
                is_due = secret.lower() in due
            else:
                word = re.compile(_WORD.format(re.escape(secret)))
                is_there, is_due = bool(word.search(text)), bool(word.search(expected.raw))
                is_there |= secret in _numbers(parsed_or_none(exchange.content))
            if is_there and not is_due:
                message = f"the answer ({exchange.status}) shows a value that was sent as sensitive"
                raise Mismatch("REC-SECRET", "secret", message)

    # --- tokenize -------------------------------------------------------------------------------

    def _walk(self, sent: SentStep, body: Json, expected: Any, given: Any, at: str) -> None:  # noqa: ANN401 # reason: any JSON
        """Compare the answer to a tokenize body part by part."""
        where = f"at {at or '/'}: "
        if is_request(body):
            if not isinstance(given, dict) or not isinstance(given.get("id"), str):
                message = f"{where}a token request object must come back as a record"
                clause = self._inner(at) if at else "TOK-OBJECT"
                raise Mismatch(clause, "structure", message)
            self._record(sent, expected, given, body)
        elif isinstance(body, str):
            self._leaf(sent, body, expected, given, where)
        elif isinstance(body, dict):
            if not isinstance(given, dict) or set(given) != set(body):
                message = f"{where}the keys must be those of the body"
                raise Mismatch(self._outer(body, at), "structure", message)
            for key, part in body.items():
                self._walk(sent, part, expected[key], given[key], f"{at}/{key}")
        elif isinstance(body, list):
            self._list(sent, body, expected, given, at)
        elif isinstance(expected, str) and isinstance(given, str):  # a number that is tokenized
            self._leaf(sent, body, expected, given, where)
        elif expected != given or isinstance(expected, bool) != isinstance(given, bool):
            message = f"{where}a part that holds no string must come back as {expected!r}"
            raise Mismatch("TOK-COMPOSITE", "structure", message)

    def _list(self, sent: SentStep, body: list[Any], expected: Any, given: Any, at: str) -> None:  # noqa: ANN401 # reason: any JSON
        where = f"at {at or '/'}: "
        if not isinstance(given, list) or len(given) != len(body):
            message = f"{where}the array must have {len(body)} elements"
            raise Mismatch(self._outer(body, at), "structure", message)
        kinds, wanted = [_kind(part) for part in given], [_kind(part) for part in expected]
        if kinds != wanted and sorted(kinds) == sorted(wanted):
            message = f"{where}the elements must be in the body's order"
            raise Mismatch(self._outer(body, at), "structure", message)
        for place, part in enumerate(body):
            self._walk(sent, part, expected[place], given[place], f"{at}/{place}")

    @staticmethod
    def _outer(body: Json, at: str) -> str:
        """Return the clause of an array or object; one that is right alone breaks TOK-COMPOSITE."""
        return "TOK-COMPOSITE" if at else shape_clause(body)

    @staticmethod
    def _inner(at: str) -> str:
        """Return the clause of a request object that is right alone."""
        return "TOK-ARRAY" if re.fullmatch("/[0-9]+", at) else "TOK-COMPOSITE"

    def _leaf(self, sent: SentStep, body: Json, expected: Json, given: Json, where: str) -> None:
        if not isinstance(given, str) or not given or given == body:
            message = f"{where}a plain string must come back as an identifier string"
            raise Mismatch("TOK-LEAF", "structure", message)
        self._identifier(sent, expected, given, body)
        if not is_uuid(given):
            is_inside = self.has_uuids and UUID.search(given) is not None
            rule = "come back as the identifier alone" if is_inside else "have a UUID as identifier"
            clause = "TOK-LEAF" if is_inside else "REC-ID"
            raise Mismatch(clause, "field id", f"{where}a plain string must {rule}")

    def _identifier(self, sent: SentStep, expected: Any, given: str, element: Json) -> None:  # noqa: ANN401 # reason: any JSON
        """Match the identifiers of an element; the bijection is what deduplication is about."""
        known, back = self.to_deployment.get(expected), self.to_reference.get(given)
        if known is None and back is None:
            self.to_deployment[expected], self.to_reference[given] = given, expected
            self._origins[given] = (sent.number, element)
            return
        if known == given:
            return
        is_leaf = not isinstance(element, dict)
        has_dedup = sent.has_dedup or (isinstance(element, dict) and self.flag in element)
        if known is not None and back is not None and self._are_swapped(str(known), given):
            if self.is_tie(str(expected), str(back)):
                raise Tie
            body = self._bodies.get(self._origins[given][0])
            message = "the identifier of another element of an earlier request comes back"
            raise Mismatch(_order_clause(body), "identity", message, is_direct=False)
        if known is not None:
            raise Mismatch("TOK-DEDUP", "identity", "an equal value must return the existing id")
        message = "a new token must get a new identifier, not an earlier one's"
        if has_dedup or self._is_of_equal_value(sent, given, element):
            clause = "TOK-DEDUP"
        else:
            clause = "TOK-LEAF" if is_leaf else "REC-ID"
        raise Mismatch(clause, "identity", message)

    def _are_swapped(self, known: str, given: str) -> bool:
        """Whether two identifiers came from one request."""
        first, second = self._origins.get(known), self._origins.get(given)
        return first is not None and second is not None and first[0] == second[0]

    def _is_of_equal_value(self, sent: SentStep, given: str, element: Json) -> bool:
        """Whether an identifier is an earlier request's, of an equal value.

        Equal values of one body that share an identifier are no deduplication: it is off here.
        """
        number, origin = self._origins.get(given, (sent.number, None))
        return number != sent.number and _value_key(origin) == _value_key(element)

    # --- records --------------------------------------------------------------------------------

    def _record(
        self, sent: SentStep, expected: dict[str, Any], given: dict[str, Any], element: Json
    ) -> None:
        """Compare two records; element: the token request object, None for a read."""
        is_strict = sent.operation in TOKENIZING
        known = is_known(expected)
        if is_strict:
            self._deduplicated(expected, given, element)
        for name in expected:
            clause = self._field_clause(name, is_known=known)
            if clause is None:
                continue
            if name not in given:
                if is_strict and name not in {self.container_field, "containers"}:
                    message = f"the record must hold `{name}`"
                    if known and name in {"data", "metadata"}:
                        clause = "AUTH-READ"  # a reader does not see what it may
                    raise Mismatch(clause, f"field {name}", message)
                continue
            self._field(sent, name, clause, expected, given, element)
        if is_strict and not known:
            self._check_now(sent, given)
        self._check_absent(expected, given, is_known=known, is_strict=is_strict)

    @staticmethod
    def _check_now(sent: SentStep, given: Mapping[str, Any]) -> None:
        """Refuse a new token that was not created when its answer was given."""
        created = instant(given.get("created_at"))
        if created is not None and sent.answered_at is not None:
            apart = created - sent.answered_at
            if abs(apart) >= _CLOCKS_DIFFER:
                way = "ahead" if apart > timedelta() else "behind"
                message = f"`created_at` must be the current time, but is {abs(apart)} {way}"
                raise Mismatch("REC-CREATED", "field created_at", message)

    def _check_absent(
        self,
        expected: Mapping[str, Any],
        given: Mapping[str, Any],
        *,
        is_known: bool,
        is_strict: bool,
    ) -> None:
        """Refuse fields that a record must not hold."""
        for name in _SHOWN_FIELDS:
            is_named = is_strict and name == "data" and given.get("type") == "token"
            is_shown = is_named or self._is_shown(name, given.get(name))
            if name in given and name not in expected and is_shown:
                clause = FIELD_CLAUSES[name]
                if name == "data" and given.get("type") != "card":
                    clause = "REC-TOKEN-DATA"
                place = ""
                if is_known and name in {"data", "metadata"}:
                    clause = "REC-DEDUP-REDACT"
                    hidden = {"metadata"} | ({"data"} if given.get("type") == "card" else set())
                    place = f"{given.get('type')}{'' if hidden <= given.keys() else ' in part'}"
                message = f"the record must not hold `{name}`"
                raise Mismatch(clause, f"field {name}", message, place=place)

    @staticmethod
    def _is_shown(name: str, value: Json) -> bool:
        return value is not None or name in _PRESENT_IF_SUPPLIED

    def _field_clause(self, name: str, *, is_known: bool) -> str | None:
        if name in {self.container_field, "containers"}:
            return "TOK-CONTAINER"
        if name == "metadata" and is_known:
            return "TOK-DEDUP"
        return FIELD_CLAUSES.get(name)

    def _deduplicated(self, expected: dict[str, Any], given: dict[str, Any], element: Json) -> None:
        due, flag = flag_of(expected), flag_of(given)
        if flag is None:
            message = "`_extras.deduplicated` must be a boolean"
            raise Mismatch("REC-EXTRAS", "field _extras", message)
        if due == flag:
            return
        refused = self._refused.get(_value_key(element))
        if due is False and refused is not None and given["id"] not in self.to_reference:
            message = "a refused request must create nothing; its value exists"
            raise Mismatch(refused, "created", message)
        message = f"`_extras.deduplicated` must be {str(due).lower()}"
        is_plain = "encrypted" not in str(element)
        raise Mismatch("TOK-DEDUP", "field _extras", message, is_direct=is_plain)

    def _field(  # reason: two records, a field of them, and its clause
        self,
        sent: SentStep,
        name: str,
        clause: str,
        expected: dict[str, Any],
        given: dict[str, Any],
        element: Json,
    ) -> None:
        """Compare one field of two records."""
        value, other, kind = expected[name], given[name], f"field {name}"
        if name == "_extras":
            return
        if name in {"id", "tenant_id", "created_by"} and not is_uuid(other):
            raise Mismatch(clause, kind, f"`{name}` must be a UUID string")
        if name == "id":
            self._identifier(sent, value, other, element)
        elif name == "tenant_id":
            self._bind(("tenant", value), ("tenant", other), clause, "tenant_id")
        elif name == "created_by":
            is_same = self._principals.setdefault(value, other) == other
            if not is_same or other == given.get("tenant_id"):  # keys may share an application
                raise Mismatch(clause, kind, "`created_by` must be the creating principal")
        elif name == "created_at":
            self._instant(str(expected["id"]), value, other, clause)
        elif name == "fingerprint":
            scope = (expected.get("type"), str(expected.get("fingerprint_expression")))
            mine = ("fingerprint", expected.get("tenant_id"), *scope, value)
            theirs = ("fingerprint", expected.get("tenant_id"), *scope, str(other))
            self._bind(mine, theirs, clause, name)
            self._check_derived(str(other), clause)
        elif not is_equal(value, other):
            raise Mismatch(clause, kind, f"`{name}` must be {_short(value)}")

    def _check_derived(self, fingerprint: str, clause: str) -> None:
        if any(len(secret) > _SHORT and secret in fingerprint for secret in self.secrets):
            message = "`fingerprint` must be derived from the value, without containing it"
            raise Mismatch(clause, "field fingerprint", message)

    def _bind(self, mine: Hashable, theirs: Hashable, clause: str, name: str) -> None:
        known, back = self.to_deployment.get(mine), self.to_reference.get(theirs)
        if known is None and back is None:
            self.to_deployment[mine], self.to_reference[theirs] = theirs, mine
        elif known is not None and known != theirs:
            message = f"`{name}` must be equal where it was before"
            raise Mismatch(clause, f"field {name}", message)
        elif back != mine:
            message = f"`{name}` must differ from an earlier one"
            raise Mismatch(clause, f"field {name}", message)

    def _instant(self, token_id: str, value: str, other: Json, clause: str) -> None:
        kind = "field created_at"
        moment = instant(other)
        if moment is None:
            message = "`created_at` must be an ISO 8601 time with UTC offset"
            raise Mismatch(clause, kind, message)
        before = self._created_at.setdefault(token_id, str(other))
        if instant(before) != moment:
            message = "`created_at` of a token must stay what it was"
            raise Mismatch(clause, kind, message)
        due = instant(value)
        assert due is not None, "the engine writes such times"
        offset_s = (moment - due).total_seconds()
        if self._offset_s is None:
            self._offset_s = offset_s
        if abs(offset_s - self._offset_s) > _CLOCK_S:
            raise Mismatch(clause, kind, "`created_at` must be the time of creation")

    # --- other operations -----------------------------------------------------------------------

    def _object(self, sent: SentStep, expected: dict[str, Any], given: Json) -> None:
        """Compare an answer whose shape is assumed: what both sides hold."""
        if not isinstance(given, dict):
            return
        if "id" in expected and "tenant_id" in expected and "type" in expected:
            self._record(sent, expected, given, None)
        elif isinstance(expected.get("id"), str) and isinstance(given.get("id"), str):
            self._bind(expected["id"], given["id"], _default_clause(sent), "id")
        if isinstance(expected.get("key"), str) and isinstance(given.get("key"), str):
            self._bind(expected["key"], given["key"], "AUTH-HEADER", "key")

    def _page(self, sent: SentStep, expected: Any, given: Json) -> None:  # noqa: ANN401 # reason: any JSON
        """Compare lists: the set of the tokens of this play, in any order."""
        rows = given.get("data") if isinstance(given, dict) else given
        if not isinstance(rows, list):
            return
        records = {row["id"]: row for row in rows if isinstance(row, dict) and "id" in row}
        due = {self.to_deployment.get(row["id"]): row for row in expected["data"]}
        clause = _default_clause(sent)
        if sent.is_filtered:
            extra = [name for name in records if name in self.to_reference and name not in due]
            if extra:
                message = f"{sent.operation} must not return {len(extra)} of the tokens"
                raise Mismatch(clause, "extra", message, is_direct=False)
            missing = [name for name in due if name is not None and name not in records]
            if missing:
                message = f"{sent.operation} must return {len(missing)} more of the tokens"
                raise Mismatch(clause, "missing", message, is_direct=False)
        for name, row in due.items():
            if name in records:
                self._record(sent, row, records[name], None)

    def _detokenized(self, sent: SentStep, expected: Json, given: Json) -> None:
        """Compare plaintext, expression by expression."""
        dues, values = _values(expected), _values(given)
        if len(dues) != len(values) or type(expected) is not type(given):
            message = "detokenize must keep the structure of its body"
            raise Mismatch("QUO-DETOKENIZE", "value", message)
        for place, (due, value) in enumerate(zip(dues, values, strict=True)):
            if is_equal(due, value) or (isinstance(due, str) and self._translated(due) == value):
                continue
            element = sent.elements[min(place, len(sent.elements) - 1)] if sent.elements else ""
            raise self._wrong_value(due, value, element)

    def _translated(self, text: str) -> str:
        """Return a stored text with the deployment's identifiers for the reference's."""
        return UUID.sub(lambda match: str(self.to_deployment.get(match[0], match[0])), text)

    def _wrong_value(self, due: Json, value: Json, element: Json) -> Mismatch:
        both_texts = isinstance(due, str) and isinstance(value, str)  # a card inside a text
        is_cvc = both_texts and (_CVC in str(due)) != (_CVC in str(value))
        if isinstance(due, dict) and isinstance(value, dict):
            is_cvc = set(due) ^ set(value) == {"cvc"}
        if is_cvc:
            rule = "must be readable" if "cvc" in str(due) else "must be gone"
            message = f"the cvc {rule}: its retention decides"
            return Mismatch("QUO-CVC", "cvc", message, is_direct=False)
        for number, body in self._bodies.items():
            values = [value_of(other) for other in elements_in(body)]
            if due in values and value in values:
                message = f"step {number}: an identifier stands for the value of another element"
                return Mismatch(_order_clause(body), "value", message)
        message = "the stored value must be the one that was sent"
        return Mismatch(value_clause(element), "value", message)


def _default_clause(sent: SentStep) -> str:
    operations = {
        "create_token_intent": "QUO-INTENT",
        "get_token_intent": "QUO-INTENT",
        "delete_token_intent": "QUO-INTENT",
        "search": "TOK-INDEXES",
        "detokenize": "AUTH-READ",
        "create_reactor": "RCT-CODE",
        "patch_reactor": "RCT-CODE",
        "create_application": "AUTH-KINDS",
    }
    if sent.operation in TOKENIZING:
        return "TOK-JSON" if sent.body is None else shape_clause(sent.body)
    return operations.get(sent.operation, "TOK-OBJECT")


def _refusal_clause(sent: SentStep, expected: ReferenceAnswer) -> str:
    """Return the clause of a request that the reference refuses."""
    if expected.clause == "D-TYPE-VALUE":
        types = [element["type"] for element in elements_in(sent.body) if is_request(element)]
        odd = [name for name in types if name not in TYPES]
        is_cased = all(not isinstance(name, str) or name.lower() in TYPES for name in odd)
        return "TOK-OBJECT" if is_cased else "TOK-TYPES"
    if expected.clause == "D-EXPR" and "search_indexes" in expected.raw:
        return "TOK-INDEXES"
    return refusal_clause(expected.clause, expected.status, _default_clause(sent))


def _order_clause(body: Json) -> str:
    """Return the clause of the shape that holds several elements of a body."""
    clause = shape_clause(body)
    return "TOK-ARRAY" if clause in {"TOK-LEAF", "TOK-OBJECT"} else clause


def _value_key(element: Json) -> str:
    """Return what makes an element's value; for deduplication within a type."""
    value = value_of(element)
    if isinstance(value, dict):
        value = value.get("number")
    kind = element.get("type") if isinstance(element, dict) else "token"
    return f"{kind} {value!r}"


def _values(answer: Json) -> list[Json]:
    """Return the members of the object or of the arrays of a detokenize answer."""
    if isinstance(answer, dict):
        return list(answer.values())
    if isinstance(answer, list):
        return [value for part in answer for value in (part if isinstance(part, list) else [part])]
    return [answer]


def _numbers(answer: Json) -> set[str]:
    """Return the numbers of an answer, as text."""
    if isinstance(answer, dict | list):
        inner = answer.values() if isinstance(answer, dict) else answer
        return set().union(*map(_numbers, inner))
    return {str(answer)} if isinstance(answer, int | float) else set()


def _kind(part: Json) -> str:
    if isinstance(part, dict) and "_extras" in part:
        fields = ("type", *_SHOWN_FIELDS[1:4], "fingerprint_expression")
        return repr([sorted(part), *(part.get(name) for name in fields)])
    if isinstance(part, dict):
        return "object"
    return "array" if isinstance(part, list) else "string" if isinstance(part, str) else "other"


def is_equal(value: Json, other: Json) -> bool:
    """Compare JSON: `12.0` is 12, `true` is not 1.

    >>> is_equal({"a": [12]}, {"a": [12.0]}), is_equal(1, True)
    (True, False)
    """
    if isinstance(value, dict) and isinstance(other, dict):
        return value.keys() == other.keys() and all(is_equal(v, other[k]) for k, v in value.items())
    if isinstance(value, list) and isinstance(other, list):
        return len(value) == len(other) and all(map(is_equal, value, other))
    return isinstance(value, bool) == isinstance(other, bool) and value == other


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def instant(text: object) -> datetime | None:
    """Return an ISO 8601 time with an offset, None for anything else."""
    if not isinstance(text, str) or "T" not in text.upper():
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment
