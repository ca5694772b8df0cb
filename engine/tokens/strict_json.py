"""Strict JSON: bytes to a value, or the problem that names what is wrong (TOK-JSON).

D-STRICT-JSON: repeated keys at any depth, NaN and Infinity, invalid UTF-8, lone surrogates (raw or
escaped) and a byte order mark are 400, and so are nesting and numbers that no parser should follow.

`orjson` refuses nearly all of it. What it accepts is checked separately: repeated keys (which drop
strings, so that the number of strings differs), and integers beyond 64 bits (which it rounds). Such
bodies are parsed again by `json`, slowly and exactly. `BodyErrors` collects the faults of a parsed
body by their places. The module knows nothing of tokens.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any, Final, Protocol

import orjson

from engine.messages import Json, Problem

NESTING_LIMIT: Final = 1024
"""The deepest nesting that is parsed; the profile's depth limit (D-DEPTH) is lower."""

_DIGITS: Final = bytes(48 if 48 <= byte <= 57 else byte for byte in range(256))
_LONG_NUMBER: Final = b"0" * 19
_STRICT_OPTIONS: Final = (
    orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_LARGEST_BITS: Final = 14_000
"""The most bits of an integer: some 4 200 digits, which Python can still write."""

_VALUE_BYTES: Final = 64
"""What a value takes beyond its text: an object of Python, and its place in what holds it."""

_TEXT: Final = json.JSONEncoder(ensure_ascii=False).encode
_NESTING_FAULT: Final = f"The body must not be nested deeper than {NESTING_LIMIT} levels."
_NUMBER_FAULT: Final = "The body must hold no number beyond the range of JSON implementations."


def parse(raw: bytes) -> Json:
    """Return the value of a JSON text; raises `Problem` 400 where it is not strictly JSON."""
    try:
        value: Json = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _not_json(error) from None
    written = dumps(value)
    if written == raw:  # compact, as most clients write: nothing was dropped, nothing rounded
        return value
    if _LONG_NUMBER in raw.translate(_DIGITS):
        return _parse_exactly(raw)
    # Each string has two quotes that no escape hides; a key that came twice took some with it.
    if _string_ends(written) != _string_ends(raw):
        raise _repeated_key()
    return value


def check_values(raw: bytes, values_limit: int) -> None:
    """Raise `Problem` 400 for a text of more JSON values than the limit (D-BODY-COST).

    Counted without parsing, because parsing two million empty arrays takes the whole interpreter
    for a third of a second: each value follows a comma or the bracket or brace that opens what
    holds it. So an empty object or array counts as two.
    """
    if len(raw) <= values_limit:  # each takes a byte at least
        return
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") < values_limit:
        return
    import numpy as np  # noqa: PLC0415 # reason: hardly a body comes this far

    # Some may stand inside of strings.
    text = raw.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in raw else raw
    byte = np.frombuffer(text, np.uint8)
    in_string = np.cumsum(byte == ord('"'), dtype=np.uint8) & 1
    begins = (byte == ord(",")) | (byte == ord("[")) | (byte == ord("{"))
    if np.count_nonzero(begins > in_string) >= values_limit:
        raise Problem(
            400, f"The body must hold at most {values_limit} JSON values.", clause="D-BODY-COST"
        )


def bytes_as_values(raw: bytes) -> int:
    """Return about how many bytes of memory the value of a JSON text takes, at most."""
    values = raw.count(b",") + raw.count(b":") + raw.count(b"[") + raw.count(b"{")
    return len(raw) + _VALUE_BYTES * values


def _string_ends(text: bytes) -> int:
    """Return how many quotes begin or end a string."""
    if b"\\" not in text:
        return text.count(b'"')
    return text.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"')


def _repeated_key() -> Problem:
    return Problem(400, "The body must not repeat a key in an object.", clause="D-STRICT-JSON")


def check_value(
    value: object, limit_bytes: int = sys.maxsize, values_limit: int = sys.maxsize
) -> Json:
    """Return a copy of a body given as Python values, which shares nothing with it.

    limit_bytes: of its compact JSON. values_limit: of `check_values`.

    Raises `Problem` 413 over the limit (D-SIZE), 400 for whatever JSON text could not hold: other
    types (tuples, sets, bytes, subclasses), keys that are no strings, NaN and Infinity, lone
    surrogates, excessive nesting.
    """
    try:
        raw = orjson.dumps(value, option=_STRICT_OPTIONS)
        if len(raw) > limit_bytes:
            raise too_large(limit_bytes)
        check_values(raw, values_limit)
        copy: Json = orjson.loads(raw)
        if copy == value:
            return copy
    except (orjson.JSONEncodeError, orjson.JSONDecodeError, RecursionError):
        pass
    copy = _copy_exactly(value)
    raw = dumps(copy)
    if len(raw) > limit_bytes:
        raise too_large(limit_bytes)
    check_values(raw, values_limit)
    return copy


def too_large(limit_bytes: int, clause: str = "D-SIZE") -> Problem:
    """Return the 413 problem (D-SIZE)."""
    return Problem(413, f"The body must hold at most {limit_bytes} bytes.", clause=clause)


def dumps(value: Json) -> bytes:
    """Return compact JSON in UTF-8, also of what `orjson` does not write (deep, huge integers)."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return _written(value)


def _written(value: Json) -> bytes:
    """Return compact JSON in UTF-8 for any depth, without recursion."""
    pieces: list[str] = []
    ahead: list[Any] = [value]  # still to be written, last first; a tuple holds text as it is
    while ahead:
        here = ahead.pop()
        kind = type(here)
        if kind is tuple:
            pieces += here
        elif kind is dict and here:
            ahead.append(("}",))
            for key in reversed(here):
                ahead += (here[key], (_TEXT(key), ":"), (",",))
            ahead[-1] = ("{",)
        elif kind is list and here:
            ahead.append(("]",))
            for item in reversed(here):
                ahead += (item, (",",))
            ahead[-1] = ("[",)
        else:
            pieces.append(_TEXT(here))
    return "".join(pieces).encode()


def _not_json(error: orjson.JSONDecodeError) -> Problem:
    said = str(error)
    if "depth limit" in said or "recursion" in said:
        return Problem(400, _NESTING_FAULT, clause="D-DEPTH")
    if "infinity" in said:
        return Problem(400, _NUMBER_FAULT, clause="D-STRICT-JSON")
    # The parser's message may quote a value; the position never does.
    if "surrogate in string" in said:
        return _lone_surrogate(f" (line {error.lineno}, column {error.colno})")
    reason = "it must be UTF-8 without a byte order mark" if "UTF-8" in said else "see RFC 8259"
    return Problem(
        400,
        f"The body is not JSON (line {error.lineno}, column {error.colno}); {reason}.",
        clause="TOK-JSON",
    )


def _lone_surrogate(place: str = "") -> Problem:
    return Problem(
        400,
        f"The body must hold no half of a surrogate pair{place}: no UTF-8 text can.",
        clause="D-STRICT-JSON",
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _repeated_key()
    return members


def _parse_exactly(raw: bytes) -> Json:
    """Parse a text that `orjson` accepted: exact integers, and no repeated keys."""
    try:
        value: Json = json.loads(raw, object_pairs_hook=_unique)
    except RecursionError:
        raise Problem(400, _NESTING_FAULT, clause="D-DEPTH") from None
    except ValueError:  # Python parses no integer of thousands of digits
        raise Problem(400, _NUMBER_FAULT, clause="D-STRICT-JSON") from None
    return value


def _copy_exactly(value: object) -> Json:
    """Copy level by level, so that neither depth nor a cycle can exhaust anything."""
    root: list[Any] = [value]
    level: list[Any] = [root]
    for _ in range(NESTING_LIMIT + 1):
        below: list[Any] = []
        for holder in level:
            places = range(len(holder)) if type(holder) is list else list(holder)
            for place in places:
                copied = _copy_one(holder[place])
                holder[place] = copied
                if type(copied) is dict or type(copied) is list:
                    below.append(copied)
        if not below:
            copy: Json = root[0]
            return copy
        level = below
    raise Problem(400, _NESTING_FAULT, clause="D-DEPTH")


def _copy_one(value: object) -> Json:
    kind = type(value)
    if kind is str:
        _check_text(value)
    elif kind is float or kind is int:
        _check_number(value)
    elif kind is dict:
        for key in value:  # type: ignore[attr-defined] # reason: its type was just asked
            if type(key) is not str:
                raise Problem(400, "Every key of an object must be a string.", clause="TOK-JSON")
            _check_text(key)
        return dict(value)  # type: ignore[call-overload,no-any-return] # reason: likewise
    elif kind is list:
        return list(value)  # type: ignore[call-overload,no-any-return] # reason: likewise
    elif value is not None and kind is not bool:
        raise Problem(
            400, f"The body must hold JSON values only; {kind.__name__} is none.", clause="TOK-JSON"
        )
    return value  # type: ignore[return-value] # reason: every other type was refused


def _check_number(number: Any) -> None:  # noqa: ANN401 # reason: its type was just asked
    fine = math.isfinite(number) if type(number) is float else number.bit_length() <= _LARGEST_BITS
    if not fine:
        raise Problem(400, _NUMBER_FAULT, clause="D-STRICT-JSON")


def _check_text(text: object) -> None:
    try:
        text.encode()  # type: ignore[attr-defined] # reason: callers pass strings only
    except UnicodeEncodeError:
        raise _lone_surrogate() from None


FAULTS_LIMIT: Final = 1000
_POINTERS_LIMIT: Final = 250_000


class Located(Protocol):
    """An object that knows its place in the body; used only to report faults."""

    @property
    def pointer(self) -> str:
        """The JSON Pointer of the token request object."""


class BodyErrors(dict[str, list[str]]):
    """Everything that is wrong with one body: JSON Pointer → messages, in order of finding.

    At most 1,000 pointers are kept, and none beyond 250,000 characters of them, so that an answer
    cannot become much larger than its request: a long name stands in the pointer of all below it.
    The rest is counted. No message quotes a value of the body. clause: what the first one breaks.
    """

    clause = ""
    _left_out = 0
    _characters = 0

    @property
    def is_full(self) -> bool:
        """Whether further faults are only counted."""
        return len(self) >= FAULTS_LIMIT or self._characters >= _POINTERS_LIMIT

    def at(self, place: Located, below: str, message: str, clause: str) -> None:
        """Remember one fault below a place of the body.

        A body may have two million faults, 64 levels deep; pointers for all take a minute.
        """
        self.add("" if self.is_full else place.pointer + below, message, clause)

    def add(self, pointer: str, message: str, clause: str) -> None:
        """Remember one fault, and the clause that the first one breaks."""
        if not self.clause:
            self.clause = clause
        if self.is_full:
            self._left_out += 1
            return
        said = self.setdefault(pointer, [])
        if not said:
            self._characters += len(pointer)
        if message not in said:
            said.append(message)

    def problem(self) -> Problem:
        """Return the 400 that names them all, by the clause of the first one."""
        count = sum(map(len, self.values())) + self._left_out
        detail = f"The body has {count} faults." if count > 1 else "The body has a fault."
        if self._left_out:
            detail += f" The first {sum(map(len, self.values()))} are named."
        return Problem(400, detail, errors=self, clause=self.clause)

    def check(self) -> None:
        """Raise the 400 when there is a fault (TOK-ATOMIC)."""
        if self:
            raise self.problem()


def escaped(key: str) -> str:
    """Return a key as one step of a JSON Pointer.

    >>> escaped("a/b~c")
    '/a~1b~0c'
    """
    return "/" + key.replace("~", "~0").replace("/", "~1")
