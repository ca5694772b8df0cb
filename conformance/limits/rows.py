"""How each row of the limit table is sent: which request, which key and address, which variants.

A row is measured with a request that no other row limits more tightly, and that is valid at the
deployment. Where possible it creates nothing: `{}` holds no token.
"""

from __future__ import annotations

import dataclasses
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from conformance.context.answers import text_of
from conformance.context.check import Inconclusive, Skip
from conformance.context.context import CheckContext
from conformance.limits.measurement import HEAVY_REQUESTS, ProfileEffect
from conformance.limits.sending import BurstSender
from conformance.messages.exchange import HttpRequest, KeyLabel
from conformance.messages.shapes import SHAPES
from conformance.target import Target
from engine.files import Rate
from engine.limits import LimitTable, Rule
from engine.messages import Json
from engine.tokens.strict_json import dumps
from engine.vault.jwe import encrypt

_MERGE_PATCH: Final = {"Content-Type": "application/merge-patch+json"}
_BY_ID: Final = ("get", "patch", "delete")
_KEYS_THAT_MAY: Final = {"reader": "private_reader", "manager": "management"}
_FORWARDED: Final = ("X-Forwarded-For", "X-Real-IP")
_LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
"""Servers trust what callers on their own machine forward."""
_SHARED: Final = ProfileEffect("limits.or_resource", "shared")
_PREFIX: Final = ProfileEffect("limits.get_tokens", "prefix", "list")
_PROXY_VARIANTS: Final = (
    "invoke_proxy/path",
    "invoke_proxy/PUT",
    "invoke_proxy/PATCH",
    "invoke_proxy/DELETE",
    "invoke_proxy/POST",
    "invoke_proxy/HEAD",
    "invoke_proxy/body",
)
_ANY_REQUEST: Final = ("list/HEAD", "list/OPTIONS", "list/nowhere")
"""What rows for any method and resource count too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRow:
    """How a row is sent.

    description: what its check shows. role: of its keys, None for requests without a key.
    operation: what is sent. valid: another operation, to send where that one fails and failed
    requests need not count. variants: what the row must count too, besides its own operation with a
    query and with other headers, as `operation`, or as `operation/CHANGE`: `query`, `headers`,
    `forwarded` (headers in which proxies name the caller's address), `id` (an existing token),
    `new` (one that is there to be deleted), `bare` (without a body), `reader` or `manager` (a key
    that may), `path`, `nowhere` (a path that no operation has), a form of the body, or a method.
    choices: what some variants show of the profile. apart: an operation that no full counter of
    this row may refuse.
    """

    rule_id: str
    description: str
    role: str | None = "private_prod"
    operation: str
    valid: str | None = None
    variants: tuple[str, ...] = ()
    choices: Mapping[str, ProfileEffect] = field(default_factory=dict)
    apart: str = "search"


ROWS: Final[Mapping[str, LimitRow]] = {
    row.rule_id: row
    for row in (
        LimitRow(
            rule_id="LIM-TEST-TENANT",
            description="A test tenant's key is limited to 50 per 10 s at an address.",
            role="private_test",
            operation="tokenize",
            variants=(
                "search",
                "list",
                *_ANY_REQUEST,
                "get",
                "get/id",
                "patch",
                "delete",
                "create",
                "detokenize",
            ),
        ),
        LimitRow(
            rule_id="LIM-SEARCH",
            description="A search is limited to 50 per 10 s for a key at an address.",
            operation="search",
            variants=("search/empty", "search/sized"),
            apart="list",
        ),
        LimitRow(
            rule_id="LIM-READ",
            description="Listing and detokenizing share 100 per 10 s for a key at an address.",
            operation="list",
            valid="list/reader",
            variants=("list/HEAD", "detokenize", "get/id"),
            choices={"detokenize": _SHARED, "get/id": _PREFIX},
        ),
        LimitRow(
            rule_id="LIM-CREATE",
            description="POST /tokens and /tokenize share 200 per 10 s for a key at an address.",
            operation="tokenize",
            variants=(
                "tokenize/tokens",
                "tokenize/array",
                "tokenize/card",
                "tokenize/full",
                "tokenize/encrypted",
                "tokenize/empty",
                "tokenize/string",
                "tokenize/known",
                "tokenize/invalid",
                "tokenize/bare",
                "create",
                "create/card",
            ),
            choices={"create": _SHARED, "create/card": _SHARED},
            apart="list",
        ),
        LimitRow(
            rule_id="LIM-PATCH",
            description="Patching is limited to 200 per 10 s for a key at an address, any token.",
            operation="patch",
            valid="patch/id",
            variants=("patch/id", "patch/bare"),
            apart="delete",
        ),
        LimitRow(
            rule_id="LIM-DELETE",
            description="Deleting is limited to 200 per 10 s for a key at an address, any token.",
            operation="delete",
            valid="delete/new",
            variants=("delete/id",),
            apart="patch",
        ),
        LimitRow(
            rule_id="LIM-ACCOUNT-UPDATER",
            description="The account updater is limited to 10 per 10 s for a key at an address.",
            operation="list_account_updater_jobs",
            valid="list_account_updater_jobs/manager",
            variants=("get_account_updater_job", "create_account_updater_job"),
        ),
        LimitRow(
            rule_id="LIM-PRIVATE",
            description="A private application's key is limited to 2000 per 10 s at all addresses.",
            operation="list_logs",
            valid="list/OPTIONS",
            variants=("create", "list", "get", "patch", "delete", "detokenize", *_ANY_REQUEST),
        ),
        LimitRow(
            rule_id="LIM-PUBLIC",
            description="A public key is limited to 50 per minute at an address, then blocked.",
            role="public",
            operation="tokenize",
            variants=(
                *("list", "get", "create", "patch", "delete", "create_token_intent"),
                *_ANY_REQUEST,
            ),
        ),
        LimitRow(
            rule_id="LIM-MANAGEMENT",
            description="A management key is limited to 200 per minute, then blocked for a minute.",
            role="management",
            operation="get_tenant",
            valid="list_applications",
            variants=("list_applications", "create", "delete", "patch", *_ANY_REQUEST),
        ),
        LimitRow(
            rule_id="LIM-PROXY-KEY",
            description="A proxy named by its key is limited to 50 per 10 s at an address.",
            role="proxy_key",
            operation="invoke_proxy",
            variants=_PROXY_VARIANTS,
        ),
        LimitRow(
            rule_id="LIM-PROXY-HOST",
            description="A proxy of a custom hostname is limited to 50 per 10 s at an address.",
            role="custom_hostname",
            operation="invoke_proxy",
            variants=_PROXY_VARIANTS,
        ),
        LimitRow(
            rule_id="LIM-IP",
            description="An address is limited to 2000 per 10 s in all, then blocked 30 s.",
            role=None,
            operation="list",
            valid="list/OPTIONS",
            variants=(
                "list/key",
                "list/unknown",
                *_ANY_REQUEST,
                "search",
                "get",
                "patch",
                "delete",
                "tokenize",
                "tokenize/key",
                "get_tenant",
            ),
        ),
        LimitRow(
            rule_id="LIM-LEGACY",
            description="A legacy key is limited to 100 per minute at an address.",
            role="legacy",
            operation="tokenize",
            variants=("list", "get", "patch", "delete", "create", *_ANY_REQUEST),
        ),
    )
}
"""Every row of the specification by its id."""


def rule_of(limits: LimitTable, rule_id: str) -> Rule:
    """Return a row of the target's table; raises `Skip` if it has none or only a shadow rule."""
    for rule in limits:
        if rule.id == rule_id and not rule.shadow:
            return rule
    raise Skip(f"the target's limit table has no {rule_id} in force; add the row")


def tighter(row: LimitRow, rule: Rule, target: Target, limits: LimitTable) -> str | None:
    """Return why a row cannot be judged with its operation here, None where it can.

    The operation may have a limit of its own there, or be mapped to one that another row limits.
    """
    name = row.operation
    shape = target.shape(name)
    if shape.limit is not None and _hides(shape.limit, rule.rate):
        return (
            f"{name} has a limit of its own here, {shape.limit}, so {row.rule_id} ({rule.rate}) "
            f"cannot be seen with it; raise [requests.{name}] limit on the deployment for the run, "
            "or map an operation without one"
        )
    same = [
        f"{default.method} {default.path}"
        for other, default in SHAPES.items()
        if other != name
        and (target.shape(other).method, target.shape(other).path) == (shape.method, shape.path)
    ]
    for other in limits:
        is_same = any(
            _covers(resource, request) for resource in other.match.resource for request in same
        )
        if other.id != rule.id and is_same and not other.shadow and _hides(other.rate, rule.rate):
            return (
                f"{name} is mapped to {shape.method} {shape.path}, which {other.id} limits to "
                f"{other.rate}, so {row.rule_id} ({rule.rate}) cannot be seen with it; map another "
                f"operation in [requests.{name}]"
            )
    return None


def _covers(resource: str, request: str) -> bool:
    """Whether a resource of a row, such as `ANY /account-updater/*`, covers a method and path."""
    (method, path), (own_method, own_path) = resource.split(" "), request.split(" ")
    is_under = path.endswith("*") and own_path.startswith(path[:-1])
    return method in {"ANY", own_method} and (path == own_path or is_under)


def _hides(own: Rate, rate: Rate) -> bool:
    """Whether a limit refuses before a row would, in a burst or in the long run."""
    slower = own.limit_requests * rate.window_ns <= rate.limit_requests * own.window_ns
    return slower or own.limit_requests <= rate.limit_requests


# --- requests -------------------------------------------------------------------------------------


@dataclass(slots=True)
class RowRequests:
    """Makes the requests of a row. body: of a tokenize that is valid here and creates least.

    known: an existing token that no other check deletes; None where there is none.
    """

    ctx: CheckContext
    row: LimitRow
    body: Json = field(default_factory=dict)
    known: str | None = None
    salt: int = 0
    lane_name: str = "prepare"
    deletable: list[str] = field(default_factory=list)
    stocked: int = 0

    def variants(self) -> tuple[str, ...]:
        """Return the variants that the target permits and that have no limit of their own."""
        own = self.row.operation
        names = (f"{own}/query", f"{own}/headers", f"{own}/forwarded", *self.row.variants)
        return tuple(name for name in names if self._is_possible(name))

    def _is_possible(self, name: str) -> bool:
        operation, _, change = name.partition("/")
        target = self.ctx.target
        is_local = urlsplit(target.base_url).hostname in _LOCAL_HOSTS
        if (
            (change == "id" and self.known is None)
            or (change == "encrypted" and target.encryption_jwk is None)
            or (change == "forwarded" and (is_local or target.forwarded is not None))
        ):
            return False
        ask = self.make(name, BurstSender(None, (None,)), 0)
        has_limit = target.shape(operation).limit is not None
        return not has_limit and self.ctx.session.forbids(ask.method, ask.path) is None

    def make(self, variant: str, party: BurstSender, number: int) -> HttpRequest:
        """Return a request of a party."""
        row = self.row
        named = {"plain": row.operation, "valid": row.valid or row.operation, "apart": row.apart}
        operation, _, change = named.get(variant, variant).partition("/")
        method, path, body = self.ctx.shaped(operation, self._values(operation, change, number))
        if operation == "create" and change:
            body = self._form(change, number)
        elif operation == "search" and change in {"empty", "sized"}:
            body = {**(body if change == "sized" and isinstance(body, dict) else {})}
            body |= {"size": 20} if change == "sized" else {}
        if change.isupper():
            method = change
        elif change == "bare":
            body = None
        elif operation == "invoke_proxy" and change == "body":
            method, body = "POST", {"probe": number}
        elif change == "nowhere":
            path = f"/probe-{self.salt}-{number}"
        elif change == "query":
            path += ("&" if "?" in path else "?") + "probe=1"
        headers = dict(_MERGE_PATCH) if operation == "patch" else {}
        if change == "headers":
            agent = f"probe-{self.salt}-{number}"
            headers |= {"User-Agent": agent, "Idempotency-Key": agent, "Accept": "text/csv, */*"}
        elif change == "forwarded":
            headers |= dict.fromkeys(_FORWARDED, f"198.51.100.{number % 256}")
        ask = HttpRequest(
            method=method,
            path=path,
            body=None if method in {"GET", "HEAD", "OPTIONS"} else body,
            headers=headers,
            source=party.sources[number % len(party.sources)],
        )
        return self._with_key(ask, change, party, number)

    def _values(self, operation: str, change: str, number: int) -> dict[str, Json]:
        """Return what is filled in: an identifier, a value or body, and the rest of a path."""
        identifier = str(uuid.UUID(int=(self.salt << 64) + number, version=4))
        if change == "id" and self.known is not None:
            identifier = self.known
        elif change == "new" and self.stocked:
            identifier = self._deletable()
        value: Json = f"probe{number}"
        if operation == "tokenize":
            value = self._form(change, number)
        return {"id": identifier, "value": value, "path": "/other" if change == "path" else ""}

    def _deletable(self) -> str:
        """Return a token that was made to be deleted; raises `Inconclusive` where none is left."""
        if not self.deletable:
            raise Inconclusive(
                f"only requests that succeed count here, and the {self.stocked} tokens that were "
                "made to be deleted did not last: lower the row's limit for the run, on the "
                "deployment and in the target's limit table"
            )
        return self.deletable.pop()

    def _form(self, form: str, number: int) -> Json:
        """Return a body in a form; the one that creates least, if it is none of these."""
        if form == "encrypted":
            jwk = self.ctx.target.encryption_jwk or {}
            text = self.ctx.make("encrypted", lambda: encrypt(jwk, dumps("probe")))
            return {"type": "token", "encrypted": text}
        if form == "card":
            return self.ctx.card(f"probe {number}")
        flag = self.ctx.profile.dedup.flag_name
        forms: dict[str, Json] = {
            "tokens": {f"probe{place}": f"probe {number} {place}" for place in range(3)},
            "array": [f"probe {number}"],
            "empty": [],
            "string": f"probe {number}",
            "invalid": {"type": "unknown", "data": "probe"},
            "full": {"type": "token", "data": f"probe {number}", "metadata": {"probe": "1"}},
            "known": {"type": "token", "data": "probe", flag: True},
        }
        return forms.get(form, self.body)

    def _with_key(
        self, ask: HttpRequest, change: str, party: BurstSender, number: int
    ) -> HttpRequest:
        able = self.ctx.target.labels(_KEYS_THAT_MAY.get(change, ""))
        if able:
            return dataclasses.replace(ask, key=able[0])
        if change == "key":
            return dataclasses.replace(ask, key=self._any_key(number))
        if change == "unknown":
            header = {self.ctx.target.key_header: f"key_{number:022d}"}
            return dataclasses.replace(ask, headers={**ask.headers, **header})
        if party.key is None:
            return ask
        role = party.key.rpartition(".")[0]
        if role == "proxy_key":
            return dataclasses.replace(ask, proxy_key=party.key)
        if role == "custom_hostname":
            return dataclasses.replace(ask, host=party.key)
        return dataclasses.replace(ask, key=party.key)

    def _any_key(self, number: int) -> KeyLabel | None:
        labels = [
            label
            for role in ("private_prod", "public", "management")
            for label in self.ctx.target.labels(role)[:1]
        ]
        return labels[number % len(labels)] if labels else None

    async def prepare(self, keys: Sequence[KeyLabel]) -> None:
        """Find a body that is valid here, and create a token where a variant needs it."""
        ctx, row = self.ctx, self.row
        self.salt = ctx.random("ids").getrandbits(56)
        if row.role is None or row.role in {"proxy_key", "custom_hostname"}:
            return
        lane = ctx.lane(self.lane_name, source=ctx.sources[0])
        operations = (row.operation, *row.variants)
        if any(name.startswith("tokenize") for name in operations):
            method, path, body = ctx.shaped("tokenize", {"value": {}})
            if not (await lane.insist(method, path, body, key=keys[0])).ok:
                self.body = {"probe": ctx.value("probe")}
        if any(name.endswith("/id") for name in operations):
            value = {"probe": ctx.value("known")}
            asked = ctx.shaped("tokenize", {"value": value})
            self.known = text_of(await lane.insist(*asked, key=keys[0]), "probe")

    async def stock(self, key: KeyLabel, rule: Rule) -> bool:
        """Create as many tokens as measuring the row takes, where each valid request deletes one.

        Returns whether so many valid requests can be sent: a manager's key has a rate of its own.
        """
        ctx, valid = self.ctx, self.row.valid or ""
        if not valid.endswith("/new"):
            return not valid.endswith("/manager") or rule.limit_requests <= _MANAGERS
        lane = ctx.lane(f"stock {self.stocked}", key=key, source=ctx.sources[0])
        most = max(1, ctx.quota("Tokenize Limit", key))
        size = sizes_of(rule).requests * 5 // 4
        while len(self.deletable) < size:
            body = {f"v{place}": ctx.value(f"{self.stocked} {place}") for place in range(most)}
            answer = await lane.insist(*ctx.shaped("tokenize", {"value": body}))
            names = [name for name in (text_of(answer, key) for key in body) if name]
            if not names:
                break
            self.deletable += names
            self.stocked += len(names)
        return True


def parties_of(
    row: LimitRow,
    rule: Rule,
    keys: Sequence[KeyLabel],
    sources: Sequence[str | None],
    chance: random.Random,
) -> list[BurstSender]:
    """Return the parties of a row, in order of preference.

    Rows with the same keys prefer other pairs, so that one row's fault touches no other row.
    """
    if row.role is None:
        return [BurstSender(None, (source,)) for source in sources]
    if row.rule_id == "LIM-PRIVATE":
        return [BurstSender(key, _half(sources)) for key in keys]
    few = len(sources) // 3 if len(sources) >= _MANY_SOURCES else 0
    sources = sources[-few:] if rule.block_ns else sources[: len(sources) - few]
    if rule.counter == "key":
        return [BurstSender(key, (sources[0],)) for key in keys]
    place = _place(row)
    pairs = [
        ((number + shift - place) % _ROW_COUNT != 0, chance.random(), BurstSender(key, (source,)))
        for number, key in enumerate(keys)
        for shift, source in enumerate(sources)
    ]
    return [party for _, _, party in sorted(pairs, key=lambda pair: pair[:2])]


def party_apart(
    row: LimitRow, keys: Sequence[KeyLabel], sources: Sequence[str | None]
) -> tuple[BurstSender, int]:
    """Return a party that shares no key and no address with those of other rows, and its turn.

    What a limiter holds back holds back what follows in every row of the same key or address.
    """
    place, index = _place(row), list(ROWS).index(row.rule_id)
    is_heavy = row.rule_id == "LIM-PRIVATE"
    own = _half(sources) if is_heavy else (sources[index % len(sources)],)
    party = BurstSender(keys[place % len(keys)], own)
    return party, max(place // len(keys), index // len(sources))


def _half(sources: Sequence[str | None]) -> tuple[str | None, ...]:
    """Return so many addresses that LIM-IP, which has the same rate, is not exceeded."""
    return tuple(sources[: max(1, len(sources) // 2)])


def _place(row: LimitRow) -> int:
    """Return the place of a row among those with keys of the same role."""
    return [other.rule_id for other in ROWS.values() if other.role == row.role].index(row.rule_id)


_MANAGERS: Final = 23
"""Up to this limit a row is measured below the rate of a management key."""
_ROW_COUNT: Final = 6
_MANY_SOURCES: Final = 9


# --- sizes ----------------------------------------------------------------------------------------


class Sizes(NamedTuple):
    """What measuring a row takes: its requests as a rule, at most, and its shortest duration.

    rest_ns: how long its counters rest where an earlier run has just used them.
    """

    requests: int
    requests_most: int
    takes_ns: int
    rest_ns: int


def sizes_of(rule: Rule) -> Sizes:
    """Return what the check of a row takes."""
    limit, window_ns, block_ns = rule.limit_requests, rule.window_ns, rule.block_ns or 0
    is_heavy = limit >= HEAVY_REQUESTS
    rest_ns = 2 * window_ns + window_ns // 50 + block_ns
    if not block_ns:
        usual = (4 if is_heavy else 15) * limit + 300
        takes_ns = window_ns * (69 if is_heavy else 27) // 10
        return Sizes(usual, 3 * (usual + 10 * limit), takes_ns, rest_ns)
    usual = (8 if is_heavy else 30) * limit + 300
    longest_ns = max(window_ns, block_ns) + max(window_ns, block_ns) + block_ns
    return Sizes(usual, 3 * (usual + 6 * limit), longest_ns, rest_ns)


def parties_apart(
    shared_keys: Mapping[str, Sequence[KeyLabel]],
    shared_sources: Sequence[str | None],
    keys: Mapping[str, Sequence[KeyLabel]],
    sources: Sequence[str | None],
) -> Callable[[Sequence[str]], bool]:
    """Return whether rows of some roles share no counter with what uses the shared ones."""

    def is_apart(roles: Sequence[str]) -> bool:
        if not set(sources) & set(shared_sources):
            return True
        return all(not set(keys.get(role, ())) & set(shared_keys.get(role, ())) for role in roles)

    return is_apart
