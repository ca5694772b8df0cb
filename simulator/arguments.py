"""Checks of the arguments of public functions, made before anything else.

    @takes(count=whole(1), check=FLAG)
    def play(count: int, *, check: bool = True) -> None: ...

A rule checks a value, has the words of the error message, and returns a normalised value: plain
integers for numpy's. A decorated function has a rule for each of its parameters, and raises only
`InputError` for bad arguments. Whether arguments fit together, or a file exists, is checked by the
function.
"""

from __future__ import annotations

import errno
import functools
import inspect
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from engine.errors import InputError, did_you_mean
from engine.files.kinds import duration_or_rule

P = ParamSpec("P")
R = TypeVar("R")

_LONGEST_SHOWN: Final = 60
_MANY: Final = 10
_WIDEST: Final = 1 << 64
_OWN: Final = ("self", "cls")
_FLAGS: Final = ("bool", "bool_")
"""The name of numpy's module, so that its types are recognised without an import."""


class _Broken(ValueError):
    """A text that cannot be parsed; the message is the rule, from `must` on."""


@dataclass(frozen=True, slots=True)
class ArgumentRule:
    """What a value must be. words: the rule, and after a `;` the way out.

    holds: whether a value meets it. made: converts a value that does. hint: more words about one
    that does not.
    """

    words: str
    holds: Callable[[Any], bool]
    made: Callable[[Any], Any] = lambda value: value
    hint: Callable[[Any], str] = lambda _: ""

    def read(self, name: str, value: Any) -> Any:  # noqa: ANN401 # reason: whatever a cell hands in
        """Return the converted value; raises `InputError` where it breaks the rule."""
        if not self.holds(value):
            raise InputError(
                f"{name} = {format_value(value)} must be {self.words}{self.hint(value)}"
            )
        try:
            return self.made(value)
        except _Broken as fault:
            raise InputError(f"{name} = {format_value(value)} {fault}") from None


def takes(**rules: ArgumentRule) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that reads the arguments of a function by a rule for each parameter."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        return reads(function, rules, function.__name__)

    return decorate


def reads(function: Callable[P, R], rules: Mapping[str, ArgumentRule], name: str) -> Callable[P, R]:
    """Return a function that reads its arguments by a rule for each; name: of it in messages."""
    signature = inspect.signature(function)
    known = [name for name in signature.parameters if name not in _OWN]
    assert list(rules) == known, f"{name} must have a rule a parameter, in order"

    @functools.wraps(function)
    def reading(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError as fault:
            raise InputError(_misfit(name, known, kwargs, fault)) from None
        for parameter, value in given.arguments.items():
            if parameter in rules:
                given.arguments[parameter] = rules[parameter].read(parameter, value)
        return function(*given.args, **given.kwargs)

    return reading


def _misfit(
    function: str, known: Sequence[str], named: Mapping[str, object], fault: TypeError
) -> str:
    """Return why arguments do not fit a function: an unknown name, else what Python says."""
    for name in named:
        if name not in known:
            return f"{function} takes no parameter {name!r}{did_you_mean(name, known)}"
    return f"{function}: {fault}; its parameters are {', '.join(known)}"


def format_value(value: object) -> str:
    """Return a value for a message: its repr if short and on one line, else its type.

    Contents of frames, tables and bytes are never shown; they may hold keys.

    >>> [format_value(value) for value in ("x", 1.5, [1, "a"], {"key": "secret"}, b"secret")]
    ["'x'", '1.5', "[1, 'a']", 'dict', 'bytes']
    """
    if value is None or isinstance(value, float):
        return repr(value)
    if isinstance(value, int) and abs(value) < _WIDEST:
        return repr(value)
    if isinstance(value, str | Path):
        text = str(value)
        return repr(text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…")
    if type(value) is list:
        parts = ["[…]" if isinstance(item, list) else format_value(item) for item in value[:_MANY]]
        text = f"[{', '.join(parts)}]"
        return text if len(value) <= _MANY and len(text) <= _LONGEST_SHOWN else "[…]"
    return type(value).__name__


def instance(words: str, *kinds: type) -> ArgumentRule:
    """Return the rule that a value is of such a type, or the path of a file where `Path` is one."""

    def holds(value: object) -> bool:
        if isinstance(value, str | Path) and Path in kinds:
            return may_be_a_path(value)
        return isinstance(value, kinds)

    return ArgumentRule(words, holds)


def one_of(words: Sequence[str]) -> ArgumentRule:
    """Return the rule that a value is one of some words."""

    def hint(value: object) -> str:
        return did_you_mean(value, words, otherwise="") if isinstance(value, str) else ""

    text = f"one of {', '.join(words)}"
    return ArgumentRule(text, lambda value: isinstance(value, str) and value in words, hint=hint)


def whole(least: int, words: str = "", *, below: int = _WIDEST) -> ArgumentRule:
    """Return the rule that a value is a whole number of at least `least`, and below `below`."""
    text = words or f"a whole number from {least} up"
    return ArgumentRule(
        text, lambda value: _is_whole(value) and least <= value < below, operator.index
    )


def list_of(words: str, holds: Callable[[Any], bool]) -> ArgumentRule:
    """Return the rule of a list of which each value keeps `holds`; a column of a table is one."""

    def all_hold(values: Any) -> bool:  # noqa: ANN401 # reason: whatever a cell hands in
        is_list = isinstance(values, Sequence) or getattr(values, "ndim", None) == 1
        return is_list and not isinstance(values, str) and all(map(holds, values))

    return ArgumentRule(words, all_hold, list)


def optional(rule: ArgumentRule, otherwise: str = "") -> ArgumentRule:
    """Return a rule that None keeps too. otherwise: what is taken where it is left out."""
    words = f"{rule.words}; leave it out for {otherwise}" if otherwise else rule.words

    def made(value: object) -> object:
        return None if value is None else rule.made(value)

    return ArgumentRule(words, lambda value: value is None or rule.holds(value), made, rule.hint)


def is_number(value: object) -> bool:
    """Return whether a value is a number; a boolean is none."""
    return not isinstance(value, bool) and isinstance(value, Real | Decimal)


def _is_whole(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral)


def may_be_a_path(value: str | Path) -> bool:
    """Return whether a text can be a file name: no zero byte, no lone surrogate, not too long."""
    try:
        Path(value).stat()
    except ValueError:
        return False
    except OSError as fault:
        return fault.errno != errno.ENAMETOOLONG
    return True


def _is_text(value: object) -> bool:
    """Whether a value is a text that a file can hold: without lone surrogates."""
    try:
        return isinstance(value, str) and os.fsencode(value) is not None
    except UnicodeEncodeError:
        return False


def _duration_ns(value: Any) -> int:  # noqa: ANN401 # reason: a text or a whole number of any kind
    if not isinstance(value, str):
        return operator.index(value)
    duration_ns = duration_or_rule(value)
    if isinstance(duration_ns, str):
        raise _Broken(duration_ns)
    return duration_ns


TEXT: Final = ArgumentRule("a text", _is_text)
TEXTS: Final = list_of("a list of texts", _is_text)
FLAG: Final = ArgumentRule("True or False", lambda value: type(value).__name__ in _FLAGS, bool)
FUNCTION: Final = ArgumentRule("a function", callable)
DURATION: Final = ArgumentRule(
    'a whole number of nanoseconds, or a text such as "1m"',
    lambda value: isinstance(value, str) or (_is_whole(value) and abs(value) < _WIDEST),
    _duration_ns,
)
"""A function gets whole nanoseconds, whichever it was."""
FOLDER: Final = instance("a folder's path", str, Path)
