"""The limit table: the rows of section 8.2 to 8.7 as data, and how an analyst changes them.

Docs, reports and the engine read the limits only here. A table applies to one deployment or one
tenant (QUO-RATE); the profile says how a row is applied (algorithm, composition, delay, edges). An
analyst copies the table to a file, edits it and loads it again; further rows need ids that do not
begin with `LIM-`. A table holds no counters.

`Classifier` says which rows' patterns a request falls under. A pattern is a method and a path:
`POST /tokens/search`, `PATCH /tokens/{id}`, `ANY /account-updater/*`. `{name}` stands for one
segment, whatever it holds, so that all ids share a row's counter; a final `*` for everything below.
HEAD counts as GET; OPTIONS falls under `ANY` alone; the query string does not matter (D-COUNTED).
Whether a read of one token falls under the row of `GET /tokens` is the profile's `get_tokens`
(D-GET-TOKENS).

Paths are compared as the router compares them, with case: a path that the service does not know
counts under the rows without a resource. A path may fall under several patterns or under none.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias, get_args

from engine.errors import InputError, did_you_mean, wrong_type
from engine.files import (
    Alias,
    Document,
    Duration,
    Integer,
    Rate,
    check_built,
    format_duration,
    from_document,
    json_schema,
    parse_rate,
    parse_toml,
    read_toml,
    shown_value,
    to_plain,
    to_toml,
)
from engine.limits.counters import ALGORITHMS
from engine.model import ApplicationKind, TenantKind
from engine.profile import Algorithm

KeyField: TypeAlias = Literal["ip", "key_id", "proxy_key_id", "host_id"]
"""The fields of a `Subject` that a counter can be keyed by; all but the address may be None."""

KEY_FIELDS: Final[tuple[KeyField, ...]] = get_args(KeyField)
OTHER_FIELDS: Final = KEY_FIELDS[2:]
"""The fields other than address and key; few requests have them."""

OWNER_FIELDS: Final = frozenset({"application_id", "tenant_id"})
"""Fields that every request with a known API key has; a rule may count by them."""

UPLOADS: Final = "/batch-files/"
"""Of the paths whose sender is identified by the secret in it."""

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE", "ANY")
_PATTERN: Final = re.compile(
    r"(?P<method>[A-Z]+) (?P<path>(?:/(?:[A-Za-z0-9._~-]+|\{[a-z_]+\}))*(?:/\*)?)"
)
_CACHE_ENTRIES: Final = 1 << 16
_CACHED_CHARACTERS: Final = 300
"""A longer path is not cached, because callers can send paths of any size."""

GetTokens = Literal["list", "prefix"]


def pattern_fault(pattern: str) -> str | None:
    """Return the rule that a pattern breaks, or None.

    >>> pattern_fault("HEAD /tokens")
    'must not name HEAD, which counts as GET; write "GET /tokens"'
    """
    parsed = _PATTERN.fullmatch(pattern)
    if parsed is None or not parsed["path"]:
        return 'must be a method and a path such as "PATCH /tokens/{id}" or "ANY /reactors/*"'
    if parsed["method"] == "HEAD":
        return f'must not name HEAD, which counts as GET; write "GET {parsed["path"]}"'
    if parsed["method"] == "OPTIONS":
        return f'must not name OPTIONS, which counts under ANY; write "ANY {parsed["path"]}"'
    if parsed["method"] not in METHODS:
        return "must begin with one of " + ", ".join(METHODS)
    return None


def _expression(pattern: str, get_tokens: GetTokens) -> re.Pattern[str]:
    """Return the regular expression for `METHOD path` of the requests of a pattern."""
    assert pattern_fault(pattern) is None
    method, _, path = pattern.partition(" ")
    segments = path.removesuffix("/*").split("/")
    text = "/".join("[^/]+" if part.startswith("{") else re.escape(part) for part in segments)
    if path.endswith("/*"):
        text += "/.*"
    elif pattern == "GET /tokens" and get_tokens == "prefix":
        text += "(?:/.*)?"
    return re.compile((r"\S+" if method == "ANY" else method) + " " + text, re.DOTALL)


class Classifier:
    """Classifies requests against some patterns, and remembers what it has seen.

    >>> c = Classifier(["GET /tokens", "PATCH /tokens/{id}", "ANY /tokens/*"])
    >>> [c.matching("HEAD", "/tokens?size=3"), c.matching("PATCH", "/tokens/7")]
    [(0,), (1, 2)]
    """

    def __init__(self, patterns: Iterable[str], get_tokens: GetTokens = "list") -> None:
        self.patterns = tuple(patterns)
        self._expressions = [_expression(pattern, get_tokens) for pattern in self.patterns]
        self._seen: dict[tuple[str, str], int] = {}
        self._groups: list[tuple[int, ...]] = []

    def matching(self, method: str, path: str) -> tuple[int, ...]:
        """Return the indexes of the patterns that a request falls under, in order."""
        return self._groups[self.group(method, path)]

    def kind(self, method: str, path: str) -> tuple[int, bool]:
        """Return what is equal for requests of a caller that fall under the same rules."""
        return self.group(method, path), path.startswith(UPLOADS)

    def group(self, method: str, path: str) -> int:
        """Return a small number, equal for requests that fall under the same patterns."""
        number = self._seen.get((method, path))
        if number is None:
            line = ("GET" if method == "HEAD" else method) + " " + path.partition("?")[0]
            places = enumerate(self._expressions)
            matching = tuple(place for place, pattern in places if pattern.fullmatch(line))
            if matching not in self._groups:
                self._groups.append(matching)
            number = self._groups.index(matching)
            if len(path) > _CACHED_CHARACTERS:
                return number
            if len(self._seen) >= _CACHE_ENTRIES:
                self._seen.clear()
            self._seen[method, path] = number
        return number


DEFAULT_TABLE: Final = "Default"
"""The name of the table that a tenant's `Rate Limit` quota starts with (QUO-RATE)."""

