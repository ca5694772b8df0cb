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
import re
from collections.abc import Mapping as MappingOf
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast, get_args

from engine.errors import InputError, did_you_mean
from engine.files import Document, Spot, read_toml

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
_SOURCE_KEYS: Final = ("field", "value", "pattern", "lookup", "default", "unit")
_LONGEST_NAME: Final = 40
_NAMES_SHOWN: Final = 30
UNITS: Final = ("auto", "clf", "iso", "s", "ms", "us", "ns")

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
            _format(document),
            None if line is None else _line(document.spot("line")),
            document.name,
        )

    @classmethod
    def guess(cls, fields: Sequence[str], *, time_column: str | None = None) -> LogMap:
        """Return the map that the names of a log's `fields` suggest.

        Raises `InputError` when `time_column` is none of them, or no field looks like a time.
        """
        plain = _plain(fields)
        sources: dict[str, Source] = {}
        for target, names in _NAMES.items():
            found = next((plain[name] for name in names if name in plain), None)
            if target == "time" and time_column is not None:
                if time_column not in fields:
                    raise InputError(
                        f"--time-column = {time_column!r} must be a field of the log"
                        f"{did_you_mean(time_column, _shown(fields))}"
                    )
                found = time_column
            if found is not None:
                unit = "ns" if found == "t_ns" else "auto"
                sources[target] = Source(target, found, unit=unit)
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
        plain, sources = _plain(fields), dict(self.sources)
        for target, names in extra.items():
            found = next((plain[name] for name in names if name in plain), None)
            if found is not None and target not in sources:
                sources[target] = Source(target, found, default="")
        return dataclasses.replace(self, sources=sources)

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


def _plain(fields: Sequence[str]) -> dict[str, str]:
    """Return fields by their names without case, `_`, `-` and `.`; the first of equal ones."""
    return {re.sub(r"[_.\- ]", "", name).lower(): name for name in reversed(fields)}


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


def _format(document: Document) -> Format | None:
    if "format" not in document.value:
        return None
    spot = document.spot("format")
    if spot.value not in FORMATS:
        spot.fail(f"must be one of {', '.join(FORMATS)}{_hint(spot.value, FORMATS)}")
    return cast("Format", spot.value)


def _source(spot: Spot, target: str) -> Source:
    where = spot.document.where(spot.path)
    known = _SOURCE_KEYS if target == "time" else _SOURCE_KEYS[:-1]
    if isinstance(spot.value, str):
        return Source(target, spot.value, where=where)
    if not isinstance(spot.value, dict):
        spot.fail('must be the name of a field, or a table like { field = "…" }')
    for key in spot.value:
        if key not in known:
            spot.child(key).fail_key(f"is no known key{did_you_mean(key, known)}")
    if ("field" in spot.value) == ("value" in spot.value):
        spot.fail("must have either field or value")
    if "value" in spot.value:
        for key in spot.value:
            if key != "value":
                spot.child(key).fail_key("needs a field; a constant value stands alone")
        return Source(target, value=_word(spot.child("value"), target), where=where)
    return Source(
        target,
        field=_string(spot.child("field")),
        pattern=_target_pattern(spot.child("pattern"), target) if "pattern" in spot.value else None,
        lookup=_lookup(spot.child("lookup"), target) if "lookup" in spot.value else None,
        default=_word(spot.child("default"), target) if "default" in spot.value else None,
        unit=_unit(spot),
        where=where,
    )


def _unit(spot: Spot) -> str:
    unit: Any = spot.value.get("unit", "auto")
    if unit not in UNITS:
        spot.child("unit").fail(f"must be one of {', '.join(UNITS)}")
    return str(unit)


def _string(spot: Spot) -> str:
    if not isinstance(spot.value, str) or not spot.value:
        spot.fail("must be a text that is not empty")
    return spot.value


def _word(spot: Spot, target: str) -> str:
    """Return the text of a constant; true and false may stand bare."""
    value = spot.value
    if isinstance(value, bool):
        value = "true" if value else "false"
    if not isinstance(value, str) or not value:
        spot.fail("must be a text that is not empty", secret=target == "key")
    choices = CHOICES.get(target)
    if choices is not None and value not in choices:
        spot.fail(f"must be one of {', '.join(choices)}{_hint(value, choices)}")
    return value


def _hint(value: object, known: Sequence[str]) -> str:
    """Return `; did you mean 'x'?` where a known word is near; the rule lists them already."""
    hint = did_you_mean(str(value), known)
    return "" if hint.startswith("; known") else hint


def _lookup(spot: Spot, target: str) -> dict[str, str]:
    if not isinstance(spot.value, dict) or not spot.value:
        spot.fail('must be a table of values, like { "live" = "production" }')
    return {name: _word(spot.child(name), target) for name in spot.value}


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
    text = _string(spot)
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        spot.fail(f"must be a regular expression; {error}")
