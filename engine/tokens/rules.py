"""What the token types and the profile say about tokens, prepared once for every request.

A structured type is one whose `data` is an object of known fields. Its `StructuredType` holds
everything that is specific to the type; all other code treats types alike. The specification has
one, `card` (TOK-CARD-DATA, D-CARD):

    number            string of 12 to 19 digits, Luhn-valid; required
    expiration_month  integer, 1 to 12
    expiration_year   integer, 1000 to 9999; past years are accepted
    cvc               string of 3 or 4 digits

An integer may be written with a zero fraction, as JSON has one kind of number: 12.0 is kept as 12.
A boolean is not an integer. `card_mask` makes the masked object that callers see (REC-CARD-MASK).
It knows no issuers or card brands; the specification names neither.

Each attribute of `Rules` comes from a field of `engine.profile.TokensProfile` or `DedupProfile`,
which define names and defaults.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from engine.errors import InputError, did_you_mean
from engine.identity import container_rule, normal_container
from engine.messages import Json
from engine.profile import DedupProfile, TokensProfile
from engine.tokens.strict_json import FAULTS_LIMIT, BodyErrors, Located, escaped

SchemaKind: TypeAlias = Literal["full", "floor", "ceiling"]
"""What this engine does, what any conforming service must accept, what one may accept at most."""

CARD_FIELDS: Final = ("number", "expiration_month", "expiration_year", "cvc")
_KNOWN_FIELDS: Final = frozenset(CARD_FIELDS)
_INTEGER_FIELDS: Final = (("expiration_month", 1, 12), ("expiration_year", 1000, 9999))
_ABSENT: Final = object()
_MONTH: Final = {"type": "integer", "minimum": 1, "maximum": 12}
_FLOOR_NUMBERS: Final = ("4242424242424242", "5555555555554444", "378282246310005")

CARD_EXAMPLE: Final = {
    "number": "4242424242424242",
    "expiration_month": 12,
    "expiration_year": 2030,
    "cvc": "123",
}
CARD_MASK_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "number": {"type": "string", "pattern": "^X{8,15}[0-9]{4}$"},
        "expiration_month": _MONTH,
        "expiration_year": {"type": "integer", "minimum": 1000, "maximum": 9999},
    },
    "additionalProperties": False,
    "required": ["number"],
}
_DOUBLED_DIGITS: Final = bytes(
    sum(divmod(2 * (byte - 48), 10)) if 48 <= byte <= 57 else 0 for byte in range(256)
)


def read_card(
    given: Json,
    rules: Rules,
    faults: BodyErrors,
    at: Located,
    field: str,
    cvc_optional: bool,  # noqa: FBT001 # reason: the hot path calls by position
) -> tuple[dict[str, Any], str | None] | None:
    """Return (data without the cvc, the cvc); None after a fault, which is recorded.

    field: where the body holds it; inside `encrypted` every fault is named at the payload.
    cvc_optional: whether no cvc is required, whatever the profile says, because the card is stored
    and its cvc has expired.
    """
    if type(given) is not dict:
        fault = "must be an object: `data` of a `card` is one"
        faults.at(at, f"/{field}", fault, "TOK-CARD-DATA")
        return None
    data: dict[str, Any] = {}
    wrong = {} if _KNOWN_FIELDS.issuperset(given) else _unknown_fields(given, rules, faults)
    number = given.get("number", _ABSENT)
    if number is _ABSENT:
        wrong["number"] = "is required"
    elif type(number) is not str or not is_card_number(number):  # obeys TOK-CARD-DATA
        wrong["number"] = "must be a string of 12 to 19 digits"
    elif rules.tokens.card_luhn and not is_luhn_valid(number):
        wrong["number"] = "must have a valid check digit (Luhn)"
    else:
        data["number"] = number
    cvc = _read_optional(given, rules, cvc_optional, data, wrong)
    if not wrong:
        return data, cvc
    for name, fault in wrong.items():
        clause = "D-CARD" if name in _KNOWN_FIELDS else "D-UNKNOWN"
        if field == "data":
            step = "" if faults.is_full else escaped(name)
            faults.at(at, f"/data{step}", fault, clause)
        else:
            faults.at(
                at, f"/{field}", f"{name} {fault}" if name in _KNOWN_FIELDS else fault, clause
            )
    return None


def _unknown_fields(given: dict[str, Any], rules: Rules, faults: BodyErrors) -> dict[str, str]:
    """D-UNKNOWN: an unknown field of card data is a fault, or is ignored and not kept."""
    if rules.tokens.unknown_field == "ignore":
        return {}
    unknown: dict[str, str] = {}
    for name in given:
        if name not in _KNOWN_FIELDS:
            is_shown = len(faults) + len(unknown) < FAULTS_LIMIT
            hint = did_you_mean(name, CARD_FIELDS) if is_shown else ""
            unknown[name] = f"is an unknown field of card data{hint}"
    return unknown


def _read_optional(
    given: dict[str, Any],
    rules: Rules,
    cvc_optional: bool,  # noqa: FBT001 # reason: the hot path calls by position
    data: dict[str, Any],
    wrong: dict[str, str],
) -> str | None:
    """Return the cvc; add month and year to `data`, and what is wrong to `wrong`."""
    for name, least, most in _INTEGER_FIELDS:
        value = given.get(name, _ABSENT)
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is int and least <= value <= most:
            data[name] = value
        elif value is not _ABSENT:
            wrong[name] = f"must be an integer from {least} to {most}"
        elif rules.tokens.card_all_required:
            wrong[name] = "is required"
    cvc: Any = given.get("cvc", _ABSENT)
    if type(cvc) is str and 3 <= len(cvc) <= 4 and cvc.isascii() and cvc.isdigit():
        return cvc
    if cvc is not _ABSENT:
        wrong["cvc"] = "must be a string of 3 or 4 digits"
    elif rules.tokens.card_all_required and not cvc_optional:
        wrong["cvc"] = "is required"
    return None


def is_card_number(text: str) -> bool:
    """Whether the text is 12 to 19 ASCII digits (D-CARD)."""
    return 12 <= len(text) <= 19 and text.isascii() and text.isdigit()


def is_luhn_valid(digits: str) -> bool:
    """Whether the check digit of ISO/IEC 7812-1 is right (D-CARD).

    >>> is_luhn_valid("4242424242424242"), is_luhn_valid("4242424242424241")
    (True, False)
    """
    backwards = digits.encode()[::-1]
    plain = backwards[::2]
    total = sum(plain) - 48 * len(plain) + sum(backwards[1::2].translate(_DOUBLED_DIGITS))
    return total % 10 == 0


def card_mask(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the masked object of a card (REC-CARD-MASK): of what was given, never the cvc.

    Every digit of the number is `X` but the last four; month and year stand as they are.

    >>> card_mask({"number": "4242424242424242", "expiration_month": 12, "cvc": "123"})
    {'number': 'XXXXXXXXXXXX4242', 'expiration_month': 12}
    """
    number = data["number"]
    mask = {"number": "X" * (len(number) - 4) + number[-4:]}  # obeys REC-CARD-MASK
    if "expiration_month" in data:
        mask["expiration_month"] = data["expiration_month"]
    if "expiration_year" in data:
        mask["expiration_year"] = data["expiration_year"]
    return mask