CounterName: TypeAlias = Literal["ip+key", "key|ip", "key", "ip", "proxy-key+ip", "host+ip"]

CounterFields: TypeAlias = tuple[KeyField, ...]
"""The fields of a request, one or two, that a counter is keyed by."""


class CounterKind(NamedTuple):
    """What has a counter of its own.

    short, description: in words. fields: what a counter is keyed by. One entry, or several where
    each field that a request has is counted by itself.
    """

    short: str
    description: str
    fields: tuple[CounterFields, ...]


COUNTER_KINDS: Final[dict[CounterName, CounterKind]] = {
    "ip+key": CounterKind("IP and key", "API key and IP address", (("ip", "key_id"),)),
    "key|ip": CounterKind("key or IP", "API key", (("key_id",), ("ip",))),
    "key": CounterKind("key", "API key", (("key_id",),)),
    "ip": CounterKind("IP", "IP address", (("ip",),)),
    "proxy-key+ip": CounterKind(
        "proxy key and IP", "proxy key and IP address", (("proxy_key_id", "ip"),)
    ),
    "host+ip": CounterKind("hostname and IP", "hostname and IP address", (("host_id", "ip"),)),
}
"""Every kind of counter; all that counts reads it here."""

COUNTER_KEYS: Final[tuple[CounterFields, ...]] = tuple(
    dict.fromkeys(fields for kind in COUNTER_KINDS.values() for fields in kind.fields)
)
"""The different fields that counters are keyed by."""


def counter_names(kinds: tuple[CounterFields, ...]) -> tuple[tuple[str, CounterFields], ...]:
    """Return the counters of a rule: what follows the rule's id in its name, and its fields."""
    if len(kinds) == 1:
        return (("", kinds[0]),)
    return tuple(
        ("." + "+".join(field.removesuffix("_id") for field in fields), fields) for fields in kinds
    )


_ID: Final = re.compile(r"[A-Z][A-Z0-9]*(-[A-Z0-9]+)*")
_NOT_ROWS: Final = ("LIM-LOWEST", "LIM-THROTTLE", "LIM-BLOCK")
_NEAR_SHARE: Final = 0.8
_LONGEST_NS: Final = 366 * 86_400 * 1_000_000_000

PRODUCT_BOUND: Final = 1 << 62
"""Requests × nanoseconds of a window stay below it, so that every product fits into 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which requests a rule counts; a key that is left out asks for nothing."""

    tenant: Annotated[TenantKind | None, "kind of the tenant"] = None
    application: Annotated[ApplicationKind | None, "kind of the key's application"] = None
    resource: Annotated[
        tuple[str, ...], 'methods and paths, such as "PATCH /tokens/{id}" or "ANY /reactors/*"'
    ] = ()
    legacy: Annotated[bool | None, "whether the key is a legacy one"] = None
    proxy: Annotated[
        Literal["key", "host"] | None,
        "the request names a proxy, by a proxy key without required authentication or by a "
        "custom hostname",
    ] = None

    def __post_init__(self) -> None:
        check_built(self)


