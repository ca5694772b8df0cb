r"""The map from a log's fields to targets: the file of `--map`, and names known without one.

    format = "combined"                  # as --format; left out, the log tells
    time = { field = "time" }
    address = "client_ip"                # short for { field = "client_ip" }
    key = { field = "extra1" }           # a header that the log format appends
    path = { field = "url", pattern = 'https?://[^/]+(?P<path>/\S*)' }
    tenant = { field = "host", lookup = { "pay.acme.test" = "acme" }, default = "others" }
    tenant_kind = { field = "host", lookup = { "pay.acme.test" = "test" }, default = "production" }
    application_kind = { value = "private" }

Each target is a constant (`value`) or a `field`, of which `pattern` may cut a part (the group
called as the target, else the only group) and which `lookup` may translate; what `lookup` does not
know, and a field that is absent, becomes `default`. Without a default such a line does not parse,
but for `key`: a request without a key is one. With `line = '…'` a regular expression splits each
line, and its named groups are the fields. Lookups and patterns are applied once a distinct value.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re
from collections.abc import Callable, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from engine.errors import InputError, did_you_mean
from engine.files import Document, Spot, read_toml
from engine.hosts import unmapped

Format: TypeAlias = Literal["combined", "common", "csv", "jsonl", "parquet"]
FORMATS: Final = get_args(Format)

Kind: TypeAlias = Literal["legacy", "public", "management", "private"]
"""A class of keys (AUTH-KINDS); `legacy` is a legacy key of a private application."""
KINDS: Final = get_args(Kind)

TARGETS: Final = (
    "time",
    "address",
    "key",
    "request",
    "method",
    "path",
    "tenant",
    "tenant_kind",
    "application",
    "application_kind",
    "legacy",
)
CHOICES: Final[MappingOf[str, tuple[str, ...]]] = {
    "tenant_kind": ("production", "test"),
    "application_kind": KINDS,
    "legacy": ("false", "true"),
}
_LONGEST_NAME: Final = 40
_NAMES_SHOWN: Final = 30
Notation: TypeAlias = Literal["clf", "iso", "s", "ms", "us", "ns"]
"""How a column writes time: the common log format's stamp, ISO 8601, or an epoch number's unit."""
UNITS: Final = ("auto", *get_args(Notation))

_NAMES: Final[MappingOf[str, tuple[str, ...]]] = {
    "time": (
        *("tns", "time", "timestamp", "@timestamp", "datetime", "ts", "date", "eventtime", "at"),
        *("timelocal", "timeiso8601", "starttime", "createdat", "arrival", "t"),
    ),
    "address": (
        *("ip", "address", "clientip", "clientaddress", "remoteaddr", "remoteip", "sourceip"),
        *("srcip", "cip", "remotehost", "client"),
    ),
    "key": ("key", "apikey", "svcapikey", "xapikey"),
    "request": ("request", "requestline"),
    "method": ("method", "httpmethod", "requestmethod", "verb", "csmethod"),
    "path": ("path", "uri", "url", "requesturi", "requestpath", "uripath", "csuristem"),
}
"""What columns are commonly called, without case, `_`, `-` and `.`; the first that is there."""


class Rejected(ValueError):
    """A value does not map; the text says why and never repeats the value."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where one target comes from; exactly one of `field` and `value` is set.

    where: `file:line:col: ` of the map for messages, or empty.
    unit: the notation of times, `auto` to tell it by the first one.
    """

    target: str
    field: str | None = None
    value: str | None = None
    pattern: re.Pattern[str] | None = None
    lookup: MappingOf[str, str] | None = None
    default: str | None = None
    unit: str = "auto"
    where: str = ""

    def __repr__(self) -> str:
        """Return the fields; those that may be texts of keys are not shown."""
        secret = ("value", "lookup", "default") if self.target == "key" else ()
        said = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        shown = (
            f"{name}={'…' if value is not None and name in secret else repr(value)}"
            for name, value in said.items()
        )
        return f"Source({', '.join(shown)})"

    @property
    def is_plain(self) -> bool:
        """Whether every value stands for itself."""
        return self.pattern is None and self.lookup is None and self.default is None

    def map_value(self, raw: str | None) -> str | None:
        """Return what `raw` stands for; None means absent. Raises `Rejected`."""
        found = raw
        if found is not None and self.pattern is not None:
            match = self.pattern.search(found)
            found = None if match is None else match[self._group(self.pattern)]
        if found is not None and self.lookup is not None:
            found = self.lookup.get(found)
            if found is None and self.default is None:
                raise Rejected(f"{self.target} has no entry in the map's lookup, and no default")
        if found is None:
            found = self.default
        if found is None and self.target not in {"key", "time"}:
            raise Rejected(f"{self.target} is missing")
        choices = CHOICES.get(self.target)
        if found is not None and choices is not None and found not in choices:
            raise Rejected(f"{self.target} must be one of {', '.join(choices)}")
        return found

    def _group(self, pattern: re.Pattern[str]) -> str | int:
        return self.target if self.target in pattern.groupindex else min(1, pattern.groups)


@dataclass(frozen=True, slots=True)
class LogMap:
    """Where each target comes from, of one log.

    name: the map's file for messages; empty when the log's own names serve.
    """

    sources: MappingOf[str, Source] = field(default_factory=dict)
    format: Format | None = None
    line: re.Pattern[str] | None = None
    name: str = ""

    @classmethod
    def read(cls, path: str | Path) -> LogMap:
        """Read a map file. Raises `InputError` with file, line and column."""
        return cls.from_document(read_toml(path))

    @classmethod
    def from_document(cls, document: Document) -> LogMap:
        """Check a read map. Raises `InputError`."""
        known = ("format", "line", *TARGETS)
        sources: dict[str, Source] = {}
        for name in document.value:
            if name not in known:
                document.spot(name).fail_key(f"is no part of a map{did_you_mean(name, known)}")
            if name in TARGETS:
                sources[name] = _source(document.spot(name), name)
        line = document.value.get("line")
        if "format" in document.value and line is not None:
            document.spot("line").fail("must stand without format; leave one of them out")
        _check_whole(document, sources)
        return cls(
            sources,
            _choice(document.spot("format"), FORMATS) if "format" in document.value else None,
            None if line is None else _line(document.spot("line")),
            document.name,
        )

    @classmethod
    def guess(cls, fields: Sequence[str], *, time_column: str | None = None) -> LogMap:
        """Return the map that the names of a log's `fields` suggest.

        Raises `InputError` when `time_column` is none of them, or no field looks like a time.
        """
        found = _called(fields, _NAMES)
        if time_column is not None:
            if time_column not in fields:
                raise InputError(
                    f"--time-column = {time_column!r} must be a field of the log"
                    f"{did_you_mean(time_column, _shown(fields))}"
                )
            found["time"] = time_column
        sources = {
            target: Source(target, name, unit="ns" if name == "t_ns" else "auto")
            for target, name in found.items()
        }
        if "time" not in sources:
            raise InputError(
                "time must be a field of the log; name it with --time-column, the fields are: "
                + (", ".join(_shown(fields)) or "none")
            )
        if "method" in sources and "path" in sources:
            sources.pop("request", None)
        return cls(sources)

    def with_extra(self, fields: Sequence[str], extra: MappingOf[str, Sequence[str]]) -> LogMap:
        """Return the map with further targets, of those whose field is there; "" = none in a line.

        extra: target → what its field may be called, without case, `_`, `-` and `.`.
        """
        more = {
            target: Source(target, name, default="")
            for target, name in _called(fields, extra).items()
            if target not in self.sources
        }
        return dataclasses.replace(self, sources={**self.sources, **more})

    def check_fields(self, fields: Sequence[str], log: str, *, open_ended: bool) -> None:
        """Check that the log has every field that is asked for. Raises `InputError`."""
        for target, source in self.sources.items():
            name = source.field
            if name is None or open_ended:
                continue
            if name not in fields:
                raise InputError(
                    f"{source.where}{target}.field = {name!r} must be a field of {log}"
                    f"{did_you_mean(name, _shown(fields))}"
                )
            if list(fields).count(name) > 1:
                raise InputError(
                    f"{source.where}{target}.field = {name!r} must name one field of {log}; several"
                    " are called so, rename them"
                )


def _called(fields: Sequence[str], names: MappingOf[str, Sequence[str]]) -> dict[str, str]:
    """Return target → its field, the first that has one of its names.

    names: without case, `_`, `-` and `.`.
    """
    plain = {re.sub(r"[_.\- ]", "", field).lower(): field for field in reversed(fields)}
    known = {target: [name for name in some if name in plain] for target, some in names.items()}
    return {target: plain[found[0]] for target, found in known.items() if found}


def _shown(fields: Sequence[str]) -> list[str]:
    """Return the names of a log's fields that fit into a message of one line."""
    return [name for name in fields if name.isprintable() and len(name) <= _LONGEST_NAME][
        :_NAMES_SHOWN
    ]


