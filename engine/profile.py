"""The profile: every choice that the specification leaves open, as one typed object.

Each field names its decision (`D-…` of the decisions list), its default and the alternatives that
the engine supports. Nothing outside the profile hard-codes a choice. An alternative is a *reading*
(a conforming service may do it) unless it stands under `study`: those exist for simulation only,
and a deployment that does them fails its clause.

The profile does not hold the limit table (`engine.limits.table`) or a tenant's quotas: they belong
to a deployment, not to a reading of the specification.
"""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from engine.errors import InputError, did_you_mean, wrong_type
from engine.files import (
    TextType,
    check_built,
    from_document,
    json_schema,
    read_toml,
    to_plain,
    to_toml,
)
from engine.hosts import FIELD_NAME

SECOND_NS: Final = 1_000_000_000
HeaderName: TypeAlias = Annotated[
    str, TextType(FIELD_NAME, "must be a header's name, as 'SVC-API-KEY' is")
]

Algorithm = Literal["sliding-log", "fixed-window", "sliding-counter", "token-bucket", "gcra"]
Balance = Literal["round-robin", "random", "address", "key", "least-busy"]
Sharing = Literal["exact", "none", "split", "synced", "shared-slow"]

_Value = TypeVar("_Value")


def _choice(
    default: _Value,
    decision: str,
    asks: str,
    *,
    study: tuple[Any, ...] = (),
    minimum: int | None = None,
    maximum: int | None = None,
) -> _Value:
    """Return a dataclass field that carries its decision id.

    Other values that its type lists are readings, unless they are for `study` alone.
    """
    known: _Value = field(
        default=default,
        metadata={
            "decision": decision,
            "asks": asks,
            "study": study,
            "minimum": minimum,
            "maximum": maximum,
        },
    )
    return known


@dataclass(frozen=True, slots=True)
class Choice:
    """One field of the profile: an open choice of the specification.

    decision: the id of its open decision. asks: what it decides. readings: other values that a
    conforming service may have; study: values that are for simulation alone. Where both are
    empty, any number or name of the field's type is a reading.
    """

    section: str
    name: str
    decision: str
    asks: str
    default: Any
    readings: tuple[Any, ...]
    study: tuple[Any, ...]

    @property
    def path(self) -> str:
        """The field, as `section.field`."""
        return f"{self.section}.{self.name}"

    @property
    def listed(self) -> tuple[Any, ...]:
        """Every listed value, the default first."""
        return (self.default, *self.readings, *self.study)

    def of(self, profile: Profile) -> Any:  # noqa: ANN401 # reason: whatever the field holds
        """Return the value that a profile has."""
        return getattr(getattr(profile, self.section), self.name)

    def written(self, value: Any) -> str:  # noqa: ANN401 # reason: as above
        """Return a value as a profile's file has it, durations in seconds."""
        if self.name.endswith("_ns"):
            return f"{value / SECOND_NS:g} s"
        if value is None:
            return "none"
        return value if isinstance(value, str) else json.dumps(value)

    def trials(
        self,
        case: Callable[..., object],
        *others: Any,  # noqa: ANN401 # reason: as above
    ) -> list[tuple[str, str, object]]:
        """Play a case under each listed value and return (value, what it is, what was seen).

        case: called with a section of a profile, such as `limits={"compose": "all"}`, and returns
        what was seen. others: values to try beside the listed ones. A value is the `default`, a
        `permitted` one, or for `study`.

        >>> (compose,) = [one for one in choices() if one.path == "limits.compose"]
        >>> compose.trials(lambda limits: limits["compose"].upper())
        [('all', 'default', 'ALL'), ('lowest', 'study', 'LOWEST')]
        """
        kinds = ["default", *("permitted" for _ in self.readings), *("study" for _ in self.study)]
        kinds += ["permitted"] * len(others)
        return [
            (self.written(value), kind, case(**{self.section: {self.name: value}}))
            for value, kind in zip((*self.listed, *others), kinds, strict=True)
        ]