ANYTHING: Final = Match()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One row of a limit table: so many requests in a window, and what happens beyond."""

    id: Annotated[str, "clause id of the row, or an id of your own that does not begin with LIM-"]
    match: Annotated[Match, "which requests it counts"] = ANYTHING
    counter: Annotated[
        CounterName,
        "what has a counter of its own: ip+key the pair, key|ip each key and each IP",
    ]
    rate: Annotated[Rate, "requests in a window"]
    action: Annotated[Literal["throttle", "block"], "what happens beyond the rate"] = "throttle"
    block_ns: Annotated[int | None, Duration(minimum_ns=1), "how long a block lasts"] = None
    shadow: Annotated[bool, "count and report, and never refuse"] = False
    algorithm: Annotated[Algorithm | None, "how it counts; the profile's unless set"] = None
    burst_requests: Annotated[
        int | None,
        Integer(minimum=1),
        Alias("burst"),
        "burst of gcra; the rate's N unless set",
    ] = None

    def __post_init__(self) -> None:
        check_built(self)

    @property
    def limit_requests(self) -> int:
        """N of the rate "N per W"."""
        return self.rate.limit_requests

    @property
    def window_ns(self) -> int:
        """W of the rate "N per W"."""
        return self.rate.window_ns

    @property
    def seed_section(self) -> str | None:
        """The section of the specification for this row; None for a row of one's own."""
        return SEED_SECTIONS.get(self.id)

    @property
    def counter_names(self) -> tuple[str, ...]:
        """What `Decision.rule` calls this row's counters: two where `key|ip` has two."""
        return tuple(
            self.id + suffix for suffix, _ in counter_names(COUNTER_KINDS[self.counter].fields)
        )

    @property
    def is_global(self) -> bool:
        """Whether it counts every request by IP alone, as LIM-IP: in no tenant's table."""
        return self.counter == "ip" and self.match == ANYTHING


@dataclass(frozen=True, kw_only=True)
class _LimitsFile:
    """A limit table; the engine ships the specification's own as its default."""

    rules: Annotated[tuple[Rule, ...], Alias("rule"), "the rows, in table order"]


@dataclass(frozen=True)
class LimitTable:
    """Rules in table order; ids are unique. Raises `InputError` for a rule that cannot be.

    >>> table = LimitTable.default()
    >>> len(table.rules), sum(len(rule.counter_names) for rule in table)
    (14, 15)
    >>> str(table["LIM-PUBLIC"].rate), table["LIM-PUBLIC"].seed_section
    ('50/1m', '8.4')
    """

    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        given: object = self.rules
        if not isinstance(given, tuple) or not all(isinstance(rule, Rule) for rule in given):
            raise wrong_type("rules", given, "a tuple of Rules")
        for place, rule in enumerate(self.rules):
            fault = _fault(rule, self.rules[:place])
            if fault is not None:
                path, text = fault
                value: Any = to_plain(rule)
                for step in path:
                    value = value[step]
                raise InputError(
                    f"{rule.id}: {'.'.join(map(str, path))} = {shown_value(value)} {text}"
                )

    def __iter__(self) -> Iterator[Rule]:
        return iter(self.rules)

    def __getitem__(self, rule_id: str) -> Rule:
        for rule in self.rules:
            if rule.id == rule_id:
                return rule
        known = [rule.id for rule in self.rules]
        if not isinstance(rule_id, str):
            raise wrong_type("limits[…]", rule_id, "a rule's id, such as 'LIM-IP'")
        raise InputError(f"limits have no rule {rule_id!r}{did_you_mean(rule_id, known)}")

    @classmethod
    def default(cls) -> LimitTable:
        """Return the table of the specification: 14 rows, 15 counters."""
        return _DEFAULT

    @classmethod
    def from_toml(cls, path: str | Path) -> LimitTable:
        """Read a table from a file; `InputError` with file:line:col at its first fault."""
        return cls.from_document(read_toml(path))

    @classmethod
    def from_text(cls, text: str, name: str = "limits.toml") -> LimitTable:
        """Read a table from TOML text; `name` is what messages call it."""
        return cls.from_document(parse_toml(text, name))

    @classmethod
    def from_document(cls, document: Document) -> LimitTable:
        """Read a table from a document that was read already."""
        rules = from_document(_LimitsFile, document).rules
        for place, rule in enumerate(rules):
            fault = _fault(rule, rules[:place])
            if fault is not None:
                path, text = fault
                document.spot("rule", place, *path).fail(text)
        return cls(rules)

    def to_toml(self) -> str:
        """Return the text of a file that `from_toml` reads back as an equal table."""
        plain = to_plain(_LimitsFile(rules=self.rules))
        for row in plain["rule"]:
            row["match"] = {key: item for key, item in row["match"].items() if item != []}
            if not row["match"]:
                del row["match"]
            if not row["shadow"]:
                del row["shadow"]
        return to_toml(plain)

    def replace_rule(self, rule_id: str, **changes: Any) -> LimitTable:  # noqa: ANN401 # reason: any field
        """Return a table with fields of one rule changed; quantities may be texts.

        `table.replace_rule("LIM-PUBLIC", rate="100/1m", block_ns="30s")`. Raises `InputError` for
        an unknown rule or field, or a value that it cannot take.
        """
        known = [field.name for field in dataclasses.fields(Rule)]
        for name in changes:
            if name not in known:
                raise InputError(f"rule {rule_id} has no field {name!r}{did_you_mean(name, known)}")
        changed = dataclasses.replace(self[rule_id], **changes)
        return LimitTable(tuple(changed if rule.id == rule_id else rule for rule in self.rules))

    @staticmethod
    def schema() -> dict[str, Any]:
        """Return the JSON Schema of the file's form (`limits.schema.json`)."""
        return json_schema(_LimitsFile, title="Tollgate limit table")


