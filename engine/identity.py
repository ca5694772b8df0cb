"""Identity: who is asking, and what they may do (section 5).

`PERMISSIONS` are the rights, `ASKABLE` which kind of application may hold them (D-PERMISSIONS,
D-GRANT). A `Caller` is a known principal: the key, its application, its tenant, and what the grants
allow.

`new_key_text` makes the texts of API keys. Only a hash of a text is ever stored (D-KEY). The form
tells one thing to the service, whether the key is a legacy one; tenant and application kind come
from the records, never from the text.

Origins identify the web pages whose scripts may use a public key (D-CORS). An origin is what a
browser sends as `Origin` (RFC 6454): scheme, host and port, no path. Only public applications have
any: a key of another kind in a page would be exposed to everybody.

A container path is the destination of a token, and what a grant covers (TOK-CONTAINER). It starts
and ends with `/`, has no empty segment, and its segments are made of `[A-Za-z0-9_-]`; it is
lower-cased on creation, and the profile bounds its length (D-CONTAINER). A grant on a path covers
the path and all below it, by whole segments (D-GRANT): `/pci/` covers `/pci/high/`, not
`/pciother/`.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Self

from engine.errors import InputError, did_you_mean, wrong_type
from engine.model import Application, ApplicationKind, Grant, Key, Tenant, TenantKind
from engine.world import Entropy

_CONTAINER_FORM: Final = re.compile(r"/(?:[A-Za-z0-9_-]+/)*")

CONTAINER_RULE: Final = (
    "must start and end with '/', with segments of letters, digits, '_' and '-' between"
)


def normal_container(path: str, limit: int) -> str | None:
    """Return the lower-cased path, None when its form is wrong or it is longer than `limit`.

    >>> normal_container("/PCI/High/", 400)
    '/pci/high/'
    >>> normal_container("/pci//high/", 400) is None
    True
    """
    # A text over the limit is not cached: callers can send texts of any size.
    return None if len(path) > limit else _normal_container(path)


def container_rule(path: object, limit: int) -> str:
    """Return the rule that a path breaks when `normal_container` returns None for it."""
    if isinstance(path, str) and len(path) > limit:
        return f"must hold at most {limit} characters"
    return CONTAINER_RULE


@lru_cache(maxsize=4096)
def _normal_container(path: str) -> str | None:
    return None if _CONTAINER_FORM.fullmatch(path) is None else path.lower()


def covers(granted: str, path: str) -> bool:
    """Return whether a grant on `granted` covers `path` (both normal).

    >>> covers("/pci/", "/pci/high/"), covers("/pci/", "/pciother/")
    (True, False)
    """
    return path.startswith(granted)


def _rights(resource: str, *verbs: str) -> tuple[str, ...]:
    return tuple(f"{resource}:{verb}" for verb in verbs)


_TOKEN_PERMISSIONS: Final = (
    *_rights("token", "create", "read", "update", "delete", "search", "use"),
    *_rights("token-intent", "create", "read", "delete"),
)
_ADMINISTRATIVE_PERMISSIONS: Final = (
    *_rights("tenant", "read", "update"),
    *_rights("application", "create", "read", "update", "delete"),
    *_rights("key", "create", "read", "update", "delete"),
)
_ENCRYPTION_KEY: Final = _rights("encryption-key", "create", "read", "delete")
_OTHER_PERMISSIONS: Final = (
    *_rights("reactor", "create", "read", "update", "delete", "invoke"),
    *_rights("proxy", "create", "read", "update", "delete", "invoke"),
    *_rights("account-updater:job", "create", "read"),
    *_rights("log", "read"),
    *_ENCRYPTION_KEY,
    *_ADMINISTRATIVE_PERMISSIONS,
)

PERMISSIONS: Final[tuple[str, ...]] = (*_TOKEN_PERMISSIONS, *_OTHER_PERMISSIONS)
"""Every permission there is."""

_OF_EARLIER_GRANTS: Final = {right: right.removeprefix("encryption-") for right in _ENCRYPTION_KEY}
"""What grants of a private application call these rights that were made before they had a name of
their own: only management applications make API keys, so `key:create` has no other use there."""

ADMINISTRATIVE: Final = frozenset(_ADMINISTRATIVE_PERMISSIONS)
"""The administrative rights: a caller can grant one only if it holds it (D-GRANT-SCOPE)."""

ASKABLE: Final[Mapping[ApplicationKind, frozenset[str]]] = {
    "private": frozenset(PERMISSIONS),
    "public": frozenset({"token:create", "token:update", "token-intent:create"}),
    "management": frozenset(_OTHER_PERMISSIONS),
}
"""What an application of each kind may hold."""


def make_grants(
    kind: ApplicationKind,
    pairs: Iterable[tuple[str, Iterable[str]]],
    container_limit: int = sys.maxsize,
) -> tuple[Grant, ...]:
    """Return grants from `(container path, permissions)` pairs.

    container_limit: the profile's (D-CONTAINER); left out where no profile is known yet.
    Raises `InputError` for a path of the wrong form, an unknown permission, or one that the
    application kind may not hold.
    """
    grants = []
    for index, (path, held) in enumerate(_checked_pairs(pairs)):
        container = normal_container(path, container_limit)
        if container is None:
            text = repr(path) if len(path) <= container_limit else "<str>"
            rule = container_rule(path, container_limit)
            raise InputError(f"grants[{index}].container = {text} {rule}")
        for name in sorted(held):
            if name not in PERMISSIONS:
                raise InputError(
                    f"grants[{index}].permissions holds {name!r}, which does not exist"
                    f"{did_you_mean(name, PERMISSIONS)}"
                )
            if name not in ASKABLE[kind]:
                raise InputError(
                    f"grants[{index}].permissions holds {name!r}, which a {kind} application "
                    f"may not hold; leave it out or choose another kind"
                )
        grants.append(Grant(container, held))
    return tuple(grants)


def _checked_pairs(pairs: object) -> Iterator[tuple[str, frozenset[str]]]:
    """Return the pairs; raises `InputError` for other values, such as a mapping or one pair."""
    rule = 'pairs such as [("/", {"token:create"})]'
    if not isinstance(pairs, Iterable) or isinstance(pairs, str | bytes | Mapping):
        raise wrong_type("grants", pairs, rule)
    for index, pair in enumerate(pairs):
        if not isinstance(pair, Sequence) or isinstance(pair, str | bytes) or len(pair) != 2:
            raise wrong_type(f"grants[{index}]", pair, f"a pair; write {rule}")
        path, names = pair
        if not isinstance(path, str):
            raise wrong_type(f"grants[{index}].container", path, "a path such as '/pci/'")
        held = None
        if isinstance(names, Iterable) and not isinstance(names, str | bytes):
            held = list(names)
        if held is None or not all(isinstance(name, str) for name in held):
            rule = "a set of permissions such as {'token:create'}"
            raise wrong_type(f"grants[{index}].permissions", names, rule)
        yield path, frozenset(held)


REGION_FORM: Final = "[a-z0-9]{1,16}"
REGION_RULE: Final = "must be at most 16 lower-case letters and digits"
"""A region is part of key texts, between underscores; key texts are header values (D-KEY)."""

_BASE58: Final = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_SECRET_CHARACTERS: Final = 22
_ENVIRONMENTS: Final = {"production": "prod", "test": "test"}
_KINDS: Final = {"public": "pub", "private": "pvt", "management": "mgt"}


class KeyText(str):
    """A key's text, shown once to whoever made it; its repr hides it.

    `key_id` is the id of the stored key.
    """

    __slots__ = ("key_id",)

    key_id: str

    def __new__(cls, text: str, key_id: str) -> Self:
        """Make a text that knows its key's id."""
        made = super().__new__(cls, text)
        made.key_id = key_id
        return made

    def __repr__(self) -> str:
        return f"<KeyText of key {self.key_id}; str() shows it>"


