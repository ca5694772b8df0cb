"""Card data: what `data` of a `card` must be (TOK-CARD-DATA, D-CARD).

    number            string of 12 to 19 digits, Luhn-valid; required
    expiration_month  integer, 1 to 12
    expiration_year   integer, 1000 to 9999; the past passes
    cvc               string of 3 or 4 digits

An integer may be written with a zero fraction, as JSON has one kind of number: 12.0 is kept as 12.
A boolean is none.

What it is not: the masked object (`masks`), which is what anybody gets to see.
"""

from __future__ import annotations

from typing import Any, Final

from engine.errors import did_you_mean
from engine.tokens.masks import is_card_number, is_luhn_valid
from engine.tokens.rules import FAULTS_LIMIT, Faults, Located, Rules
from engine.tokens.shapes import escaped

__all__ = ["CARD_FIELDS", "read_card"]

CARD_FIELDS: Final = ("number", "expiration_month", "expiration_year", "cvc")
_KNOWN: Final = frozenset(CARD_FIELDS)


def read_card(
    given: Any,  # noqa: ANN401 # reason: any JSON
    rules: Rules,
    faults: Faults,
    at: Located,
    field: str,
    *,
    misses_cvc: bool,
) -> tuple[dict[str, Any], str | None] | None:
    """Return (data without the cvc, the cvc); None when something is wrong, which is named.

    field: where the body holds it; inside `encrypted` every fault is named at the payload.
    misses_cvc: whether none is asked, whatever the profile requires, since it is of a stored card
    whose cvc is gone.
    """
    if type(given) is not dict:
        faults.add(f"{faults.where(at)}/{field}", "must be an object: `data` of a `card` is one")
        return None
    data: dict[str, Any] = {}
    wrong = {} if _KNOWN.issuperset(given) else _unknown_fields(given, rules, faults)
    for name, fault_of in _CHECKS:
        if name in given:
            value = given[name]
            fault = fault_of(value, rules)
            if fault is not None and type(value) is float and value.is_integer():
                value = int(value)
                fault = fault_of(value, rules)
            if fault is None:
                data[name] = value
            else:
                wrong[name] = fault
        elif name == "number" or (
            rules.tokens.card_all_required and not (misses_cvc and name == "cvc")
        ):
            wrong[name] = "is required"
    if not wrong:
        return data, data.pop("cvc", None)
    pointer = f"{faults.where(at)}/{field}"
    for name, fault in wrong.items():
        if field == "data":
            faults.add("" if faults.is_full else pointer + escaped(name), fault)
        else:
            faults.add(pointer, f"{name} {fault}" if name in _KNOWN else fault)
    return None


def _unknown_fields(given: dict[str, Any], rules: Rules, faults: Faults) -> dict[str, str]:
    """D-UNKNOWN: a field that card data has not is named, or passed over and not kept."""
    if rules.tokens.unknown_field == "ignore":
        return {}
    found: dict[str, str] = {}
    for name in given:
        if name not in _KNOWN:
            is_shown = len(faults) + len(found) < FAULTS_LIMIT
            hint = did_you_mean(name, CARD_FIELDS) if is_shown else ""
            found[name] = f"is no field of card data{hint}"
    return found


def _number_fault(value: Any, rules: Rules) -> str | None:  # noqa: ANN401 # reason: any JSON
    if type(value) is not str or not is_card_number(value):
        return "must be a string of 12 to 19 digits"
    if rules.tokens.card_luhn and not is_luhn_valid(value):
        return "must have a valid check digit (Luhn)"
    return None


def _month_fault(value: Any, _rules: Rules) -> str | None:  # noqa: ANN401 # reason: any JSON
    fine = type(value) is int and 1 <= value <= 12
    return None if fine else "must be an integer from 1 to 12"


def _year_fault(value: Any, _rules: Rules) -> str | None:  # noqa: ANN401 # reason: any JSON
    fine = type(value) is int and 1000 <= value <= 9999
    return None if fine else "must be an integer from 1000 to 9999"


def _cvc_fault(value: Any, _rules: Rules) -> str | None:  # noqa: ANN401 # reason: any JSON
    fine = type(value) is str and 3 <= len(value) <= 4 and value.isascii() and value.isdigit()
    return None if fine else "must be a string of 3 or 4 digits"


_CHECKS: Final = tuple(
    zip(CARD_FIELDS, (_number_fault, _month_fault, _year_fault, _cvc_fault), strict=True)
)
"""What is wrong with each field's value, None for nothing; in the order in which data is kept."""
