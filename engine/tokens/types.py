"""The types: what a token request object may hold, and the draft that a valid one becomes.

Everything here is checked after permissions (D-ORDER), every fault of the whole body is named in
one 400 by its JSON Pointer, and one fault anywhere fails the request (TOK-ATOMIC). No message
quotes a value. Faults inside an encrypted payload are named at `encrypted`, which is what the
caller sent.

    TOK-ONE-OF      at least one of `data` and `encrypted`; both: D-ONE-OF
    TOK-TOKEN-DATA  `data` of a `token` is a string; else D-TOKEN-DATA
    TOK-CARD-DATA   number, expiration_month, expiration_year, cvc: `cards`
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
from engine.tokens.expressions import DATA
from engine.tokens.rules import Faults, Rules, escaped
from engine.tokens.shapes import Draft, Plan, derive
from engine.tokens.strict_json import dumps, parse
from engine.tokens.structures import STRUCTURES

Decrypt: TypeAlias = Callable[[str], bytes]
"""Opens a compact encrypted payload; raises `VaultError` with a reason that quotes nothing."""

OpenIntent: TypeAlias = Callable[[str], tuple[str, Json] | None]
"""Intent id → (type, data) of a token intent of the tenant that has not expired, else None."""

NOTHING: Final = object()
"""What a reader returns after a fault."""


class Reading(Struct, eq=False):
    """One reading of one body: the rules, what it may call, what is wrong so far.

    fields: what an object may hold here. deduplicate: the tenant's setting (D-DEDUP).
    misses_cvc: no cvc is required, for a stored card without one. intents: the consumed ones.
    """

    rules: Rules
    fields: frozenset[str]
    deduplicate: bool = False
    decrypt: Decrypt | None = None
    open_intent: OpenIntent | None = None
    misses_cvc: bool = False
    faults: Faults = field(default_factory=Faults)
    intents: set[str] = field(default_factory=set)


BOTH_FAULT: Final = "must hold one of `data` and `encrypted`, not both"
_INTENT_FAULT: Final = "must be the id of a token intent that has not expired"
_MANY: Final = 1_000
"""From this number of elements on, their texts are made compact."""


def validate(
    plan: Plan,
    rules: Rules,
    deduplicate: bool = False,  # noqa: FBT001, FBT002 # reason: the hot path calls by position
    decrypt: Decrypt | None = None,
    open_intent: OpenIntent | None = None,
) -> list[Draft]:
    """Return one draft per element, in order.

    deduplicate: the tenant's setting (D-DEDUP). decrypt: opens `encrypted`; without it such a
    payload is refused. open_intent: finds token intents; without it every id is unknown.
    Raises `Problem` 400 naming every fault of the body.
    """
    reading: Reading | None = None
    expression = rules.leaf_expression
    is_many = len(plan.elements) > _MANY
    write = _compact if is_many else orjson.dumps
    plan.deduplicates = deduplicate
    for draft in plan.elements:
        if draft.is_leaf:
            value = draft.value
            if type(value) is str:  # one text: nothing in it can be ordered
                draft.plaintext = draft.selected = write(value)
            else:
                draft.plaintext = dumps(value)
                draft.selected = expressions.canonical(value)
                if is_many:
                    _shrink(draft)
            if expression is not None:
                draft.fingerprint_expression = expression
            if deduplicate:
                draft.deduplicate = True
            continue
        if reading is None:
            reading = Reading(rules, rules.fields, deduplicate, decrypt, open_intent)
        _read_object(draft, reading)
        plan.deduplicates |= draft.deduplicate
        if is_many:
            _shrink(draft)
    if reading is not None and reading.faults:
        reading.faults.check()  # obeys TOK-ATOMIC
    return plan.elements


def _compact(value: str) -> bytes:
    """Return JSON in an object no larger than the text.

    The library makes each text in a buffer of a kilobyte, and the freed rest is not reused: a body
    of a million short leaves took four gigabytes.
    """
    return b"%b" % orjson.dumps(value)


def _shrink(draft: Draft) -> None:
    """Make a draft's texts compact, as `_compact` does."""
    draft.plaintext = b"%b" % draft.plaintext
    draft.selected = b"%b" % draft.selected


