"""The profile's choices about tokens, prepared once for the path that every request takes.

Each attribute comes from a field of `engine.profile.TokensProfile` or `DedupProfile`, which define
names and defaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, Protocol, TypeAlias

from engine.errors import InputError
from engine.identity import container_rule, normal_container
from engine.messages import Problem
from engine.profile import DedupProfile, TokensProfile

TOKEN: Final = "token"  # noqa: S105 # reason: the name of a type
SchemaKind: TypeAlias = Literal["full", "floor", "ceiling"]
"""What this engine does, what any conforming service must accept, what one may accept at most."""

CARD: Final = "card"
STRUCTURED: Final = (CARD,)
"""The types whose data is an object of known fields: `engine.tokens.structures`."""

FAULTS_LIMIT: Final = 1000
_POINTERS_LIMIT: Final = 250_000
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
        self.types = frozenset({TOKEN, *STRUCTURED, *tokens.extra_types})
        self.intent_fields = _DATA_FIELDS
        self.patch_fields = _FIELDS - {"token_intent_id"} | {tokens.container_field}
        self.fields = _FIELDS | {tokens.container_field, dedup.flag_name}
        _check_names(tokens, dedup)
        token = _default(tokens, "container_default_token")
        self.leaf_container = token
        self.containers: Mapping[str, str] = {
            **dict.fromkeys(tokens.extra_types, token),
            TOKEN: token,
            **{name: _default(tokens, f"container_default_{name}") for name in STRUCTURED},
        }
        any_data = set(tokens.extra_types) - {TOKEN, *STRUCTURED}
        if tokens.token_data == "any":  # noqa: S105 # reason: a choice's name
            any_data.add(TOKEN)
        self.any_data = frozenset(any_data)
        self.leaf_expression = None if tokens.fpexpr_default == "hidden" else "{{ data }}"


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