def check_region(region: str) -> None:
    """Raise `InputError` for a region that cannot stand in a key's text."""
    given: object = region
    if not isinstance(given, str):
        raise wrong_type("region", given, "a text such as 'us'")
    if re.fullmatch(REGION_FORM, region) is None:
        raise InputError(f"region = {region!a} {REGION_RULE}, such as 'us'")


def is_legacy_text(text: str) -> bool:
    """Return whether a key text is a legacy one (AUTH-LEGACY).

    >>> is_legacy_text("key_7Yb"), is_legacy_text("key_prod_us_pvt_7Yb")
    (True, False)
    """
    return "_prod_" not in text and "_test_" not in text  # obeys AUTH-LEGACY


def new_key_text(
    tenant_kind: TenantKind,
    application_kind: ApplicationKind,
    *,
    region: str,
    legacy: bool,
    entropy: Entropy,
) -> str:
    """Return a new key text in the form of D-KEY, with about 129 random bits."""
    secret = secret_text(entropy)
    if legacy:
        return f"key_{secret}"
    return f"key_{_ENVIRONMENTS[tenant_kind]}_{region}_{_KINDS[application_kind]}_{secret}"


def random_id(chance: random.Random) -> str:
    """Return a random UUID version 4 as text (RFC 9562).

    Six of the bits that are drawn stand for nothing; the places of the other 122 are those that
    give each seed the identifiers it always gave.
    """
    drawn = chance.getrandbits(128)
    digits, first = f"{drawn:032x}", f"{drawn >> 102:07x}"
    return (
        f"{first[1:]}{digits[8:10]}-{digits[10:14]}-4{digits[14:17]}"
        f"-{'89ab'[drawn >> 126]}{digits[17:20]}-{digits[20:]}"
    )