def card_schema(kind: SchemaKind, tokens: TokensProfile) -> dict[str, Any]:
    """Return the JSON Schema of a card's `data` (TOK-CARD-DATA, D-CARD)."""
    number: dict[str, Any] = {"type": "string", "pattern": "^[0-9]{12,19}$"}
    year: dict[str, Any] = {"type": "integer", "minimum": 1000, "maximum": 9999}
    cvc = {"type": "string", "pattern": "^[0-9]{3,4}$"}
    required = list(CARD_FIELDS) if tokens.card_all_required else ["number"]
    if kind == "floor":
        number = {"enum": list(_FLOOR_NUMBERS)}
        year = {"type": "integer", "minimum": 2030, "maximum": 2060}
        cvc = {"type": "string", "pattern": "^[0-9]{3}$"}
        required = list(CARD_FIELDS)
    elif kind == "ceiling":
        number = cvc = {"type": "string", "pattern": "^[0-9]+$"}
        year, required = {"type": "integer"}, ["number"]
    elif tokens.card_luhn:
        number = {**number, "format": "card-number"}
    fields = {
        "number": number,
        "expiration_month": {**_MONTH},
        "expiration_year": year,
        "cvc": cvc,
    }
    closed = {} if kind == "ceiling" else {"additionalProperties": False}
    return {"type": "object", "properties": fields, **closed, "required": required}


Read: TypeAlias = Callable[
    [Any, "Rules", BodyErrors, Located, str, bool], tuple[dict[str, Any], str | None] | None
]


