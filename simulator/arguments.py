"""Arguments of public functions and flags of commands: declared once, checked before all else.

    @takes(count=whole(1), check=FLAG)
    def play(count: int, *, check: bool = True) -> None: ...

A rule checks a value, has the words of the error message, and returns a normalised value: plain
integers for numpy's. A decorated function has a rule for each of its parameters, and raises only
`InputError` for bad arguments. Whether arguments fit together, or a file exists, is checked by the
function.

Where functions and commands share parameters, they are *options*: fields of a frozen dataclass,
whose metadata are the rule, a line about it, and the flag. `takes_options` makes the fields the
parameters of a function, checked and described; `add_flags` fills a command's parser, `given` reads
what was typed, and `repeated` writes it again.
"""

from __future__ import annotations

import argparse
import errno
import functools
import inspect
import operator
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, field, fields
from decimal import Decimal
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, dataclass_transform

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


@dataclass(frozen=True, slots=True)
class ArgumentRule:
    """What a value must be. words: the rule, and after a `;` the way out.

    holds: whether a value meets it. made: converts a value that does, or raises `ValueError` with
    the rule, from `must` on. hint: more words about a value that does not meet it.
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
        except ValueError as fault:
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
    if isinstance(duration_ns, int):
        return duration_ns
    raise ValueError(duration_ns)


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


# --- options: parameters and flags of one declaration ---------------------------------------------

Told = TypeVar("Told")
_SAYS: Final = "{options}"
"""The line of a docstring in whose place the options are described."""


def option(  # reason: what there is to say of an option
    rule: ArgumentRule,
    text: str,
    *,
    default: Any = MISSING,  # noqa: ANN401 # reason: of any option
    python: str = "",
    name: str = "",
    apart: bool = False,
    flag: bool = True,
    **taken: Any,  # noqa: ANN401 # reason: what argparse takes
) -> Any:  # noqa: ANN401 # reason: a dataclass's field, as `dataclasses.field` types it
    """Return the field of an option: a rule of its value and a line about it.

    python: what Python takes beside, which a command line cannot. name: of the flag, where it is
    not the field's. apart: goes with no other such option. flag: whether it has one. taken: what
    argparse takes of it.
    """
    if isinstance(default, bool):
        taken["action"] = argparse.BooleanOptionalAction if default else "store_true"
    about = {"rule": rule, "text": text, "python": python, "name": name, "apart": apart}
    return field(default=default, metadata=about | {"flag": taken if flag else None})


def count_option(text: str, *, default: int | None, rule: ArgumentRule | None = None) -> Any:  # noqa: ANN401 # reason: as above
    """Return the field of an option that is a count, 1 or more; one without a default may be None.

    rule: another one.
    """
    rule = rule or (optional(whole(1)) if default is None else whole(1))
    return option(rule, text, default=default, type=count_of, metavar="N")


@dataclass_transform(frozen_default=True, field_specifiers=(option, count_option))
def options(kind: type[Told]) -> type[Told]:
    """Make a class a frozen dataclass of options; type checkers know which have no default."""
    return dataclass(frozen=True)(kind)


def _options(kind: Any) -> list[Field[Any]]:  # noqa: ANN401 # reason: a dataclass
    """Return the options of a dataclass, in the order of its parameters."""
    by_name = {item.name: item for item in fields(kind)}
    return [by_name[name] for name in inspect.signature(kind).parameters]


def read_options(kind: Callable[P, Told], name: str = "") -> Callable[P, Told]:
    """Return what makes the options of a dataclass, each read by its rule; name: for messages."""
    rules = {item.name: item.metadata["rule"] for item in _options(kind)}
    return reads(kind, rules, name or getattr(kind, "__name__", ""))


def takes_options(kind: Callable[P, Told]) -> Callable[[Callable[[Told], R]], Callable[P, R]]:
    """Return a decorator that makes a dataclass's options the parameters of a function.

    Where the function's docstring has a line `{options}`, it gets a line about each of them.
    """

    def decorate(function: Callable[[Told], R]) -> Callable[P, R]:
        make = read_options(kind, function.__name__)

        @functools.wraps(function)
        def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
            return function(make(*args, **kwargs))

        returns = inspect.signature(function).return_annotation
        taken = inspect.signature(kind).replace(return_annotation=returns)
        wrapped.__signature__ = taken  # type: ignore[attr-defined] # reason: `inspect` reads it
        wrapped.__doc__ = (function.__doc__ or "").replace(_SAYS, _described(kind))
        return wrapped

    return decorate


def _described(kind: Any) -> str:  # noqa: ANN401 # reason: a dataclass
    """Return a paragraph of a docstring: a line, or two, about each option."""
    lines = [
        textwrap.fill(
            f"{item.name}: {item.metadata['text']}{item.metadata['python']}.",
            92,
            subsequent_indent=" " * 8,
        )
        for item in _options(kind)
    ]
    return "\n    ".join(lines)


# --- on a command line ---------------------------------------------------------------------------


def add_flags(parser: argparse.ArgumentParser, kind: Any, **texts: str) -> None:  # noqa: ANN401 # reason: a dataclass
    """Give a parser the flags of a dataclass's options; texts: a command's own."""
    has_group = any(item.metadata["apart"] for item in _options(kind))
    group = parser.add_mutually_exclusive_group() if has_group else parser
    for item in _options(kind):
        if item.metadata["flag"] is None:
            continue
        text = texts.get(item.name, item.metadata["text"]).replace("%", "%%")
        about = {"help": text, **item.metadata["flag"]}
        if not item.kw_only:
            parser.add_argument(item.name, **about)
            continue
        about |= {"required": True} if item.default is MISSING else {"default": item.default}
        target = group if item.metadata["apart"] else parser
        target.add_argument(_flag(item), dest=item.name, **about)


def given(args: argparse.Namespace, kind: Any) -> dict[str, Any]:  # noqa: ANN401 # reason: a dataclass
    """Return the options that a command line has, as a function takes them."""
    names = [item.name for item in _options(kind)]
    return {name: getattr(args, name) for name in names if hasattr(args, name)}


def repeated(args: argparse.Namespace, kind: Any, **changed: Any) -> list[str]:  # noqa: ANN401 # reason: a dataclass, any option
    """Return the words of a command line that say the same again, some of it changed."""
    words = []
    for item in _options(kind):
        value = changed.get(item.name, getattr(args, item.name, item.default))
        if value == item.default:
            continue
        if not item.kw_only:
            words.append(str(value))
        elif isinstance(value, list):
            words += [word for part in value for word in (_flag(item), str(part))]
        elif isinstance(value, bool):
            words.append(_flag(item) if value else _flag(item).replace("--", "--no-", 1))
        else:
            words += [_flag(item), str(value)]
    return words


def _flag(item: Field[Any]) -> str:
    return "--" + (item.metadata["name"] or item.name).replace("_", "-")


def typed(rule: ArgumentRule, read: Callable[[str], Any] = float) -> Callable[[str], Any]:
    """Return what reads a value of a command line that a rule holds for."""

    def value_of(text: str) -> Any:  # noqa: ANN401 # reason: what `read` returns
        with suppress(ValueError):
            if rule.holds(value := read(text)):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} must be {rule.words}")

    return value_of


def _digits(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)


seed_of: Final = typed(whole(0, "a whole number from 0 to 2^63 - 1", below=1 << 63), _digits)
count_of: Final = typed(whole(1, "a whole number from 1 to 100000", below=100_001), _digits)
