"""Which records a filter chooses, and the terms that find them without looking at all others.

Pure functions that both stores share, so that they cannot disagree. A *term* is a short byte
string that a record is filed under; a filter is turned into *unions* of terms, each of which
covers everything that the filter can choose. A store reads the smallest union
it knows and checks each record with `token_matches` or `log_matches`: the terms make it fast, the
check makes it correct.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final, TypeAlias

from engine.model import LogEntry, Token
from engine.store.protocol import LogFilter, TokenFilter

Term: TypeAlias = bytes
Union: TypeAlias = Sequence[Term]

_ROOT_PATH: Final = "/"
_MAX_ANCESTORS: Final = 8
"""How many ancestors a token is filed under; bounded, so that a long path costs little."""


def _path(container: str) -> str:
    return container if container.endswith("/") else container + "/"


@lru_cache(maxsize=1024)
def _ancestors(container: str) -> tuple[str, ...]:
    """Return each path below the root down to the container, `_MAX_ANCESTORS` at most."""
    path = _path(container)
    paths: list[str] = []
    end = path.find("/", 1)
    while end >= 0 and len(paths) < _MAX_ANCESTORS:
        paths.append(path[: end + 1])
        end = path.find("/", end + 1)
    return tuple(paths)


def _metadata_term(name: str, value: str) -> Term:
    """Return a digest, because values are long; `token_matches` makes the final check."""
    text = f"{len(name)}:{name}{value}".encode()
    return b"m" + blake2b(text, digest_size=16).digest()


def token_terms(token: Token) -> list[Term]:
    """Return every term that the token is filed under, each once."""
    terms = [b"c" + path.encode() for path in _ancestors(token.container)]
    terms.append(b"t" + token.type.encode())
    if token.fingerprint is not None:
        terms.append(b"f" + token.fingerprint.encode())
    if token.index_hashes:
        terms += {b"h" + index_hash for index_hash in token.index_hashes}
    if token.metadata:
        terms += [_metadata_term(name, value) for name, value in token.metadata.items()]
    return terms


def token_unions(chosen: TokenFilter) -> list[Union]:
    """Return the unions of terms that cover the filter; none when every token has to be judged."""
    unions: list[Union] = []
    if chosen.index_hash is not None:
        unions.append((b"h" + chosen.index_hash,))
    if chosen.fingerprint is not None:
        unions.append((b"f" + chosen.fingerprint.encode(),))
    unions += [(_metadata_term(name, value),) for name, value in chosen.metadata]
    if chosen.type is not None:
        unions.append((b"t" + chosen.type.encode(),))
    if chosen.containers is not None and _ROOT_PATH not in chosen.containers:
        paths = sorted({_ancestors(container)[-1] for container in chosen.containers})
        outermost: list[str] = []  # a token below two of them would come twice
        for path in paths:
            if not outermost or not path.startswith(outermost[-1]):
                outermost.append(path)
        unions.append([b"c" + path.encode() for path in outermost])
    return unions


def _lies_in(container: str, chosen: Iterable[str]) -> bool:
    path = _path(container)
    return any(path.startswith(_path(above)) for above in chosen)


def token_matches(token: Token, chosen: TokenFilter) -> bool:
    """Return whether the filter chooses the token; containers by whole segments (D-GRANT)."""
    metadata = token.metadata or {}
    return (
        (chosen.containers is None or _lies_in(token.container, chosen.containers))
        and chosen.type in (None, token.type)
        and chosen.fingerprint in (None, token.fingerprint)
        and (chosen.index_hash is None or chosen.index_hash in token.index_hashes)
        and all(metadata.get(name) == value for name, value in chosen.metadata)
    )


def log_terms(entry: LogEntry) -> list[Term]:
    """Return the terms that a log entry is filed under."""
    return [b"i" + entry.entity_id.encode(), b"t" + entry.entity_type.encode()]


def log_unions(chosen: LogFilter) -> list[Union]:
    """Return the unions of terms that cover the filter; none when every entry has to be judged."""
    unions: list[Union] = []
    if chosen.entity_id is not None:
        unions.append((b"i" + chosen.entity_id.encode(),))
    if chosen.entity_type is not None:
        unions.append((b"t" + chosen.entity_type.encode(),))
    return unions


def log_matches(entry: LogEntry, chosen: LogFilter) -> bool:
    """Return whether the filter chooses the entry; instants are half-open."""
    return (
        chosen.entity_type in (None, entry.entity_type)
        and chosen.entity_id in (None, entry.entity_id)
        and (chosen.from_ns is None or entry.at_ns >= chosen.from_ns)
        and (chosen.before_ns is None or entry.at_ns < chosen.before_ns)
    )