_Fault: TypeAlias = tuple[tuple[str | int, ...], str]


def _fault(rule: Rule, before: tuple[Rule, ...]) -> _Fault | None:
    """Return the first fault of a rule that follows others: where and what; None when valid."""
    text = _id_fault(rule.id)
    if text is not None:
        return ("id",), text
    if any(other.id == rule.id for other in before):
        return ("id",), "must not be there twice; an id names one row"
    for place, pattern in enumerate(rule.match.resource):
        text = pattern_fault(pattern)
        if text is not None:
            return ("match", "resource", place), text
    return _rate_fault(rule) or _action_fault(rule)


def _id_fault(rule_id: str) -> str | None:
    if rule_id in SEED_SECTIONS:
        return None
    if not _ID.fullmatch(rule_id):
        return "must be capital letters, digits and hyphens, such as OWN-NIGHT"
    if rule_id in _NOT_ROWS:
        return "must be a row's id; this clause is about all rows"
    near = difflib.get_close_matches(rule_id, SEED_SECTIONS, n=1, cutoff=_NEAR_SHARE)
    if near:
        return f"is no known clause; did you mean {near[0]!r}?"
    if rule_id.startswith("LIM-"):
        return f"is no known clause{did_you_mean(rule_id, SEED_SECTIONS)}"
    return None


def _rate_fault(rule: Rule) -> _Fault | None:
    limit_requests, window_ns = rule.rate
    if limit_requests < 1 or window_ns < 1:
        return ("rate",), "must be a rate above 0"
    if window_ns > _LONGEST_NS:
        return ("rate",), "must have a window of at most 366d"
    if limit_requests * window_ns >= PRODUCT_BOUND:
        return ("rate",), "must have requests × nanoseconds of the window below 2^62"
    if rule.burst_requests is not None:
        if rule.burst_requests < 1:
            return ("burst",), "must be at least 1"
        if rule.burst_requests * window_ns >= PRODUCT_BOUND:
            return ("burst",), "must have burst × nanoseconds of the window below 2^62"
        if rule.algorithm is not None and not ALGORITHMS[rule.algorithm].takes_burst:
            return ("burst",), f"must stand with gcra; {rule.algorithm} has none"
    return None


def _action_fault(rule: Rule) -> _Fault | None:
    if rule.action == "throttle":
        if rule.block_ns is not None:
            return ("block",), 'must stand with action = "block"'
        return None
    if rule.block_ns is None:
        return ("action",), 'must say how long; add block = "10s"'
    if not 0 < rule.block_ns <= _LONGEST_NS:
        return ("block",), "must be above 0 and at most 366d"
    return None


def _row(
    rule_id: str,
    counter: CounterName,
    rate: str,
    block_s: int | None = None,
    *,
    resource: tuple[str, ...] = (),
    **match: Any,  # noqa: ANN401 # reason: the fields of Match
) -> Rule:
    return Rule(
        id=rule_id,
        match=Match(resource=resource, **match),
        counter=counter,
        rate=parse_rate(rate),
        action="throttle" if block_s is None else "block",
        block_ns=None if block_s is None else block_s * 1_000_000_000,
    )