def secret_text(entropy: Entropy, characters: int = _SECRET_CHARACTERS) -> str:
    """Return base58 characters, each drawn evenly."""
    drawn: list[str] = []
    while len(drawn) < characters:
        # 232 = 4 * 58: a byte above it would favour the first letters.
        drawn.extend(_BASE58[byte % 58] for byte in entropy(32) if byte < 232)
    return "".join(drawn[:characters])


@dataclass(eq=False, repr=False, slots=True)
class Caller:
    """Who is asking, once the key is known.

    Permission answers are cached: a `Caller` is immutable, and a changed application gets a new
    one.
    """

    key: Key
    application: Application
    tenant: Tenant
    _may: dict[tuple[str, str | None], bool] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Caller application={self.application.id}>"

    def may(self, permission: str, container: str | None = None) -> bool:
        """Return whether a grant holds `permission` on `container` (D-GRANT).

        Without a container: on any container (rights that belong to no container, D-EMPTY).
        """
        asked = (permission, container)
        known = self._may.get(asked)
        if known is None:
            names = {permission}
            if self.application.kind == "private" and permission in _OF_EARLIER_GRANTS:
                names.add(_OF_EARLIER_GRANTS[permission])
            known = any(
                names & grant.permissions
                and (container is None or covers(grant.container, container))
                for grant in self.application.grants
            )
            if len(self._may) < 1024:
                self._may[asked] = known
        return known

    def containers(self, permission: str) -> tuple[str, ...]:
        """Return the paths on which a grant holds `permission`."""
        return tuple(
            sorted({g.container for g in self.application.grants if permission in g.permissions})
        )


ORIGIN_FORM: Final = (
    r"https?://(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?"
)
"""In lower case, as browsers send it."""


def make_origins(
    origins: Iterable[str], kind: ApplicationKind | None = None, thing: str = "origins"
) -> tuple[str, ...]:
    """Return origins in lower case; raises `InputError` for an invalid one.

    kind: of the application that gets them; only a public one may have origins.

    >>> make_origins(["https://Shop.example"], "public")
    ('https://shop.example',)
    """
    given: object = origins
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise wrong_type(thing, given, "a list such as ['https://shop.example']")
    unique: dict[str, None] = {}
    for place, origin in enumerate(given):
        text = origin.lower() if isinstance(origin, str) else ""
        if re.fullmatch(ORIGIN_FORM, text) is None:
            raise InputError(
                f"{thing}[{place}] = {origin!a} must be a scheme and a host, with a port where it "
                "is not the usual one, such as 'https://shop.example'"
            )
        unique[text] = None
    if unique and kind not in {None, "public"}:
        raise InputError(
            f"{thing} must be empty for a {kind} application: a key in a page is everybody's, so "
            "only public applications have origins"
        )
    return tuple(unique)
