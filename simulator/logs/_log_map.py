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
from collections.abc import Callable, Sequence
from collections.abc import Mapping as MappingOf
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from engine.errors import InputError, did_you_mean
from engine.files import Document, Spot, read_toml
from engine.hosts import (
    is_method,
    is_plain_address,
    path_and_query,
    read_address,
    split_request_line,
)
from simulator.logs.formats import FORMATS, KEY_HEADERS, REWRITTEN, LogFormat, plain_name

TimestampFormat: TypeAlias = Literal["clf", "iso", "http", "asctime", "s", "ms", "us", "ns"]
"""How a column writes time: a stamp, or the unit of an epoch number."""
UNITS: Final = ("auto", *get_args(TimestampFormat))

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
_NEEDED: Final = ("time", "address", "method", "path")
_OWNER: Final = ("tenant", "tenant_kind", "application", "application_kind", "legacy")
_LONGEST_NAME: Final = 40
_NAMES_SHOWN: Final = 30
_SECRET: Final = re.compile(r"key_[a-z1-9]|\d{12}", re.IGNORECASE)
"""What a name may hold of a key or a card number, where data stand in the place of names."""

WRAPPER_TIME: Final = "wrapper_time"
"""The field with the time that a log's carrier gives to a line."""
EXTRAS: Final = tuple(f"extra{number}" for number in range(1, 10))
"""The fields after those that a format of lines names."""
DOCUMENTED: Final = "docs/simulator.md#map"
"""Where the form of a map is described."""


class ValueRejected(ValueError):
    """A value cannot be used; the text says why and never repeats the value."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where one target comes from; exactly one of `field` and `value` is set.

    where: `file:line:col: ` of the map for messages, or empty. second: the field with the time of a
    day that stands in `field`. is_guess: whether only the names of the fields speak for it; then
    `second` or `field` alone may hold the time, and the other one a duration. unit: the notation of
    times, `auto` to tell it by the lines.
    """

    target: str
    field: str | None = None
    second: str | None = None
    is_guess: bool = False
    value: str | None = None
    pattern: re.Pattern[str] | None = None
    lookup: MappingOf[str, str] | None = None
    default: str | None = None
    unit: str = "auto"
    where: str = ""

    def __repr__(self) -> str:
        """Return the fields; those that may be texts of keys are not shown."""
        secret = ("value", "lookup", "default") if self.target == "key" else ()
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        texts = (
            f"{name}={'…' if value is not None and name in secret else repr(value)}"
            for name, value in values.items()
        )
        return f"Source({', '.join(texts)})"

    @property
    def is_plain(self) -> bool:
        """Whether every value stands for itself."""
        return self.pattern is None and self.lookup is None and self.default is None

    def map_value(self, raw: str | None) -> str | None:
        """Return what `raw` stands for; None means absent. Raises `ValueRejected`."""
        value = raw
        if value is not None and self.pattern is not None:
            match = self.pattern.search(value)
            value = None if match is None else match[self._group(self.pattern)]
        if value is not None and self.lookup is not None:
            value = self.lookup.get(value)
            if value is None and self.default is None:
                raise ValueRejected(
                    f"{self.target} has no entry in the map's lookup, and no default"
                )
        if value is None:
            value = self.default
        if value is None and self.target not in {"key", "time"}:
            raise ValueRejected(f"{self.target} is missing")
        choices = CHOICES.get(self.target)
        if value is not None and choices is not None and value not in choices:
            raise ValueRejected(f"{self.target} must be one of {', '.join(choices)}")
        return value

    def _group(self, pattern: re.Pattern[str]) -> str | int:
        return self.target if self.target in pattern.groupindex else min(1, pattern.groups)


