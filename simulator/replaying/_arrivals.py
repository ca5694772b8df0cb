"""From a read log to arrivals: ordered, scaled, and with labels in the place of secrets.

An arrival is an instant, a line number and the number of a `Party` (who asks for what). This is
the form that any way of deciding takes, one request at a time or a column at a time.

Order is (instant, line) after a stable sort; an instant is floor((t − t0) / speed) in exact
integers, t0 the earliest in the log. Key texts end here: what comes out holds `key-0001` in order
of first appearance, or keyed hashes.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.errors import InputError
from engine.model import ApplicationKind, TenantKind
from simulator.traffic.logs import Field, Kind, Log

__all__ = ["Arrivals", "Party", "make_arrivals", "read_speed", "speed_text"]

_LATEST_NS: Final = 1 << 62
_HASH_DIGITS: Final = 16
_KEY_TEXT: Final = re.compile(r"key_(?:[a-z]+_)*[1-9A-HJ-NP-Za-km-z]{22}")
_SPEED: Final = re.compile(r"\d{1,12}(?:\.\d{1,12})?", re.ASCII)
_IDENTITY: Final = ("tenant", "tenant_kind", "application", "application_kind", "legacy")


class Party(NamedTuple):
    """Who asks for what. Without a key there is no tenant and no application (D-UNKEYED)."""

    tenant: str | None
    tenant_kind: TenantKind | None
    application: str | None
    application_kind: ApplicationKind | None
    legacy: bool
    key: str | None
    ip: str
    method: str
    path: str


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The requests of a replay, in decision order.

    t_ns: instants from the run's start. line: where each stood in the log. party: numbers into
    `parties`. start_ns: the first one's instant in ns since the Unix epoch (UTC).
    """

    t_ns: npt.NDArray[np.int64]
    line: npt.NDArray[np.int64]
    party: npt.NDArray[np.int64]
    parties: tuple[Party, ...]
    start_ns: int

    def __len__(self) -> int:
        return len(self.t_ns)


def read_speed(speed: str | int | Fraction) -> Fraction:
    """Return how many times faster than the log the replay runs. Raises `InputError`.

    >>> read_speed("0.5")
    Fraction(1, 2)
    """
    if isinstance(speed, str):
        found = Fraction(speed) if _SPEED.fullmatch(speed) else Fraction(0)
    else:
        found = Fraction(speed)
    if found <= 0:
        raise InputError(f"speed = {speed!r} must be a decimal number above 0, such as 1000 or 0.5")
    return found


def speed_text(speed: Fraction) -> str:
    """Return a speed as a decimal number where it is one.

    >>> speed_text(Fraction(5, 2)), speed_text(Fraction(1000)), speed_text(Fraction(1, 3))
    ('2.5', '1000', '1/3')
    """
    decimals = next((n for n in range(25) if not speed * 10**n % 1), None)
    if decimals is None:
        return str(speed)
    digits = str(int(speed * 10**decimals)).rjust(decimals + 1, "0")
    return f"{digits[:-decimals]}.{digits[-decimals:]}" if decimals else digits


def make_arrivals(
    log: Log,
    *,
    kind: Kind,
    tenant_kind: TenantKind,
    speed: Fraction,
    pseudonym_key: bytes | None = None,
) -> Arrivals:
    """Order and scale a log's requests, and put labels in the place of key texts.

    kind, tenant_kind: of the keys of which the log says nothing.
    pseudonym_key: with it, addresses and keys become keyed hashes (HMAC-SHA-256).

    Raises `InputError` when the log gives one key two owners, or is too long at this speed.
    """
    order = _in_order(log)
    t_ns = log.t_ns[order]
    fields = {name: column.take(order) for name, column in log.fields.items()}
    owners, columns = _owners(log, fields, order, kind, tenant_kind)
    keys = fields.get("key", Field(np.zeros(len(order), dtype=np.int32), ("",)))
    party, rows = _distinct([*columns, keys, fields["address"], fields["method"], fields["path"]])
    key_labels = _key_labels(keys, pseudonym_key)
    parties = tuple(
        _party(fields, keys, key_labels, owners, int(row), pseudonym_key) for row in rows
    )
    return Arrivals(_scaled(t_ns, speed), log.line[order], party, parties, int(t_ns[0]))


def _in_order(log: Log) -> npt.NDArray[np.int64]:
    """Return the rows by instant, then line; most logs are in order already."""
    later = np.diff(log.t_ns) > 0
    if np.all(later | (np.diff(log.t_ns) == 0) & (np.diff(log.line) > 0)):
        return np.arange(len(log), dtype=np.int64)
    return np.lexsort((log.line, log.t_ns))


