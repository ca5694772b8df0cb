"""The types: what a token request object may hold, and the new token that a valid one becomes.

Everything here is checked after permissions (D-ORDER), every fault of the whole body is named in
one 400 by its JSON Pointer, and one fault anywhere fails the request (TOK-ATOMIC). No message
quotes a value. Faults inside an encrypted payload are named at `encrypted`, which is what the
caller sent.

    TOK-ONE-OF      at least one of `data` and `encrypted`; both: D-ONE-OF
    TOK-TOKEN-DATA  `data` of a `token` is a string; else D-TOKEN-DATA
    TOK-CARD-DATA   number, expiration_month, expiration_year, cvc: `rules`
    TOK-METADATA    an object of string to string, bounded by D-METADATA
    TOK-INDEXES     an array of expressions, bounded by D-INDEXES
    TOK-FPEXPR      one expression (D-EXPR)

The walk (`shapes`) finds the objects and their containers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import orjson
from msgspec import Struct, field

from engine.errors import VaultError, did_you_mean
from engine.messages import Json, Problem
from engine.tokens import expressions
from engine.tokens.expressions import DATA, MISSING, Path
from engine.tokens.rules import STRUCTURED_TYPES, Rules
from engine.tokens.shapes import NewToken, TokenizeBody
from engine.tokens.strict_json import BodyErrors, dumps, escaped, parse

Decrypt: TypeAlias = Callable[[str], bytes]
"""Opens a compact encrypted payload; raises `VaultError` with a reason that quotes nothing."""

OpenIntent: TypeAlias = Callable[[str], tuple[str, Json] | None]
"""Intent id → (type, data) of a token intent of the tenant that has not expired, else None."""

NOTHING: Final = object()
"""What a reader returns after a fault."""


class Validation(Struct, eq=False):
    """One reading of one body: the rules, what it may call, what is wrong so far.

    fields: what an object may hold here. deduplicate: the tenant's setting (D-DEDUP).
    cvc_optional: no cvc is required, for a stored card without one. intents: the consumed ones.
    """

    rules: Rules
    fields: frozenset[str]
    deduplicate: bool = False
    decrypt: Decrypt | None = None
    open_intent: OpenIntent | None = None
    cvc_optional: bool = False
    faults: BodyErrors = field(default_factory=BodyErrors)
    intents: set[str] = field(default_factory=set)


BOTH_FAULT: Final = "must hold one of `data` and `encrypted`, not both"
_INTENT_FAULT: Final = "must be the id of a token intent that has not expired"
_CVC_FAULT: Final = "must not be derived from the cvc"
_SELECTS_NOTHING: Final = "must select a value of `data`"
_SELECTS_EMPTY: Final = "must select a value of `data` that is not empty"
_COMPACTED_ELEMENTS: Final = 1_000
"""From this number of elements on, their texts are made compact."""


def validate(
    walked: TokenizeBody,
    rules: Rules,
    deduplicate: bool = False,  # noqa: FBT001, FBT002 # reason: the hot path calls by position
    decrypt: Decrypt | None = None,
    open_intent: OpenIntent | None = None,
) -> list[NewToken]:
    """Return one new token per element, in order.

    deduplicate: the tenant's setting (D-DEDUP). decrypt: opens `encrypted`; without it such a
    payload is refused. open_intent: finds token intents; without it every id is unknown.
    Raises `Problem` 400 naming every fault of the body.
    """
    reading: Validation | None = None
    expression = rules.leaf_expression
    is_many = len(walked.elements) > _COMPACTED_ELEMENTS
    write = _compact if is_many else orjson.dumps
    walked.deduplicates = deduplicate
    for new_token in walked.elements:
        if new_token.is_leaf:
            value = new_token.value
            if type(value) is str:  # one text: nothing in it can be ordered
                new_token.plaintext = new_token.selected = write(value)
            else:
                new_token.plaintext = dumps(value)
                new_token.selected = expressions.canonical(value)
                if is_many:
                    _shrink(new_token)
            if expression is not None:
                new_token.fingerprint_expression = expression
            if deduplicate:
                new_token.deduplicate = True
            continue
        if reading is None:
            reading = Validation(rules, rules.fields, deduplicate, decrypt, open_intent)
        _read_object(new_token, reading)
        walked.deduplicates |= new_token.deduplicate
        if is_many:
            _shrink(new_token)
    if reading is not None and reading.faults:
        reading.faults.check()  # obeys TOK-ATOMIC
    return walked.elements


def _compact(value: str) -> bytes:
    """Return JSON in an object no larger than the text.

    The library makes each text in a buffer of a kilobyte, and the freed rest is not reused: a body
    of a million short leaves took four gigabytes.
    """
    return b"%b" % orjson.dumps(value)


def _shrink(new_token: NewToken) -> None:
    """Make a new token's texts compact, as `_compact` does."""
    new_token.plaintext = b"%b" % new_token.plaintext
    new_token.selected = b"%b" % new_token.selected