@dataclass(frozen=True, slots=True)
class LogMap:
    """Where each target comes from, of one log.

    columns: of a CSV file without a row of names. name: the map's file for messages; empty when the
    log's own names serve.
    """

    sources: MappingOf[str, Source] = field(default_factory=dict)
    format: str | None = None
    line: re.Pattern[str] | None = None
    columns: tuple[str, ...] | None = None
    name: str = ""

    @classmethod
    def read(cls, path: str | Path) -> LogMap:
        """Read a map file. Raises `InputError` with file, line and column."""
        return cls.from_document(read_toml(path))

    @classmethod
    def from_document(cls, document: Document) -> LogMap:
        """Check a read map. Raises `InputError`."""
        known = ("format", "line", "columns", *TARGETS)
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
        columns = "columns" in document.value
        return cls(
            sources,
            _format(document.spot("format")) if "format" in document.value else None,
            None if line is None else _line(document.spot("line")),
            _columns(document.spot("columns")) if columns else None,
            document.name,
        )

    @classmethod
    def guess(
        cls, fields: Sequence[str], form: LogFormat = FORMATS["jsonl"], time_column: str = ""
    ) -> LogMap:
        """Return the map that the names of a log's `fields` suggest.

        Raises `InputError` when `time_column` is none of them.
        """
        called = fields_of(fields, form)
        called.pop("status", None)
        keys = [name for name in fields if plain_name(name).endswith(KEY_HEADERS)]
        if keys:
            called.setdefault("key", keys[0])
        if plain_name(called.get("method", "")) == "verb" and "request" in called:
            called["path"] = called.pop("request")  # Logstash: its `path` is that of the log's file
        second = ""
        if time_column:
            if time_column not in fields:
                raise InputError(
                    f"--time-column = {time_column!r} must be a field of the log"
                    f"{did_you_mean(time_column, _shown(fields))}"
                )
            called["time"] = time_column
        elif form.layout != "line":
            pair = _two_times(fields, form)
            if pair is not None:
                called["time"], second = pair
        sources = {
            target: Source(
                target,
                name,
                unit="ns" if name == "t_ns" else "auto",
                is_guess=not time_column,
                # A request without a key has no owner; its place is never looked at (D-UNKEYED).
                default=CHOICES.get(target, ("-",))[0] if target in _OWNER else None,
            )
            for target, name in called.items()
        }
        if second:
            sources["time"] = dataclasses.replace(sources["time"], second=second)
        is_rewritten = "path" in called and plain_name(called["path"]) == REWRITTEN
        if (
            "method" in sources
            and "path" in sources
            and not (is_rewritten and "request" in sources)
        ):
            sources.pop("request", None)
        elif "request" in sources:
            sources = {k: v for k, v in sources.items() if k not in {"method", "path"}}
        return cls(sources)

    def completed(self, other: LogMap, assumed: MappingOf[str, str]) -> LogMap:
        """Return the map with the targets that only `other` has, and with what is assumed.

        Raises `InputError` where something is assumed that the log has.
        """
        request = {"request", "method", "path"}
        sources = dict(self.sources)
        for target, source in other.sources.items():
            taken = request & {*self.sources, *assumed}
            if target in request and ("request" in taken or (target == "request" and taken)):
                continue
            if target != "key" or not self.sources:
                sources.setdefault(target, source)
        for target, value in assumed.items():
            known = other.sources.get(target) or self.sources.get(target)
            if known is not None:
                raise InputError(
                    f"--assume {target} must be left out; {known.field or 'the map'} has it"
                )
            sources[target] = Source(target, value=value)
        return dataclasses.replace(self, sources=sources)

    def check_whole(self, fields: Sequence[str], log: str) -> None:
        """Check that nothing would have to be invented. Raises `InputError`."""
        given = set(self.sources)
        if "request" in given:
            given |= {"method", "path"}
        absent = [name for name in _NEEDED if name not in given]
        if not absent:
            return
        named = [name for name in fields if name not in {"key", *EXTRAS}]
        known = ", ".join(_shown(named)) or "none"
        assumable = {"address": "address=192.0.2.1", "path": "path=POST /tokenize"}
        if set(absent) & {"method", "path"} == {"method"}:
            assumable["method"] = "method=POST"
        ways = "".join(f", --assume '{assumable[name]}'" for name in absent if name in assumable)
        entries = "; ".join(f'{name} = "…"' for name in absent)
        nested = next((name for name in _shown(named) if name.endswith("[]")), None)
        if nested is not None and len(absent) == len(_NEEDED):
            raise InputError(
                f"{log}: an object must be a request; {nested} holds several, write each of them"
                f" on a line of its own: jq -c '.{nested}' LOG > records.jsonl"
            )
        raise InputError(
            f"{log}: {', '.join(absent)} must be a field of the log; the fields are: {known};"
            f" name it in a map (--map FILE with: {entries}; see {DOCUMENTED}){ways}"
            + (", or name the time with --time-column" if "time" in absent else "")
        )

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
        named = [
            (target, source, name)
            for target, source in self.sources.items()
            for name in (source.field, source.second)
            if name is not None and not open_ended
        ]
        for target, source, name in named:
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