class StructuredType(NamedTuple):
    """What a structured type is.

    read: as `read_card`. mask: makes what callers see of the data. identity:
    the field that fingerprint and deduplication compare, by this expression, unless another is
    supplied (D-CARD-FPEXPR). schema, mask_schema: of the data and of its mask.
    example: some data. has_cvc: its cvc is kept apart and expires (D-CVC).
    """

    read: Read
    mask: Callable[[Mapping[str, Any]], dict[str, Any]]
    identity: str
    expression: str
    schema: Callable[[SchemaKind, TokensProfile], dict[str, Any]]
    mask_schema: Mapping[str, Any]
    example: Mapping[str, Any]
    has_cvc: bool = False


STRUCTURED_TYPES: Final[dict[str, StructuredType]] = {
    "card": StructuredType(
        read=read_card,
        mask=card_mask,
        identity="number",
        expression="{{ data.number }}",
        schema=card_schema,
        mask_schema=CARD_MASK_SCHEMA,
        example=CARD_EXAMPLE,
        has_cvc=True,
    )
}

TOKEN: Final = "token"  # noqa: S105 # reason: the name of a type
_TYPE: Final = re.compile(r"[A-Za-z0-9_.:-]+")
_DATA_FIELDS: Final = frozenset({"type", "data", "encrypted"})
_FIELDS: Final = _DATA_FIELDS | {
    "metadata",
    "search_indexes",
    "fingerprint_expression",
    "token_intent_id",
}
"""The fields of a token request object under every profile."""


class Rules:
    """A profile, prepared for use: build one per engine and pass it to every function here.

    types: every known type (TOK-TYPES, D-TYPE-VALUE).
    fields: what a token request object may hold (D-UNKNOWN); `intent_fields` a token intent;
    `patch_fields` a merge patch.
    any_data: the types whose `data` is any JSON (D-TOKEN-DATA, D-TYPE-VALUE).
    leaf_expression: what a token with no expression shows (D-FPEXPR-DEFAULT).
    containers: type → container when none is named (D-CONTAINER-DEFAULT); `leaf_container` is
    that of a plain leaf.
    Raises `InputError` when a default container of the profile is no container path, a further type
    has no name that can stand in a body, or a field's name is that of another one.
    """

    def __init__(self, tokens: TokensProfile, dedup: DedupProfile) -> None:
        self.tokens = tokens
        self.dedup = dedup
        self.types = frozenset({TOKEN, *STRUCTURED_TYPES, *tokens.extra_types})
        self.intent_fields = _DATA_FIELDS
        self.patch_fields = _FIELDS - {"token_intent_id"} | {tokens.container_field}
        self.fields = _FIELDS | {tokens.container_field, dedup.flag_name}
        _check_names(tokens, dedup)
        token = _default(tokens, "container_default_token")
        self.leaf_container = token
        self.containers: Mapping[str, str] = {
            **dict.fromkeys(tokens.extra_types, token),
            TOKEN: token,
            **{name: _default(tokens, f"container_default_{name}") for name in STRUCTURED_TYPES},
        }
        any_data = set(tokens.extra_types) - {TOKEN, *STRUCTURED_TYPES}
        if tokens.token_data == "any":  # noqa: S105 # reason: a choice's name
            any_data.add(TOKEN)
        self.any_data = frozenset(any_data)
        self.leaf_expression = None if tokens.fpexpr_default == "hidden" else "{{ data }}"


def _default(tokens: TokensProfile, name: str) -> str:
    """Return a type's default container in the profile; without one, that of `token`."""
    path: str = getattr(tokens, name, tokens.container_default_token)
    normal = normal_container(path, tokens.container_limit)
    if normal is None:
        rule = container_rule(path, tokens.container_limit)
        raise InputError(f"profile.tokens.{name} = {path!r} {rule}; for example '/general/high/'")
    return normal


def _check_names(tokens: TokensProfile, dedup: DedupProfile) -> None:
    """Raise `InputError` where a name in the profile is invalid or already taken."""
    taken = set(_FIELDS)
    for name, value in (
        ("tokens.container_field", tokens.container_field),
        ("dedup.flag_name", dedup.flag_name),
    ):
        if value in taken:
            raise InputError(
                f"profile.{name} = {value!r} must be a name of its own; "
                "a token request object has that field already"
            )
        taken.add(value)
    for name in tokens.extra_types:
        if _TYPE.fullmatch(name) is None:
            raise InputError(
                f"profile.tokens.extra_types holds {name!r}; a type must be of letters, digits, "
                "'_', '-', '.' and ':'"
            )