def validate_intent(
    walked: TokenizeBody, rules: Rules, *, decrypt: Decrypt | None = None
) -> NewToken:
    """Return the new token of a token intent's body: `type` and `data` or `encrypted` (D-INTENT).

    Its cvc is checked and dropped: an intent does not carry it over.
    """
    reading = Validation(rules, rules.intent_fields, decrypt=decrypt)
    (new_token,) = walked.elements
    _read_object(new_token, reading)
    reading.faults.check()
    new_token.cvc = None
    return new_token


def _read_object(new_token: NewToken, reading: Validation) -> None:
    """Read one token request object; what is wrong goes to `reading.faults`."""
    given: dict[str, Any] = new_token.value
    rules = reading.rules
    if not reading.fields.issuperset(given):
        check_fields(given, reading, new_token)
    if reading.deduplicate:
        new_token.deduplicate = True
    flag = given.get(rules.dedup.flag_name, NOTHING)
    if flag is not NOTHING:
        if type(flag) is bool:
            new_token.deduplicate = flag
        else:
            below = escaped(rules.dedup.flag_name)
            reading.faults.at(new_token, below, "must be true or false", "D-DEDUP")
    if "metadata" in given:
        new_token.metadata = read_metadata(given["metadata"], reading, new_token)
    if "search_indexes" in given:
        new_token.search_indexes = read_indexes(given["search_indexes"], reading, new_token)
    supplied = None
    if "fingerprint_expression" in given:
        supplied = read_expression(given["fingerprint_expression"], reading, new_token)
    data = given.get("data", NOTHING)
    if data is NOTHING or "encrypted" in given or "token_intent_id" in given:
        data = _read_source(new_token, given, reading)
    else:
        data = read_data(new_token, data, reading, "data")
    if data is not NOTHING:
        derive(new_token, data, supplied, rules, reading.faults)


def check_fields(given: Mapping[str, Any], reading: Validation, new_token: NewToken) -> None:
    """D-UNKNOWN: an unknown field of the object is a fault, or is ignored."""
    if reading.rules.tokens.unknown_field == "ignore":
        return
    faults = reading.faults
    for name in given:
        if name not in reading.fields:
            if faults.is_full:  # messages that are not shown would take seconds
                faults.add("", "", "D-UNKNOWN")
                continue
            hint = did_you_mean(name, sorted(reading.fields))
            rule = f"is an unknown field{hint}"
            faults.at(new_token, escaped(name), rule, "D-UNKNOWN")


def _read_source(new_token: NewToken, given: Mapping[str, Any], reading: Validation) -> Any:  # noqa: ANN401 # reason: any JSON, or NOTHING
    """Return the data from the object's source; `NOTHING` after a fault (TOK-ONE-OF)."""
    has_data = "data" in given
    has_encrypted = "encrypted" in given
    if "token_intent_id" in given and "token_intent_id" in reading.fields:
        if has_data or has_encrypted:
            fault = "must stand instead of `data` and `encrypted`"
            reading.faults.at(new_token, "/token_intent_id", fault, "D-INTENT")
            return NOTHING
        return _read_intent(new_token, given["token_intent_id"], reading)
    if has_data and has_encrypted:
        choice = reading.rules.tokens.one_of
        if choice == "reject":
            reading.faults.at(new_token, "", BOTH_FAULT, "TOK-ONE-OF")
            return NOTHING
        has_data, has_encrypted = choice == "data", choice == "encrypted"
    if has_data:
        return read_data(new_token, given["data"], reading, "data")
    if has_encrypted:
        opened = open_payload(given["encrypted"], reading, new_token)  # obeys TOK-ENCRYPTED
        return opened if opened is NOTHING else read_data(new_token, opened, reading, "encrypted")
    fault = "must hold one of `data` and `encrypted`"  # obeys TOK-ONE-OF
    reading.faults.at(new_token, "", fault, "TOK-ONE-OF")
    return NOTHING


def _read_intent(new_token: NewToken, given: Any, reading: Validation) -> Any:  # noqa: ANN401 # reason: any JSON, or NOTHING
    """D-INTENT: the data of a token intent, which this request consumes."""
    intent = None
    if type(given) is str and reading.open_intent is not None:
        intent = reading.open_intent(given)
    fault = ""
    if intent is None:
        fault = _INTENT_FAULT
    elif given in reading.intents:
        fault = "must not be consumed twice"
    else:
        reading.intents.add(given)
        if intent[0] != new_token.type:
            fault = "must be a token intent of the same type"
    if intent is None or fault:
        reading.faults.at(new_token, "/token_intent_id", fault, "D-INTENT")
        return NOTHING
    new_token.intent_id = given
    data: Any = intent[1]
    structured_type = STRUCTURED_TYPES.get(new_token.type)
    if structured_type is not None:
        new_token.mask = structured_type.mask(data)
    return data


