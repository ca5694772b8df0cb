"""JSON Schema keywords that replace those of `jsonschema`, fast for bodies of any size.

They accept the same values. The library names all missing or unknown members in one text, checks
the elements of an array that is too long, and makes a validator for each value that has a type; a
body of four million bytes can have half a million of each.

Imported for the first body, since importing the library takes a tenth of a second, and ten times
as long with the package that parses IRIs, where that is installed; no form has such a format.
"""

# ruff: noqa: ANN401, E402  # reason: the library's own functions are untyped; see above

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

_IRIS: Final = "rfc3987_syntax"
_IS_LOADED: Final = _IRIS in sys.modules
if not _IS_LOADED:
    sys.modules[_IRIS] = cast("Any", None)  # an import of it fails, which the library expects

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

if not _IS_LOADED:
    del sys.modules[_IRIS]

_ITEMS: Final = Draft202012Validator.VALIDATORS["items"]


def validator_of(schema: Mapping[str, Any]) -> Draft202012Validator:
    """Return a validator that finds the faults of values one by one."""
    made: Any = _VALIDATOR(schema)
    return cast("Draft202012Validator", made)


def _items(own: Any, rule: Any, given: Any, within: Any) -> Iterator[ValidationError]:
    if not isinstance(given, list) or len(given) <= within.get("maxItems", len(given)):
        yield from _ITEMS(own, rule, given, within)


def _required(_own: Any, names: Any, given: Any, _within: Any) -> Iterator[ValidationError]:
    if isinstance(given, dict):
        yield from (ValidationError("", path=(name,)) for name in names if name not in given)


def _others(own: Any, rule: Any, given: Any, within: Any) -> Iterator[ValidationError]:
    if not isinstance(given, dict):
        return
    known = within.get("properties", {})
    for name, value in given.items():
        if name in known:
            continue
        if rule is False:
            yield ValidationError("", path=(name,))
        elif not _is_of_type(own, value, rule):
            yield from own.descend(value, rule, path=name)


def _is_of_type(own: Any, value: Any, rule: Mapping[str, Any]) -> bool:
    """Whether a value meets a rule that has only a type."""
    if rule.keys() != {"type"}:
        return False
    types = [rule["type"]] if isinstance(rule["type"], str) else rule["type"]
    return any(own.is_type(value, name) for name in types)


_VALIDATOR: Final[Any] = extend(  # type: ignore[no-untyped-call] # reason: it has no types
    Draft202012Validator,
    {"items": _items, "required": _required, "additionalProperties": _others},
)