def _two_times(fields: Sequence[str], form: LogFormat) -> tuple[str, str] | None:
    """Return the fields of the day and the time of day, or of two times the less likely one first.

    Those of a whole time come before a day and a time of day, which may be a duration.
    """
    plain = {plain_name(name): name for name in reversed(fields)}
    names = [name for name in form.fields["time"] if name in plain]
    if form.is_loose and {"date", "time"} < {*names}:
        names = [*(name for name in names if name not in {"date", "time"}), "time"]
    if {"date", "time"} <= {*names[:2]}:
        return plain["date"], plain["time"]
    return (plain[names[1]], plain[names[0]]) if form.is_loose and len(names) > 1 else None


def fields_of(fields: Sequence[str], form: LogFormat) -> dict[str, str]:
    """Return target → the field of a log that a format reads it from."""
    if form.layout == "line":
        called = {name: name for name in fields if name in TARGETS or name == "status"}
        return {"time": WRAPPER_TIME, **called} if WRAPPER_TIME in fields else called
    if form.is_loose:
        return _called(fields, form.fields)
    present = set(fields)
    called = {
        target: next((name for name in names if name in present), "")
        for target, names in form.fields.items()
    }
    return {target: name for target, name in called.items() if name}


def _called(fields: Sequence[str], names: MappingOf[str, Sequence[str]]) -> dict[str, str]:
    """Return target → its field, the first that has one of its names, as `plain_name` has them."""
    plain = {plain_name(field): field for field in reversed(fields)}
    known = {target: [name for name in some if name in plain] for target, some in names.items()}
    return {target: plain[called[0]] for target, called in known.items() if called}


def _shown(fields: Sequence[str]) -> list[str]:
    """Return the names of a log's fields that fit into a message of one line."""
    names = (name for name in fields if name.isprintable() and len(name) <= _LONGEST_NAME)
    return [name for name in names if _SECRET.search(name) is None][:_NAMES_SHOWN]


def _check_whole(document: Document, sources: MappingOf[str, Source]) -> None:
    if "request" in sources and ("method" in sources or "path" in sources):
        document.spot("request").fail_key("must stand alone; it gives method and path already")
    if "time" in sources and sources["time"].value is not None:
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
    values = {key: _READERS[key](spot.child(key), target) for key in spot.value if key != "field"}
    if "field" in spot.value:
        values |= _fields(spot.child("field"), target)
    return Source(target, where=where, **values)


def _fields(spot: Spot, target: str) -> dict[str, str]:
    """Return the field of a target, or of time the two that hold day and time of day."""
    if target == "time" and isinstance(spot.value, list):
        if len(spot.value) != 2:
            spot.fail("must be a field, or two: that of the day and that of the time of day")
        return {"field": _text(spot.child(0)), "second": _text(spot.child(1))}
    return {"field": _text(spot)}


def _columns(spot: Spot) -> tuple[str, ...]:
    if not isinstance(spot.value, list) or not spot.value:
        spot.fail('must be a list of names, such as ["time", "client_ip"]')
    names = tuple(_text(spot.child(place)) for place in range(len(spot.value)))
    if len(set(names)) < len(names):
        spot.fail("must name each column once")
    return names


def _text(spot: Spot) -> str:
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
        except ValueRejected as fault:
            spot.fail(str(fault).removeprefix(f"{target} "))
    return value


def _choice(spot: Spot, known: Sequence[str]) -> Any:  # noqa: ANN401 # reason: one of the words
    if spot.value not in known:
        near = did_you_mean(str(spot.value), known, otherwise="")
        spot.fail(f"must be one of {', '.join(known)}{near}")
    return spot.value


def _format(spot: Spot) -> str:
    name = spot.value
    if not isinstance(name, str) or name not in FORMATS:
        near = did_you_mean(str(name), [*FORMATS], otherwise="")
        spot.fail(f"must be the name of a format; `replay --formats` lists them{near}")
    return name


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
    text = _text(spot)
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        spot.fail(f"must be a regular expression; {error}")


_READERS: Final[MappingOf[str, Callable[[Spot, str], Any]]] = {
    "field": _fields,
    "value": _constant,
    "pattern": _target_pattern,
    "lookup": _lookup,
    "default": _word,
    "unit": lambda spot, _: _choice(spot, UNITS),
}
"""Key of a target's table → what reads it."""