def consumed(new_token: NewToken) -> Problem:
    """Return the 400 of a token intent that was consumed after its body was read."""
    faults = BodyErrors()
    faults.at(new_token, "/token_intent_id", _INTENT_FAULT, "D-INTENT")
    return faults.problem()


def open_payload(given: Json, reading: Validation, new_token: NewToken) -> Any:  # noqa: ANN401 # reason: any JSON, or NOTHING
    """Return the JSON inside an encrypted payload (TOK-ENCRYPTED, D-ENCRYPTED)."""
    fault = "must be a compact encrypted string"
    if type(given) is str:
        fault = "cannot be opened here"
        try:
            if reading.decrypt is not None:
                return parse(reading.decrypt(given))
        except VaultError as error:
            fault = f"cannot be opened: {error}"
        except Problem:
            fault = "must hold the JSON of `data`"
    reading.faults.at(new_token, "/encrypted", fault, "TOK-ENCRYPTED")
    return NOTHING


def read_data(new_token: NewToken, given: Json, reading: Validation, field: str) -> Any:  # noqa: ANN401 # reason: any JSON, or NOTHING
    """Return `data` as it is kept; `NOTHING` after a fault. Sets the new token's cvc and mask.

    field: where the body holds it, `data` or `encrypted`.
    """
    rules, faults = reading.rules, reading.faults
    structured_type = STRUCTURED_TYPES.get(new_token.type)
    if structured_type is not None:
        parts = structured_type.read(given, rules, faults, new_token, field, reading.cvc_optional)
        if parts is None:
            return NOTHING
        data, new_token.cvc = parts
        new_token.mask = structured_type.mask(data)
        return data
    if new_token.type in rules.any_data:
        if _is_deeper(given, rules.tokens.depth_limit):
            fault = f"must not be nested deeper than {rules.tokens.depth_limit} levels"
            faults.at(new_token, f"/{field}", fault, "D-DEPTH")
            return NOTHING
        return given
    if type(given) is not str:  # obeys TOK-TOKEN-DATA
        fault = "must be a string: `data` of a `token` is one"
        faults.at(new_token, f"/{field}", fault, "TOK-TOKEN-DATA")
        return NOTHING
    return given


def read_metadata(given: Json, reading: Validation, new_token: NewToken) -> dict[str, str] | None:
    """Return a copy of `metadata` (TOK-METADATA, D-METADATA)."""
    faults, bounds = reading.faults, reading.rules.tokens
    if type(given) is not dict:  # obeys TOK-METADATA
        fault = "must be an object of string to string"
        faults.at(new_token, "/metadata", fault, "TOK-METADATA")
        return None
    if len(given) > bounds.metadata_entries_limit:
        fault = f"must have at most {bounds.metadata_entries_limit} entries"
        faults.at(new_token, "/metadata", fault, "D-METADATA")
        return None
    key_limit, value_limit = bounds.metadata_key_limit, bounds.metadata_value_limit
    for key, value in given.items():
        if type(value) is str and len(value) <= value_limit and len(key) <= key_limit:
            continue
        below = f"/metadata{escaped(key)}"
        if type(value) is not str:
            faults.at(new_token, below, "must be a string", "TOK-METADATA")
        elif len(value) > value_limit:
            fault = f"must have at most {value_limit} characters"
            faults.at(new_token, below, fault, "D-METADATA")
        if len(key) > key_limit:
            fault = f"must have a key of at most {key_limit} characters"
            faults.at(new_token, below, fault, "D-METADATA")
    return dict(given)


def read_indexes(given: Json, reading: Validation, new_token: NewToken) -> tuple[str, ...] | None:
    """Return `search_indexes`; None when one is no expression (TOK-INDEXES, D-INDEXES)."""
    faults, limit = reading.faults, reading.rules.tokens.indexes_limit
    if type(given) is not list:  # obeys TOK-INDEXES
        faults.at(new_token, "/search_indexes", "must be an array of expressions", "TOK-INDEXES")
        return None
    if len(given) > limit:
        fault = f"must hold at most {limit} expressions"
        faults.at(new_token, "/search_indexes", fault, "D-INDEXES")
        return None
    fine = True
    for place, text in enumerate(given):
        if type(text) is not str or (text != DATA and expressions.parse(text) is None):
            faults.at(new_token, f"/search_indexes/{place}", expressions.GRAMMAR_FAULT, "D-EXPR")
            fine = False
    return tuple(given) if fine else None


def read_expression(given: Json, reading: Validation, new_token: NewToken) -> str | None:
    """Return `fingerprint_expression`, None when it is none (TOK-FPEXPR, D-EXPR)."""
    if type(given) is str and expressions.parse(given) is not None:  # obeys TOK-FPEXPR
        return given
    reading.faults.at(new_token, "/fingerprint_expression", expressions.GRAMMAR_FAULT, "D-EXPR")
    return None