def _scaled(t_ns: npt.NDArray[np.int64], speed: Fraction) -> npt.NDArray[np.int64]:
    """Return floor((t − t0) / speed), exactly."""
    start, end = int(t_ns[0]), int(t_ns[-1])
    times, over = speed.denominator, speed.numerator
    if (end - start) * times // over >= _LATEST_NS:
        raise InputError(
            f"speed = {speed_text(speed)} must keep the replay below 146 years; the log spans"
            f" {(end - start) // 10**9} s"
        )
    if (end - start) * times < 1 << 63:
        return np.asarray((t_ns - start) * times // over, dtype=np.int64)
    return np.array([(int(t) - start) * times // over for t in t_ns], dtype=np.int64)


def _distinct(columns: list[Field]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Number the distinct rows in order of appearance; return each row's number, and first rows."""
    import pandas as pd  # noqa: PLC0415 # reason: loaded where a log is read

    number = np.zeros(len(columns[0].codes), dtype=np.int64)
    count = 1
    for column in columns:
        # Two columns fold into one number: both stay below the number of rows, or of names.
        pairs = number * (len(column.names) + 1) + column.codes + 1
        number, distinct = pd.factorize(pairs)  # hashes in one pass, where np.unique sorts
        count = len(distinct)
    first = np.empty(count, dtype=np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]  # of several writes the last one stays
    return number, first


def _owners(
    log: Log,
    fields: Mapping[str, Field],
    order: npt.NDArray[np.int64],
    kind: Kind,
    tenant_kind: TenantKind,
) -> tuple[dict[int, tuple[str, ...]], list[Field]]:
    """Return who owns each key (by its code), and the columns that say so.

    A key belongs to one application of one tenant: a log that says otherwise is mapped wrongly.
    """
    columns = [fields[name] for name in _IDENTITY if name in fields]
    keys = fields.get("key", Field(np.zeros(len(order), dtype=np.int32), ("",)))
    _, rows = _distinct([keys, *columns])
    owners: dict[int, tuple[str, ...]] = {}
    lines: dict[int, int] = {}
    line_of = log.line[order]
    for row in rows:
        code = int(keys.codes[row])
        if code < 0:
            continue
        owner = _owner(fields, int(row), kind, tenant_kind)
        line = int(line_of[row])
        if owners.setdefault(code, owner) != owner:
            raise InputError(
                f"{log.name}:{line}: key must belong to one application of one tenant; line"
                f" {lines[code]} gives it another, map tenant and application by the key"
            )
        lines.setdefault(code, line)
    return owners, columns


def _owner(
    fields: Mapping[str, Field], row: int, kind: Kind, tenant_kind: TenantKind
) -> tuple[str, ...]:
    """Return tenant, its kind, application, its kind and whether the key is a legacy one."""
    said = {
        name: fields[name].names[fields[name].codes[row]] for name in _IDENTITY if name in fields
    }
    its_kind = said.get("application_kind", kind)
    its_tenant_kind = said.get("tenant_kind", tenant_kind)
    legacy = said.get("legacy", "true" if its_kind == "legacy" else "false")
    return (
        said.get("tenant", its_tenant_kind),
        its_tenant_kind,
        said.get("application", its_kind),
        "private" if its_kind == "legacy" else its_kind,
        legacy,
    )


def _party(
    fields: Mapping[str, Field],
    keys: Field,
    key_labels: Mapping[int, str],
    owners: Mapping[int, tuple[str, ...]],
    row: int,
    pseudonym_key: bytes | None,
) -> Party:
    def value(name: str) -> str:
        column = fields[name]
        return column.names[int(column.codes[row])]

    code = int(keys.codes[row])
    address, path = value("address"), _KEY_TEXT.sub("key_…", value("path"))
    if code >= 0 and len(keys.names[code]) > 3:
        path = path.replace(keys.names[code], key_labels[code])
    if pseudonym_key is not None:
        hashed = "ip-" + _hashed(pseudonym_key, address)
        address, path = hashed, path.replace(address, hashed)
    if code < 0:
        return Party(None, None, None, None, False, None, address, value("method"), path)
    tenant, tenant_kind, application, kind, legacy = owners[code]
    return Party(
        tenant,
        tenant_kind,  # type: ignore[arg-type] # reason: the map let no other word through
        application,
        kind,  # type: ignore[arg-type] # reason: the map let no other word through
        legacy == "true",
        key_labels[code],
        address,
        value("method"),
        path,
    )


def _key_labels(keys: Field, pseudonym_key: bytes | None) -> dict[int, str]:
    """Return the label of each key code, numbered in order of first appearance."""
    if pseudonym_key is not None and keys.names != ("",):
        return {code: "key-" + _hashed(pseudonym_key, text) for code, text in enumerate(keys.names)}
    codes, first = np.unique(keys.codes[keys.codes >= 0], return_index=True)
    ranked = codes[np.argsort(first, kind="stable")]
    return {int(code): f"key-{number:04d}" for number, code in enumerate(ranked, 1)}


def _hashed(pseudonym_key: bytes, text: str) -> str:
    return hmac.digest(pseudonym_key, text.encode(), "sha256").hex()[:_HASH_DIGITS]