def validate_intent(plan: Plan, rules: Rules, *, decrypt: Decrypt | None = None) -> Draft:
    """Return the draft of a token intent's body: `type` and `data` or `encrypted` (D-INTENT).

    Its cvc is checked and dropped: an intent does not carry it over.
    """
    reading = Reading(rules, rules.intent_fields, decrypt=decrypt)
    (draft,) = plan.elements
    _read_object(draft, reading)
    reading.faults.check()
    draft.cvc = None
    return draft


def _read_object(draft: Draft, reading: Reading) -> None:
    """Read one token request object; what is wrong goes to `reading.faults`."""
    given: dict[str, Any] = draft.value
    rules = reading.rules
    if not reading.fields.issuperset(given):
        check_fields(given, reading, draft)
    if reading.deduplicate:
        draft.deduplicate = True
    flag = given.get(rules.dedup.flag_name, NOTHING)
    if flag is not NOTHING:
        if type(flag) is bool:
            draft.deduplicate = flag
        else:
            below = escaped(rules.dedup.flag_name)
            reading.faults.at(draft, below, "must be true or false", "D-DEDUP")
    if "metadata" in given:
        draft.metadata = read_metadata(given["metadata"], reading, draft)
    if "search_indexes" in given:
        draft.search_indexes = read_indexes(given["search_indexes"], reading, draft)
    supplied = None
    if "fingerprint_expression" in given:
        supplied = read_expression(given["fingerprint_expression"], reading, draft)
    data = given.get("data", NOTHING)
    if data is NOTHING or "encrypted" in given or "token_intent_id" in given:
        data = _read_source(draft, given, reading)
    else:
        data = read_data(draft, data, reading, "data")
    if data is not NOTHING:
        derive(draft, data, supplied, rules, reading.faults)


def check_fields(given: Mapping[str, Any], reading: Reading, draft: Draft) -> None:
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
            rule = f"is no field of this object{hint}"
            faults.at(draft, escaped(name), rule, "D-UNKNOWN")


def _read_source(draft: Draft, given: Mapping[str, Any], reading: Reading) -> Any:  # noqa: ANN401 # reason: any JSON, or NOTHING
    """Return the data from the object's source; `NOTHING` after a fault (TOK-ONE-OF)."""
    has_data = "data" in given
    has_encrypted = "encrypted" in given
    if "token_intent_id" in given and "token_intent_id" in reading.fields:
        if has_data or has_encrypted:
            fault = "must stand instead of `data` and `encrypted`"
            reading.faults.at(draft, "/token_intent_id", fault, "D-INTENT")
            return NOTHING
        return _read_intent(draft, given["token_intent_id"], reading)
    if has_data and has_encrypted:
        choice = reading.rules.tokens.one_of
        if choice == "reject":
            reading.faults.at(draft, "", BOTH_FAULT, "TOK-ONE-OF")
            return NOTHING
        has_data, has_encrypted = choice == "data", choice == "encrypted"
    if has_data:
        return read_data(draft, given["data"], reading, "data")
    if has_encrypted:
        opened = open_payload(given["encrypted"], reading, draft)  # obeys TOK-ENCRYPTED
        return opened if opened is NOTHING else read_data(draft, opened, reading, "encrypted")
    fault = "must hold one of `data` and `encrypted`"  # obeys TOK-ONE-OF
    reading.faults.at(draft, "", fault, "TOK-ONE-OF")
    return NOTHING


def _read_intent(draft: Draft, given: Any, reading: Reading) -> Any:  # noqa: ANN401 # reason: any JSON, or NOTHING
    """D-INTENT: the data of a token intent, which this request consumes."""
    found = None
    if type(given) is str and reading.open_intent is not None:
        found = reading.open_intent(given)
    fault = ""
    if found is None:
        fault = _INTENT_FAULT
    elif given in reading.intents:
        fault = "must not be consumed twice"
    else:
        reading.intents.add(given)
        if found[0] != draft.type:
            fault = "must be a token intent of the same type"
    if found is None or fault:
        reading.faults.at(draft, "/token_intent_id", fault, "D-INTENT")
        return NOTHING
    draft.intent_id = given
    return found[1]


