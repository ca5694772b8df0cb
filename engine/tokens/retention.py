"""What remains of a card when the retention of its cvc has expired (D-CVC, QUO-CVC).

The cvc is removed, and under D-CVC-DERIVE `allow` also what was derived from it: with the key, a
keyed hash of three digits is found by a thousand tries. Search indexes over it are removed; a
fingerprint over it is derived again as if no expression had been supplied, and so is the hash that
deduplication compares. A patch of a card with an expired cvc has the same result.

The store keeps the deadline and overwrites the data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from engine.errors import VaultError
from engine.model import Token
from engine.tokens import expressions
from engine.tokens.creation import Keys, dedup_hashes
from engine.tokens.drafts import derive, unplaced
from engine.tokens.fingerprints import fingerprint
from engine.tokens.rules import Faults, Rules
from engine.tokens.strict_json import parse

__all__ = ["outliving", "without_cvc"]


class _Stored:
    """The location of faults in a stored token, which has no place in a body."""

    pointer: Final = ""


_STORED: Final = _Stored()


def without_cvc(token: Token, keys_of: Callable[[str], Keys], rules: Rules) -> Token:
    """Return the card as it stands when its cvc is erased.

    keys_of: tenant id → its keys; called only when a fingerprint must be derived again. Never
    raises `VaultError`, since a retention that fails would keep every cvc of every tenant: a card
    that cannot be decrypted loses its fingerprint and equals no other token.
    """
    bare = replace(token, sealed_cvc=None, cvc_until_ns=None)
    indexes = token.search_indexes
    kept = () if indexes is None else outliving(indexes)
    if indexes is not None and len(kept) < len(indexes):
        hashes = zip(indexes, token.index_hashes, strict=False)
        bare = replace(
            bare,
            search_indexes=kept,
            index_hashes=tuple(hashed for index, hashed in hashes if index in kept),
        )
    expression = token.fingerprint_expression
    if expression is None or outliving((expression,)):
        return bare
    try:
        return _fingerprinted(bare, keys_of(token.tenant_id), rules)
    except VaultError:
        return replace(bare, fingerprint=None, fingerprint_expression=None, dedup_hash=b"")


def outliving(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of a card's expressions that select something when its cvc is gone.

    >>> outliving(("{{ data.cvc }}", "{{ data.number }}"))
    ('{{ data.number }}',)
    """
    return tuple(text for text in texts if (expressions.parse(text) or ())[:1] != ("cvc",))


def _fingerprinted(token: Token, keys: Keys, rules: Rules) -> Token:
    """Return the card with the fingerprint that it has when no expression is supplied."""
    draft = unplaced(token.type, token.container)
    data = parse(keys.open(token.container, token.id, token.sealed_data, "data"))
    derive(draft, data, None, rules, Faults(), _STORED)
    return replace(
        token,
        dedup_hash=dedup_hashes([draft], keys, rules)[0],
        fingerprint=fingerprint(draft.type, draft.selected, keys.fingerprint),
        fingerprint_expression=draft.fingerprint_expression,
    )