# --- what a value comes to -----------------------------------------------------------------------

_NAME: Final = re.compile(r"(?=[^\s,]*[A-Za-z0-9])[^\s,\x00-\x1f\x7f]{1,255}")
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NO_ADDRESSES: Final = frozenset({"unknown", "unix:"})
_CLIENT: Final = re.compile(r"first|last|trusted:([1-9][0-9]?)", re.ASCII)
_ELEMENT: Final = re.compile(r"^(?:.*;)?(?i:for)=([^;]*)(?:;.*)?$")
"""An element of `Forwarded` (RFC 7239); the group has the address."""
_QUAD: Final = r"\d{1,3}(?:\.\d{1,3}){3}"
_WITHIN: Final = re.compile(rf'"|\[[^\]]*:|[^\w.\-]{_QUAD}(?:[^\w.\-/]|$)|^{_QUAD}[^\w.\-/]')
"""What no name and no pseudonym holds: quotes, and an address beside other text."""
_HOST_AND_PORT: Final = re.compile(r"(localhost|[\w\-]+(?:\.[\w\-]+)+):\d{1,5}", re.ASCII)
BAD_ADDRESS: Final = "address must be an IP address, a host name or a pseudonym"


def read_client(rule: str) -> Callable[[Sequence[str]], str]:
    """Return what picks the client of a list of forwarded addresses. Raises `InputError`.

    first: the first one, which is what the client says. last: the last, which the nearest proxy
    has added. trusted:N: the one before the last N, which are those of trusted proxies.
    """
    match = _CLIENT.fullmatch(rule)
    if match is None:
        raise InputError(
            f"client = {rule!r} must be first, last or trusted:N, such as trusted:1 for one proxy"
        )
    if match[1] is None:
        return lambda addresses: addresses[0 if rule == "first" else -1]
    trusted = int(match[1])

    def pick(addresses: Sequence[str]) -> str:
        if len(addresses) <= trusted:
            raise ValueRejected(
                f"address must be a list of more than {trusted} for --client {rule}"
            )
        return addresses[-1 - trusted]

    return pick


def parts_of(target: str, client: str = "first") -> dict[str, Callable[[str], str]]:
    """Return the fields that a target gives, and what reads each from its value.

    They raise `ValueRejected`. A request line gives two.
    """
    if target == "request":
        return {
            "method": lambda text: _request(text)[0],
            "path": lambda text: _path_of(*_request(text)),
        }
    if target == "address":
        pick = read_client(client)
        return {target: lambda text: _address(text, pick)}
    return {target: {"method": _method_field, "path": _path}.get(target, str)}


def _request(text: str) -> tuple[str, str]:
    parts = split_request_line(text)
    if parts is None:
        raise ValueRejected("request must be a method, a path and a version")
    return parts


def _method(text: str) -> str:
    if not is_method(text):
        raise ValueRejected("method must be a word such as GET")
    return text


def _method_field(text: str) -> str:
    """Return a method that stands alone; some loggers write it in lower case."""
    upper = text.upper()
    return upper if text.islower() and upper in _METHODS else _method(text)


def _path_of(method: str, text: str) -> str:
    """Return the path of a request line; CONNECT has an authority in its place."""
    return text if method == "CONNECT" else _path(text)


def _path(text: str) -> str:
    """Return the path and the query of a target; no server takes another one."""
    path = path_and_query(text)
    if path[0] not in "/*":
        raise ValueRejected("path must begin with / (or be a whole URL)")
    return path


def _address(text: str, pick: Callable[[Sequence[str]], str]) -> str:
    """Return an address in its canonical form (D-IP); a host name or a pseudonym stays."""
    if "," in text:
        text = pick([part.strip() for part in text.split(",")])
    text = _ELEMENT.sub(r"\1", text).strip('"')
    if is_plain_address(text):
        return text
    address = read_address(text)
    if address is not None:
        return str(address)
    host = _HOST_AND_PORT.fullmatch(text)
    text = text if host is None else host[1]
    if _NAME.fullmatch(text) is None or text in _NO_ADDRESSES:
        raise ValueRejected(BAD_ADDRESS)
    ends = (text.partition(":")[2], text.rpartition(":")[2])
    if _WITHIN.search(text) is not None or any(read_address(end) is not None for end in ends):
        raise ValueRejected(
            "address must stand alone; something precedes it, such as a file's name"
        )
    return text