def _is_deeper(value: Json, levels: int) -> bool:
    """Whether objects and arrays are nested deeper than `levels`."""
    level: Sequence[Any] = [value]
    for _ in range(levels + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


def expression_in_force(type_: str, supplied: str | None, rules: Rules) -> str | None:
    """Return the expression that a record shows (REC-FPEXPR), None for none.

    A card without one, or under `card_fpexpr = number` with any, has `{{ data.number }}`
    (D-CARD-FPEXPR); another token without one has none or `{{ data }}` (D-FPEXPR-DEFAULT).
    """
    structured_type = STRUCTURED_TYPES.get(type_)
    if structured_type is None:
        return rules.leaf_expression if supplied is None else supplied
    if supplied is None or rules.tokens.card_fpexpr == "number":
        return structured_type.expression  # obeys REC-FPEXPR
    return supplied


def derive(
    new_token: NewToken,
    data: Any,  # noqa: ANN401 # reason: any JSON
    supplied: str | None,
    rules: Rules,
    faults: BodyErrors,
) -> None:
    """Set what is derived from `data`: plaintext, fingerprint expression, index messages.

    data: valid, without the cvc, which stands in `new_token.cvc`. `supplied`, and what stands in
    `new_token.search_indexes`, are expressions whose grammar is known to be right. Adds a fault
    where one selects nothing (D-INDEXES) or the cvc (D-CVC-DERIVE).
    """
    is_text = type(data) is str
    structured_type = STRUCTURED_TYPES.get(new_token.type)
    new_token.fingerprint_expression = expression = expression_in_force(
        new_token.type, supplied, rules
    )
    if is_text:  # nothing but the whole can be selected
        new_token.plaintext = new_token.selected = orjson.dumps(data)
    elif structured_type is not None:
        new_token.plaintext = orjson.dumps(data)
    else:
        new_token.plaintext = dumps(data)
    if supplied is not None:
        path = _path(supplied)
        fault = _fault_of(new_token, path, _select(new_token, data, path), rules)
        if fault is not None:
            clause = "D-CVC-DERIVE" if fault is _CVC_FAULT else "REC-FINGERPRINT"
            faults.at(new_token, "/fingerprint_expression", fault, clause)
            return
    if (
        structured_type is not None and expression == structured_type.expression
    ):  # as nearly every card
        new_token.selected = orjson.dumps(data[structured_type.identity])
    elif not is_text:
        new_token.selected = expressions.canonical(
            _select(new_token, data, _path(expression or DATA))
        )
    if new_token.search_indexes is not None:
        new_token.index_messages = _index_messages(
            new_token, data, new_token.search_indexes, rules, faults
        )


def _index_messages(
    new_token: NewToken, data: Json, indexes: tuple[str, ...], rules: Rules, faults: BodyErrors
) -> tuple[bytes, ...]:
    """Return what is hashed, one per index; adds a fault where there is nothing to hash."""
    messages = []
    for place, index in enumerate(indexes):
        if index == DATA and type(data) is str and data:  # as nearly every index of a text
            messages.append(expressions.index_message((), data))
            continue
        path = _path(index)
        value = _select(new_token, data, path)
        fault = _fault_of(new_token, path, value, rules)
        if fault is None and expressions.is_empty(value):
            fault = _SELECTS_EMPTY
        if fault is None:
            messages.append(expressions.index_message(path, value))
        else:
            clause = "D-CVC-DERIVE" if fault is _CVC_FAULT else "D-INDEXES"
            faults.at(new_token, f"/search_indexes/{place}", fault, clause)
    return tuple(messages)


def _fault_of(new_token: NewToken, path: Path, value: object, rules: Rules) -> str | None:
    """Say what is wrong with an expression that selects this value, None for nothing."""
    if path[:1] == ("cvc",) and _has_cvc(new_token) and rules.tokens.cvc_derive == "reject":
        return _CVC_FAULT
    return _SELECTS_NOTHING if value is MISSING else None


def _has_cvc(new_token: NewToken) -> bool:
    structured_type = STRUCTURED_TYPES.get(new_token.type)
    return structured_type is not None and structured_type.has_cvc


def _path(text: str) -> Path:
    path = expressions.parse(text)
    assert path is not None, "its grammar was checked before"
    return path


def _select(new_token: NewToken, data: Any, path: Path) -> Any:  # noqa: ANN401 # reason: any JSON, or MISSING
    """Select from `data`; the cvc, which is kept apart, only when the path names it."""
    if path == ("cvc",) and _has_cvc(new_token):
        return MISSING if new_token.cvc is None else new_token.cvc
    return expressions.select(data, path)