def _check_whole(document: Document, sources: MappingOf[str, Source]) -> None:
    where = document.where(())
    if "time" not in sources:
        raise InputError(f'{where}time must be mapped; say time = {{ field = "…" }}')
    if "request" in sources and ("method" in sources or "path" in sources):
        document.spot("request").fail_key("must stand alone; it gives method and path already")
    if sources["time"].value is not None:
        document.spot("time").fail("must come from a field; a log has no constant time")


def _source(spot: Spot, target: str) -> Source:
    where = spot.document.where(spot.path)
    if isinstance(spot.value, str):
        return Source(target, spot.value, where=where)
    if not isinstance(spot.value, dict):
        spot.fail('must be the name of a field, or a table like { field = "…" }')
    spot.check_keys([key for key in _READERS if key != "unit" or target == "time"])
    if ("field" in spot.value) == ("value" in spot.value):
        spot.fail("must have either field or value")
    for key in spot.value:
        if "value" in spot.value and key != "value":
            spot.child(key).fail_key("needs a field; a constant value stands alone")
    said = {key: _READERS[key](spot.child(key), target) for key in spot.value}
    return Source(target, where=where, **said)


def _field(spot: Spot, _target: str = "") -> str:
    if not isinstance(spot.value, str) or not spot.value:
        spot.fail("must be a text that is not empty")
    return spot.value


