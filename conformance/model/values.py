"""Parts of a step that get their texts when the step is sent.

A live deployment remembers what earlier sequences stored, so each play of a sequence renders its
values afresh: a `TextValue` is a *core*, ten letters that belong to the play, inside named *wraps*
such as upper case. A `Ref` is an identifier of an earlier answer. A `Sealed` part is encrypted for
each side with its own key.
"""

from __future__ import annotations

import random
import re
import string
import unicodedata
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from engine.tokens.rules import is_luhn_valid

Node: TypeAlias = Any
"""JSON whose parts may be `TextValue`, `Ref`, `Join` and `Sealed`."""

_LETTERS: Final = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ"
CORE_LENGTH: Final = 10
UNKNOWN_ID: Final = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True)
class TextValue:
    """A value: the play's fresh core of this number, changed by the wraps in order."""

    core: int
    wraps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ref:
    """The identifier at a place, counted from 0, in the answer of a step."""

    step: int
    place: int


@dataclass(frozen=True, slots=True)
class Join:
    """A text that is put together from parts."""

    parts: tuple[str | Ref | TextValue, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Sealed:
    """`data` encrypted on the client's side. number: unique in the sequence."""

    number: int
    data: Node
    is_broken: bool = False


def core_text(salt: str, number: int) -> str:
    """Return the fresh core of a play.

    >>> core_text("1", 2) == core_text("1", 2) != core_text("2", 2)
    True
    """
    return "".join(random.Random(f"{salt}/{number}").choices(_LETTERS, k=CORE_LENGTH))  # noqa: S311 # reason: must repeat


def _digits(core: str, count: int) -> str:
    return "".join(random.Random(core).choices(string.digits, k=count))  # noqa: S311 # reason: must repeat


def _card(count: int) -> Callable[[str], str]:
    def number(core: str) -> str:
        front = "4" + _digits(core, count - 2)
        return next(front + digit for digit in string.digits if is_luhn_valid(front + digit))

    return number


def card_data(number: int = 1, digits: int = 16) -> dict[str, Node]:
    """Return the data of a card, whose number and cvc are two fresh cores."""
    return {
        "number": TextValue(number, (f"card {digits}",)),
        "expiration_month": 12,
        "expiration_year": 2031,
        "cvc": TextValue(number + 1, ("cvc 3",)),
    }


def _wrong_card(core: str) -> str:
    number = _card(16)(core)
    return number[:-1] + str((int(number[-1]) + 1) % 10)


def _uuid(core: str) -> str:
    return str(uuid.UUID(int=random.Random(core).getrandbits(128), version=4))  # noqa: S311 # reason: must repeat


def _cvc(count: int) -> Callable[[str], str]:
    """Return digits that are no status, year or page size, so that they stand for nothing else."""

    def code(core: str) -> str:
        return str(random.Random(core).randrange(6 * 10 ** (count - 1), 10**count - 1))  # noqa: S311 # reason: must repeat

    return code


def _dashed(core: str) -> str:
    digits = _digits(core, 9)
    return f"{digits[:3]}-{digits[3:5]}-{digits[5:]}"


def _padded(length: int) -> Callable[[str], str]:
    return lambda core: core.ljust(length, "x")


def _normal(form: Literal["NFC", "NFD", "NFKC"]) -> Callable[[str], str]:
    return lambda text: unicodedata.normalize(form, text)


PLAIN_FORMS: Final[Mapping[str, Callable[[str], str]]] = {
    "digits": lambda core: _digits(core, 16),
    "digits 12": lambda core: "000" + _digits(core, 9),
    "dashed digits": _dashed,
    **{f"card {count}": _card(count) for count in range(12, 20)},
    "wrong card": _wrong_card,
    "spaced card": lambda core: " ".join(re.findall("....", _card(16)(core))),
    "cvc 3": _cvc(3),
    "cvc 4": _cvc(4),
    "cvc with a zero": lambda core: "0" + _cvc(2)(core),
    "UUID": _uuid,
    "UUID in capitals": lambda core: _uuid(core).upper(),
}
"""Forms that hold no core: their text is computed from it."""
_AROUND: Final[Mapping[str, str]] = {
    "spaces around": " {} ",
    "tab and line feed": "\t{}\n",
    "NUL inside": "{}\0tail",
    "NUL first": "\0{}",
    "CR LF inside": "{}\r\nline",
    "line feed and CR": "{}\nline\r",
    "quotes": '"{}\\"',
    "HTML": "<b>{}</b>&amp;'",
    "script": "<script>{}</script>",
    "URL": "https://{}.example/a?b=c#d",
    "expression": "{{{{ {} }}}}",
    "expression before": "{{{{ data }}}}{}",
    "JSON object": '{{"a": "{}"}}',
    "JSON array": '["{}", 1]',
    "composed": "{}\u00e9\u00c5",
    "decomposed": "{}e\u0301A\u030a",
    "compatible": "{}\u212b\ufb01\u2460",
    "astral": "\U0001f600{}\U0001f468\u200d\U0001f469",
    "byte order mark first": "\ufeff{}",
    "marks": "\u202e{}\ufeff\u2028\uffff",
    "escapes": "{}%41%2F+a=b&c",
    "address": "{}@Example.COM",
    "special case": "{}\u00df\u0130\u0131",
    "no-break spaces": "\u00a0{}\u00a0\u2003b",
    "inner spaces": "  {}  two  spaces",
    "SQL": "'; DROP TABLE t; --{}",
    "control": "\x1b[0m{}\x7f\x80",
    "space after": "{} ",
    "NUL and a": "{}\0a",
    "NUL and b": "{}\0b",
    "letter more": "{}z",
    "zero before": "0{}",
    "line feed after": "{}\n",
}
WRAPS: Final[Mapping[str, Callable[[str], str]]] = {
    **PLAIN_FORMS,
    **{f"{length} characters": _padded(length) for length in (255, 256, 257, 1000, 4096, 10_000)},
    **{name: form.format for name, form in _AROUND.items()},
    "upper case": str.upper,
    "lower case": str.lower,
    "other case": str.swapcase,
    "stripped": str.strip,
    "NFC": _normal("NFC"),
    "NFD": _normal("NFD"),
    "NFKC": _normal("NFKC"),
    "LF for CR LF": lambda text: text.replace("\r\n", "\n"),
    "first 255": lambda text: text[:255],
    "no dashes": lambda text: text.replace("-", ""),
}
FORMS: Final = (
    *(name for name in PLAIN_FORMS if not name.startswith("cvc")),
    *(name for name in WRAPS if name.endswith("characters")),
    *(name for name in _AROUND if name not in {"NUL and a", "NUL and b", "letter more"}),
)
"""What a new value looks like."""
VARIANTS: Final = (
    *("upper case", "lower case", "other case", "space after", "stripped", "NFC", "NFD", "NFKC"),
    *("NUL and a", "NUL and b", "LF for CR LF", "first 255", "letter more", "no dashes"),
    *("line feed after", "zero before"),
)
"""Changes to a value that careless code does not notice."""


def text_of(node: TextValue, salt: str) -> str:
    """Return the text of a value in a play.

    >>> text_of(TextValue(1, ("upper case",)), "7").isupper()
    True
    """
    text = core_text(salt, node.core)
    for wrap in node.wraps:
        text = WRAPS[wrap](text)
    return text


def parts_of(node: Node) -> Iterator[Node]:
    """Yield the parts of a node, in document order, the node itself first."""
    yield node
    inner: Any = ()
    if isinstance(node, dict):
        inner = node.values()
    elif isinstance(node, list):
        inner = node
    elif isinstance(node, Join):
        inner = node.parts
    elif isinstance(node, Sealed):
        inner = (node.data,)
    for part in inner:
        yield from parts_of(part)


def quoted(text: str) -> str:
    r"""Return a text in the quotes of a search query.

    >>> quoted('a"b')
    '"a\\"b"'
    """
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