_SEED_RULES: Final[tuple[tuple[str, Rule], ...]] = (
    ("8.2", _row("LIM-TEST-TENANT", "ip+key", "50/10s", tenant="test")),
    ("8.3", _row("LIM-SEARCH", "ip+key", "50/10s", resource=("POST /tokens/search",))),
    ("8.3", _row("LIM-READ", "ip+key", "100/10s", resource=("GET /tokens", "POST /detokenize"))),
    ("8.3", _row("LIM-CREATE", "ip+key", "200/10s", resource=("POST /tokens", "POST /tokenize"))),
    ("8.3", _row("LIM-PATCH", "ip+key", "200/10s", resource=("PATCH /tokens/{id}",))),
    ("8.3", _row("LIM-DELETE", "ip+key", "200/10s", resource=("DELETE /tokens/{id}",))),
    ("8.3", _row("LIM-ACCOUNT-UPDATER", "ip+key", "10/10s", resource=("ANY /account-updater/*",))),
    ("8.4", _row("LIM-PRIVATE", "key|ip", "2000/10s", application="private")),
    ("8.4", _row("LIM-PUBLIC", "ip+key", "50/1m", 10, application="public")),
    ("8.4", _row("LIM-MANAGEMENT", "key", "200/1m", 60, application="management")),
    ("8.5", _row("LIM-PROXY-KEY", "proxy-key+ip", "50/10s", proxy="key")),
    ("8.5", _row("LIM-PROXY-HOST", "host+ip", "50/10s", proxy="host")),
    ("8.6", _row("LIM-IP", "ip", "2000/10s", 30)),
    ("8.7", _row("LIM-LEGACY", "ip+key", "100/1m", legacy=True)),
)
"""The specification's tables: section and row, in their order."""

SEED_SECTIONS: Final[dict[str, str]] = {rule.id: section for section, rule in _SEED_RULES}
"""Clause id of each row of the specification → its section."""

_DEFAULT: Final = LimitTable(tuple(rule for _, rule in _SEED_RULES))


_PHRASES: Final[dict[str, str]] = {
    "ip": "from this address",
    "key_id": "with this key",
    "proxy_key_id": "with this proxy key",
    "host_id": "to this hostname",
}


def counted_by(rule: Rule, suffix: str) -> str:
    """Return what a counter of a rule counts by, after "N requests in W".

    suffix: what follows the rule's id in the counter's name, without the dot.

    >>> counted_by(LimitTable.default()["LIM-PUBLIC"], "")
    'with this key from this address'
    """
    fields: tuple[str, ...] = COUNTER_KINDS[rule.counter].fields[0]
    if suffix:
        fields = tuple(part if part == "ip" else f"{part}_id" for part in suffix.split("+"))
    ordered = sorted(fields, key=lambda field: field == "ip")  # the address comes last
    return " ".join(
        _PHRASES.get(field, f"of this {field.removesuffix('_id')}") for field in ordered
    )


_HEADINGS = ("rule", "section", "counts", "counter", "rate", "action", "")


def render(table: LimitTable) -> str:
    """Return the table as aligned text, a row a rule, ending in a line that counts them.

    >>> print(render(LimitTable.default()).splitlines()[-1])
    14 rules, 15 counters
    """
    rows = [_HEADINGS, *(_cells(rule) for rule in table)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADINGS))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, _line(["-" * width for width in widths], widths))
    counters = sum(len(rule.counter_names) for rule in table)
    return "\n".join([*lines, "", f"{len(table.rules)} rules, {counters} counters"])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(c.ljust(width) for c, width in zip(cells, widths, strict=True)).rstrip()


def _cells(rule: Rule) -> tuple[str, ...]:
    action = "throttle"
    if rule.block_ns is not None:
        action = f"{format_duration(rule.block_ns)} block"
    notes = []
    if rule.shadow:
        notes.append("shadow")
    if rule.algorithm is not None:
        notes.append(rule.algorithm)
    if rule.burst_requests is not None:
        notes.append(f"burst {rule.burst_requests}")
    return (
        rule.id,
        rule.seed_section or "own",
        _counts(rule.match),
        COUNTER_KINDS[rule.counter].short,
        str(rule.rate),
        action,
        ", ".join(notes),
    )


def _counts(match: Match) -> str:
    parts = []
    if match.tenant is not None:
        parts.append(f"{match.tenant} tenant")
    if match.application is not None:
        parts.append(f"{match.application} application")
    if match.legacy is not None:
        parts.append("legacy keys" if match.legacy else "keys that are not legacy")
    if match.proxy is not None:
        parts.append("proxies by key" if match.proxy == "key" else "proxies by hostname")
    if match.resource:
        parts.append(" or ".join(match.resource))
    return ", ".join(parts) or "anything"