def _word(spot: Spot, target: str) -> str:
    """Return the text of a constant; true and false may stand bare."""
    value = str(spot.value).lower() if isinstance(spot.value, bool) else spot.value
    if not isinstance(value, str) or not value:
        spot.fail("must be a text that is not empty", secret=target == "key")
    if value not in CHOICES.get(target, (value,)):
        _choice(spot, CHOICES[target])
    return value


def _constant(spot: Spot, target: str) -> str:
    """Return the text of a constant that all of the log's lines can have."""
    value = _word(spot, target)
    for part in parts_of(target).values():
        try:
            part(value)
        except Rejected as fault:
            spot.fail(str(fault).removeprefix(f"{target} "))
    return value


def _choice(spot: Spot, known: Sequence[str]) -> Any:  # noqa: ANN401 # reason: one of the words
    if spot.value not in known:
        near = did_you_mean(str(spot.value), known, otherwise="")
        spot.fail(f"must be one of {', '.join(known)}{near}")
    return spot.value


def _lookup(spot: Spot, target: str) -> dict[str, str]:
    if not isinstance(spot.value, dict) or not spot.value:
        spot.fail('must be a table of values, like { "live" = "production" }')
    # What stands left may be the text of a key: then a message names the whole table.
    path = spot.path if target == "key" else None
    return {
        name: _word(Spot(spot.document, path or (*spot.path, name), text), target)
        for name, text in spot.value.items()
    }


def _line(spot: Spot) -> re.Pattern[str]:
    pattern = _pattern(spot)
    if not pattern.groupindex:
        spot.fail("must have named groups, such as (?P<time>…); they are the fields")
    return pattern


def _target_pattern(spot: Spot, target: str) -> re.Pattern[str]:
    pattern = _pattern(spot)
    if target not in pattern.groupindex and pattern.groups > 1:
        spot.fail(f"must have one group, or one called (?P<{target}>…)")
    return pattern


def _pattern(spot: Spot) -> re.Pattern[str]:
    text = _field(spot)
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        spot.fail(f"must be a regular expression; {error}")


_READERS: Final[MappingOf[str, Callable[[Spot, str], Any]]] = {
    "field": _field,
    "value": _constant,
    "pattern": _target_pattern,
    "lookup": _lookup,
    "default": _word,
    "unit": lambda spot, _: _choice(spot, UNITS),
}
"""Key of a target's table → what reads it."""


# --- what a value comes to -----------------------------------------------------------------------

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VERSION: Final = re.compile(r" +HTTP/[0-9.]+$")


def parts_of(target: str) -> dict[str, Callable[[str], str]]:
    """Return the fields that a target gives, and what reads each from its value.

    They raise `Rejected`. A request line gives two.
    """
    if target == "request":
        return {
            "method": lambda text: _request(text)[0],
            "path": lambda text: _request(text)[1],
        }
    return {target: {"address": _address, "method": _method}.get(target, str)}


def _request(text: str) -> tuple[str, str]:
    """Split a request line into method and path as logged; the version may be missing."""
    method, space, rest = text.partition(" ")
    path = _VERSION.sub("", rest).strip(" ")
    if not space or not path or _TOKEN.fullmatch(method) is None:
        raise Rejected("request must be a method, a path and a version")
    return method, path


def _method(text: str) -> str:
    if _TOKEN.fullmatch(text) is None:
        raise Rejected("method must be one word")
    return text


def _address(text: str) -> str:
    """Return an address in its one spelling; IPv4-mapped IPv6 is IPv4 (D-IP), a name stays."""
    try:
        found = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        if re.fullmatch(r"[^\s\x00-\x1f\x7f]{1,255}", text) is None:
            raise Rejected("address must be an IP address or a host name") from None
        return text
    return str(unmapped(found))