_known: Final[dict[type[Any], dict[str, Choice]]] = {}


def _choices_of(section: type[Any]) -> Mapping[str, Choice]:
    """Return the choices that the fields of a section are, by name."""
    if section in _known:
        return _known[section]
    hints, choices = get_type_hints(section), {}
    for item in dataclasses.fields(section):
        meta, kind = item.metadata, hints[item.name]
        values = (True, False) if kind is bool else ()
        if get_origin(kind) is Literal:
            values = get_args(kind)
        readings = tuple(v for v in values if v not in (item.default, *meta["study"]))
        place = (section.section, item.name, meta["decision"], meta["asks"])
        choices[item.name] = Choice(*place, item.default, readings, meta["study"])
    return _known.setdefault(section, choices)


class _Section:
    """A section of the profile, checked where it is made; durations may be texts."""

    __slots__ = ()
    section: ClassVar[str]

    def __post_init__(self) -> None:
        check_built(self, "profile", self.section)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensProfile(_Section):
    """How a body is read and a record is made (sections 2, 4)."""

    section: ClassVar[str] = "tokens"

    container_field: str = _choice(
        "containers", "D-CONTAINER", "name of the field that selects the container"
    )
    container_form: Literal["array", "string"] = _choice(
        "array", "D-CONTAINER", "form of that field"
    )
    container_limit: int = _choice(400, "D-CONTAINER", "characters of a container path", minimum=1)
    container_default_token: str = _choice(
        "/general/high/", "D-CONTAINER-DEFAULT", "container of a `token` when none is named"
    )
    container_default_card: str = _choice(
        "/pci/high/", "D-CONTAINER-DEFAULT", "container of a `card` when none is named"
    )
    non_string_leaf: Literal["reject", "tokenize", "pass"] = _choice(
        "reject", "D-LEAF", "number, boolean and null leaves"
    )
    scalar_body: Literal["reject", "accept"] = _choice(
        "reject", "D-SCALAR", "a bare JSON string as the whole body"
    )
    empty_body: Literal["echo", "reject"] = _choice("echo", "D-EMPTY", "a body without a token")
    depth_limit: int = _choice(64, "D-DEPTH", "deepest nesting that is accepted", minimum=8)
    unknown_field: Literal["reject", "ignore"] = _choice(
        "reject", "D-UNKNOWN", "unknown field in a token request object"
    )
    extra_types: tuple[str, ...] = _choice(
        (), "D-TYPE-VALUE", "further token types; their data is any JSON"
    )
    one_of: Literal["reject", "data", "encrypted"] = _choice(
        "reject", "D-ONE-OF", "`data` and `encrypted` together"
    )
    token_data: Literal["string", "any"] = _choice("string", "D-TOKEN-DATA", "`data` of a `token`")
    card_luhn: bool = _choice(True, "D-CARD", "card numbers must be Luhn-valid")
    card_all_required: bool = _choice(False, "D-CARD", "month, year and cvc are required")
    metadata_entries_limit: int = _choice(50, "D-METADATA", "metadata entries", minimum=0)
    metadata_key_limit: int = _choice(100, "D-METADATA", "characters of a metadata key", minimum=0)
    metadata_value_limit: int = _choice(
        500, "D-METADATA", "characters of a metadata value", minimum=0
    )
    indexes_limit: int = _choice(10, "D-INDEXES", "search indexes of a token", minimum=0)
    cvc_derive: Literal["reject", "allow"] = _choice(
        "reject", "D-CVC-DERIVE", "expressions over the cvc, gone when it is"
    )
    fpexpr_default: Literal["hidden", "shown"] = _choice(
        "hidden",
        "D-FPEXPR-DEFAULT",
        "a `token` with no expression shows `{{ data }}` and its fingerprint",
    )
    card_fpexpr: Literal["supplied", "number"] = _choice(
        "supplied", "D-CARD-FPEXPR", "an expression supplied on a card"
    )
    card_view: Literal["both", "mask", "data"] = _choice(
        "both", "D-CARD-VIEW", "where a card record shows its mask"
    )
    record_view: Literal["redacted", "metadata"] = _choice(
        "redacted",
        "D-RECORD-VIEW",
        "what a key without token:read sees of a stored record beside its redacted form",
    )
    plaintext_reads: bool = _choice(
        False, "D-READ", "records of /tokens, POST too, show plaintext with token:read"
    )
    limit_counts: Literal["created", "elements"] = _choice(
        "created", "D-LIMIT-COUNT", "what Tokenize Limit counts"
    )
    limit_status: Literal[400, 403, 413, 422, 429] = _choice(
        400, "D-LIMIT-STATUS", "status over a token quota"
    )
    detokenize_counts: Literal["expressions", "distinct"] = _choice(
        "expressions", "D-DETOKENIZE-COUNT", "what Detokenize Limit counts"
    )
    elements_limit: int = _choice(
        10_000, "D-BODY-COST", "elements of a body; never below the tenant's quota", minimum=1
    )
    encrypted_limit: int = _choice(
        100, "D-BODY-COST", "encrypted payloads of a body; likewise", minimum=1
    )
    values_limit: int = _choice(
        250_000, "D-BODY-COST", "JSON values of a body, counted before it is parsed", minimum=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupProfile(_Section):
    """What deduplication compares and gives back (TOK-DEDUP, REC-DEDUP-REDACT)."""

    section: ClassVar[str] = "dedup"

    setting_name: str = _choice("deduplicate_tokens", "D-DEDUP", "tenant setting that turns it on")
    flag_name: str = _choice("deduplicate_token", "D-DEDUP", "field of a token request object")
    container_in_key: bool = _choice(
        True, "D-DEDUP-KEY", "tokens of other containers are other tokens"
    )
    record: Literal["read_existing", "update_existing"] = _choice(
        "read_existing", "D-DEDUP-RECORD", "whose record comes back"
    )
    redact: Literal["data_metadata", "narrow"] = _choice(
        "data_metadata", "D-DEDUP-REDACT", "what a redacted record loses"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityProfile(_Section):
    """Who may give which rights (section 5)."""

    section: ClassVar[str] = "identity"

    grant_scope: Literal["within", "any"] = _choice(
        "within",
        "D-GRANT-SCOPE",
        "what a management key grants lies within the containers of its own right",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpProfile(_Section):
    """Statuses, headers and sizes (section 7, D-STATUSES)."""

    section: ClassVar[str] = "http"

    key_header: HeaderName = _choice("SVC-API-KEY", "D-STATUS", "request header of the API key")
    proxy_key_header: HeaderName = _choice(
        "SVC-PROXY-KEY", "D-PROXY", "request header of the proxy key"
    )
    tokenize_status: Literal[200, 201] = _choice(
        200, "D-STATUS", "status of a tokenize that succeeds"
    )
    rate_limit_fields: bool = _choice(
        True, "D-429-HEADERS", "RateLimit and RateLimit-Policy on every answer"
    )
    retry_after: bool = _choice(True, "D-429-HEADERS", "Retry-After on 429")
    body_limit_bytes: int = _choice(4_000_000, "D-SIZE", "largest JSON body", minimum=1)
    proxy_body_limit_bytes: int = _choice(
        10_000_000, "D-SIZE", "largest body of a proxy without transform", minimum=1
    )
    target_limit: int = _choice(
        16_384, "D-SIZE", "characters of path and query; 414 above", minimum=256
    )
    cors: Literal["listed", "any"] = _choice(
        "listed", "D-CORS", "web pages that may ask with a public key: the listed origins, or any"
    )
    idempotency: Literal["keep", "ignore"] = _choice(
        "keep",
        "D-IDEMPOTENCY",
        "Idempotency-Key on POSTs that create: the first answer comes again",
    )
    idempotency_kept_ns: int = _choice(
        24 * 3_600 * SECOND_NS, "D-IDEMPOTENCY", "first answers are kept so long", minimum=1
    )
    ipv6_prefix_bits: Literal[128, 64] = _choice(
        128, "D-IP", "IPv6 clients are told apart by this prefix"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsProfile(_Section):
    """How the limit table is played (section 8.1, D-COUNTED … D-COUNTERS-LIFE)."""

    section: ClassVar[str] = "limits"

    algorithm: Algorithm = _choice("sliding-log", "D-ALGORITHM", "how N per W is counted")
    fixed_anchor: Literal["aligned", "first"] = _choice(
        "aligned", "D-ALIGN", "fixed windows start at multiples of W, or at the first admission"
    )
    burst_requests: int | None = _choice(
        None, "D-ALGORITHM", "burst of gcra; none = the rule's limit, 1 = strict spacing", minimum=1
    )
    edges: Literal["half-open", "closed"] = _choice(
        "half-open", "D-EDGES", "an admission exactly W ago still counts"
    )
    compose: Literal["all", "lowest"] = _choice(
        "all", "D-COMPOSE", "which applicable rules decide", study=("lowest",)
    )
    count_refused: bool = _choice(False, "D-COUNT", "refused requests consume too")
    counted_statuses: Literal["every", "success"] = _choice(
        "every", "D-COUNTED", "which answers count"
    )
    throttle: Literal["refuse", "delay"] = _choice("refuse", "D-THROTTLE", "what throttle rules do")
    delay_bound_ns: int = _choice(
        10 * SECOND_NS, "D-THROTTLE", "longest delay before a refusal", minimum=0
    )
    block_extends: bool = _choice(False, "D-BLOCK-START", "refusals extend a block")
    block_reset: Literal["keep", "clear"] = _choice(
        "keep", "D-BLOCK-RESET", "the counter when a block ends"
    )
    or_counter: Literal["both", "key-else-ip"] = _choice(
        "both", "D-OR-COUNTER", "counters of `API key OR IP`"
    )
    and_counter: Literal["pair", "each", "key", "ip"] = _choice(
        "pair", "D-AND-COUNTER", "counters of `IP and API key`", study=("key", "ip")
    )
    or_resource: Literal["shared", "separate"] = _choice(
        "shared", "D-OR-RESOURCE", "counters of a row with two resources", study=("separate",)
    )
    get_tokens: Literal["list", "prefix"] = _choice(
        "list", "D-GET-TOKENS", "which reads fall under LIM-READ"
    )
    legacy_class: Literal["added", "exclusive"] = _choice(
        "added", "D-LEGACY-CLASS", "LIM-LEGACY beside or instead of the kind's rule"
    )
    proxy_rules: Literal["all", "unkeyed"] = _choice(
        "all", "D-PROXY-RULES", "when LIM-PROXY-* apply"
    )
    counters_limit: int = _choice(
        500_000,
        "D-COUNTERS-BOUND",
        "counters of an engine; a caller that needs one more is answered 503",
        minimum=20,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodesProfile(_Section):
    """Nodes behind a balancer, and how they share the counters of the limits (D-COUNTERS-LIFE).

    Only a simulation plays them (`engine.limits.nodes`): an engine is one node.
    """

    section: ClassVar[str] = "nodes"

    count: int = _choice(
        1, "D-COUNTERS-LIFE", "how many nodes serve the traffic", minimum=1, maximum=64
    )
    balance: Balance = _choice("round-robin", "D-COUNTERS-LIFE", "which node gets a request")
    sharing: Sharing = _choice(
        "exact",
        "D-COUNTERS-LIFE",
        "what a node knows of the requests that the others count",
        study=get_args(Sharing)[1:],
    )
    every_ns: int = _choice(SECOND_NS, "D-COUNTERS-LIFE", "synced: publication interval", minimum=1)
    lag_ns: int = _choice(
        0, "D-COUNTERS-LIFE", "synced: delay until the other nodes know them", minimum=0
    )
    race_ns: int = _choice(
        10_000_000,
        "D-COUNTERS-LIFE",
        "shared-slow: delay between reading and writing a counter",
        minimum=0,
    )

    @property
    def is_exact(self) -> bool:
        """Whether all decisions are those of one exact counter, as on one node."""
        if self.sharing == "shared-slow":
            return not self.race_ns
        return self.count == 1 or self.sharing == "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideProfile(_Section):
    """Proxies and reactors (section 8.5, 8.9)."""

    section: ClassVar[str] = "outside"

    destination_timeout_ns: int = _choice(
        25 * SECOND_NS, "D-PROXY-TIMEOUT", "a destination may take this long", minimum=1
    )
    answer_limit_bytes: int = _choice(
        10_000_000, "D-SIZE", "largest answer of a destination; 502 above", minimum=1
    )
    reactor_timeout_ns: int = _choice(
        30 * SECOND_NS,
        "D-REACTOR-TIMEOUT",
        "a synchronous invocation may take this long",
        minimum=1,
    )
    reactor_timeout_status: Literal[504, 408, 500] = _choice(
        504, "D-REACTOR-TIMEOUT", "status over it"
    )
    reactor_code_limit: int = _choice(50_000, "D-UNITS", "characters of reactor code", minimum=1)
    reactor_payload_limit_bytes: int = _choice(
        1_000_000, "D-UNITS", "invocation payload", minimum=1
    )
    hot_concurrency: int = _choice(1, "D-HOT", "instances that stay hot", minimum=0)
    cold_start_ns: int = _choice(1 * SECOND_NS, "D-HOT", "wait of a new instance", minimum=0)
    keep_hot_ns: int = _choice(
        0, "D-HOT", "a cold-started instance stays hot so long when idle", minimum=0
    )
    instances_cap: int | None = _choice(
        None, "D-HOT", "most instances at once; none = unbounded", minimum=1
    )

    @property
    def hot_instances(self) -> int:
        """How many instances of a pool are hot for good (D-HOT): no more than the cap allows."""
        cap = self.instances_cap
        return self.hot_concurrency if cap is None else min(self.hot_concurrency, cap)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountUpdaterProfile(_Section):
    """Account updater (section 8.10)."""

    section: ClassVar[str] = "account_updater"

    file_limit_bytes: int = _choice(30_000_000, "D-UNITS", "largest batch file", minimum=1)
    upload_valid_ns: int = _choice(
        3_600 * SECOND_NS, "D-JOBS", "an upload address is valid so long", minimum=1
    )
    job_base_ns: int = _choice(1 * SECOND_NS, "D-JOBS", "time of a job, before its rows", minimum=0)
    job_row_ns: int = _choice(100_000, "D-JOBS", "time of a job a row", minimum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Every open choice of the specification, with the defaults of the decisions list.

    Raises `InputError` when a field holds a value that is not among its choices.

    >>> Profile().limits.algorithm
    'sliding-log'
    >>> Profile().replace(limits={"algorithm": "gcra"}).limits.algorithm
    'gcra'
    """

    tokens: TokensProfile = TokensProfile()
    dedup: DedupProfile = DedupProfile()
    identity: IdentityProfile = IdentityProfile()
    http: HttpProfile = HttpProfile()
    limits: LimitsProfile = LimitsProfile()
    nodes: NodesProfile = NodesProfile()
    outside: OutsideProfile = OutsideProfile()
    account_updater: AccountUpdaterProfile = AccountUpdaterProfile()

    def __post_init__(self) -> None:
        for section in dataclasses.fields(self):
            given, kind = getattr(self, section.name), type(section.default)
            if not isinstance(given, kind):
                rule = f"a {kind.__name__}; or use Profile().replace({section.name}={{…}})"
                raise wrong_type(f"profile.{section.name}", given, rule)

    def replace(self, **sections: Mapping[str, Any]) -> Profile:
        """Return a profile with some fields changed, section by section; durations may be texts.

        `profile.replace(limits={"algorithm": "gcra", "compose": "all"})`. Raises `InputError`
        for a section or field that does not exist or a value that is not among its choices.
        """
        changed: dict[str, Any] = {}
        for name, values in sections.items():
            names = [f.name for f in dataclasses.fields(self)]
            if name not in names:
                raise InputError(f"profile has no section {name!r}{did_you_mean(name, names)}")
            if not isinstance(values, Mapping):
                raise wrong_type(f"profile.{name}", values, "a mapping of fields to values")
            section = getattr(self, name)
            known = [f.name for f in dataclasses.fields(section)]
            for key in values:
                if key not in known:
                    raise InputError(
                        f"profile.{name} has no field {key!r}{did_you_mean(key, known)}"
                    )
            changed[name] = dataclasses.replace(section, **values)
        return dataclasses.replace(self, **changed)

    @classmethod
    def from_toml(cls, path: str | Path) -> Profile:
        """Return the profile of a file; raises `InputError` with file:line:col.

        What the file leaves out keeps its default; durations are texts such as `"10s"`.
        """
        profile: Profile = from_document(cls, read_toml(path))
        return profile

    def to_toml(self, *, explained: bool = False) -> str:
        """Return the profile as the text of a file that `from_toml` reads back.

        explained: each field under a comment with its decision, its question and its alternatives.
        """
        plain = to_plain(self)
        return "#:schema profile.schema.json\n" + (
            _explained(plain) if explained else to_toml(plain)
        )

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Return the JSON Schema of a profile file; `x-study` lists values for study alone."""
        schema = json_schema(cls, title="Tollgate profile")
        for section in dataclasses.fields(cls):
            shape = type(section.default)
            known = schema["$defs"][shape.__name__]["properties"]
            for item in dataclasses.fields(shape):  # type: ignore[arg-type] # reason: sections are dataclasses
                held = known[_written(item.name)]
                held["x-decision"] = item.metadata["decision"]
                if item.metadata["study"]:
                    held["x-study"] = list(item.metadata["study"])
        return schema


def _written(name: str) -> str:
    """Return a field's name as it stands in a file, where values carry their unit."""
    return name.removesuffix("_ns").removesuffix("_bytes")


def _explained(plain: Mapping[str, Any]) -> str:
    """Return the text of a profile file with a comment above each field."""
    parts = []
    for name, held in plain.items():
        choices = _choices_of(type(getattr(Profile(), name)))
        lines, left_out = [f"[{name}]"], []
        for key, choice in ((_written(path), choice) for path, choice in choices.items()):
            if key in held:
                lines += [*_comment(choice), to_toml({key: held[key]}).rstrip()]
            else:  # one without a value has no form in TOML
                left_out += [*_comment(choice), f"# {key} is left out"]
        parts.append("\n".join([*lines, *left_out]))
    return "\n\n".join(parts) + "\n"


def _comment(choice: Choice) -> list[str]:
    """Return the comment above a field: decision, question, the other values."""
    others = [
        f"{name}: {', '.join(json.dumps(value) for value in values)}"
        for name, values in {"or": choice.readings, "for study": choice.study}.items()
        if values
    ]
    words = "; ".join([f"{choice.decision}: {choice.asks}", *others])
    return textwrap.wrap(words, 98, initial_indent="# ", subsequent_indent="#   ")


def choices() -> list[Choice]:
    """Return every open choice that a profile holds, in the order of its fields.

    >>> [one.path for one in choices() if one.decision == "D-COMPOSE"]
    ['limits.compose']
    """
    return [
        choice
        for section in dataclasses.fields(Profile)
        for choice in _choices_of(type(section.default)).values()
    ]


def decisions() -> dict[str, list[str]]:
    """Return decision id → the profile fields that hold it, as `section.field`."""
    settings: dict[str, list[str]] = {}
    for choice in choices():
        settings.setdefault(choice.decision, []).append(choice.path)
    return settings