def consumed(draft: Draft) -> Problem:
    """Return the 400 of a token intent that was consumed after its body was read."""
    faults = Faults()
    faults.at(draft, "/token_intent_id", _INTENT_FAULT, "D-INTENT")
    return faults.problem()


def open_payload(given: Json, reading: Reading, draft: Draft) -> Any:  # noqa: ANN401 # reason: any JSON, or NOTHING
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
    reading.faults.at(draft, "/encrypted", fault, "TOK-ENCRYPTED")
    return NOTHING


def read_data(draft: Draft, given: Json, reading: Reading, field: str) -> Any:  # noqa: ANN401 # reason: any JSON, or NOTHING
    """Return `data` as it is kept, the cvc moved to the draft; `NOTHING` after a fault.

    field: where the body holds it, `data` or `encrypted`.
    """
    rules, faults = reading.rules, reading.faults
    structure = STRUCTURES.get(draft.type)
    if structure is not None:
        parts = structure.read(given, rules, faults, draft, field, reading.misses_cvc)
        if parts is None:
            return NOTHING
        data, draft.cvc = parts
        return data
    if draft.type in rules.any_data:
        if _is_deeper(given, rules.tokens.depth_limit):
            fault = f"must not be nested deeper than {rules.tokens.depth_limit} levels"
            faults.at(draft, f"/{field}", fault, "D-DEPTH")
            return NOTHING
        return given
    if type(given) is not str:  # obeys TOK-TOKEN-DATA
        fault = "must be a string: `data` of a `token` is one"
        faults.at(draft, f"/{field}", fault, "TOK-TOKEN-DATA")
        return NOTHING
    return given


def read_metadata(given: Json, reading: Reading, draft: Draft) -> dict[str, str] | None:
    """Return a copy of `metadata` (TOK-METADATA, D-METADATA)."""
    faults, bounds = reading.faults, reading.rules.tokens
    if type(given) is not dict:  # obeys TOK-METADATA
        fault = "must be an object of string to string"
        faults.at(draft, "/metadata", fault, "TOK-METADATA")
        return None
    if len(given) > bounds.metadata_entries_limit:
        fault = f"must have at most {bounds.metadata_entries_limit} entries"
        faults.at(draft, "/metadata", fault, "D-METADATA")
        return None
    key_limit, value_limit = bounds.metadata_key_limit, bounds.metadata_value_limit
    for key, value in given.items():
        if type(value) is str and len(value) <= value_limit and len(key) <= key_limit:
            continue
        below = f"/metadata{escaped(key)}"
        if type(value) is not str:
            faults.at(draft, below, "must be a string", "TOK-METADATA")
        elif len(value) > value_limit:
            fault = f"must have at most {value_limit} characters"
            faults.at(draft, below, fault, "D-METADATA")
        if len(key) > key_limit:
            fault = f"must have a key of at most {key_limit} characters"
            faults.at(draft, below, fault, "D-METADATA")
    return dict(given)


def read_indexes(given: Json, reading: Reading, draft: Draft) -> tuple[str, ...] | None:
    """Return `search_indexes`; None when one is no expression (TOK-INDEXES, D-INDEXES)."""
    faults, limit = reading.faults, reading.rules.tokens.indexes_limit
    if type(given) is not list:  # obeys TOK-INDEXES
        faults.at(draft, "/search_indexes", "must be an array of expressions", "TOK-INDEXES")
        return None
    if len(given) > limit:
        fault = f"must hold at most {limit} expressions"
        faults.at(draft, "/search_indexes", fault, "D-INDEXES")
        return None
    fine = True
    for place, text in enumerate(given):
        if type(text) is not str or (text != DATA and expressions.parse(text) is None):
            faults.at(draft, f"/search_indexes/{place}", expressions.GRAMMAR_FAULT, "D-EXPR")
            fine = False
    return tuple(given) if fine else None


def read_expression(given: Json, reading: Reading, draft: Draft) -> str | None:
    """Return `fingerprint_expression`, None when it is none (TOK-FPEXPR, D-EXPR)."""
    if type(given) is str and expressions.parse(given) is not None:  # obeys TOK-FPEXPR
        return given
    reading.faults.at(draft, "/fingerprint_expression", expressions.GRAMMAR_FAULT, "D-EXPR")
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
