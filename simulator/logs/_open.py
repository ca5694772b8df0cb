"""From a log's name to a stream of its requests: which format it is in, and where each field is.

A format is detected by the first lines, and by the name where it ends in `.csv`, `.tsv` or
`.parquet`. The first format of the table that describes at least half of these lines is the log's;
where none does, what carriers put around lines is taken off and the lines inside are tried. A
format that describes fewer lines is taken only if no other describes any.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from engine.errors import InputError
from simulator.arguments import format_value
from simulator.logs._log_map import DOCUMENTED, LogMap, fields_of, read_client
from simulator.logs._readers import (
    CsvReader,
    FrameReader,
    JsonReader,
    LineReader,
    ParquetReader,
    W3cReader,
    collect_names,
    read_object,
)
from simulator.logs._source import Pipe, Place, Unwrapper, head_lines, open_log, place_of
from simulator.logs._stream import LogStream, Reader
from simulator.logs._values import read_zone
from simulator.logs.formats import FORMATS, WRAPPERS, LogFormat, Wrapper

_HEAD_LINES: Final = 200
_SUFFIXES: Final = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
_PACKED_SUFFIXES: Final = frozenset({".gz", ".bz2", ".xz", ".zst", ".lz4"})
_ARRAY: Final = re.compile(r"\[\s*(?:\{.*)?")
_WRAPPERS_LIMIT: Final = 2
_START_BYTES: Final = 1000


class Detected(NamedTuple):
    """What a log is written in. is_stream: its JSON objects do not stand on a line each."""

    form: LogFormat
    wrappers: tuple[Wrapper, ...] = ()
    is_stream: bool = False


def stream_log(  # noqa: PLR0913 # reason: all that a user may state about a log
    source: Any,  # noqa: ANN401 # reason: a path, or any frame that Arrow can take
    *,
    format: str | None = None,  # noqa: A002 # reason: the command's own word for it
    map: LogMap | None = None,  # noqa: A002 # reason: the command's own word for it
    time_column: str | None = None,
    zone: str | None = None,
    client: str | None = None,
    assume: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
    extra: Mapping[str, Sequence[str]] | None = None,
    changes: Mapping[str, Callable[[str], str]] | None = None,
) -> LogStream:
    """Return a log that is read batch by batch, in memory that does not grow with its lines.

    source: a path (plain or packed), a pipe, `-` for standard input, or a pandas frame, Arrow table
        or the like.
    format: how it is written; left out, its name and first lines tell.
    map: which field is what; left out, the format's fields and common names do, and the log has one
        kind of key.
    time_column: the field with the time, of a log whose fields have names.
    zone: of times that have none (UTC).
    client: which of several forwarded addresses is the client's (`read_client`; the first).
    assume: address, method and path of a log that has none; the path may have the method ahead.
    progress: called now and then with how many lines were read.
    extra: further targets that the map does not name, and what their fields are called; those
        that the log has are read too, "" where a line has none.
    changes: what becomes of the texts of a target, distinct text by distinct text.

    Raises `InputError` when the source is missing, empty or unreadable, or lacks a field.
    """
    stated_zone = None if zone is None else read_zone(zone)
    read_client(client or "first")
    place = place_of(source) if isinstance(source, str | Path) else None
    try:
        if place is None:
            name, detected = "frame", Detected(FORMATS["parquet"])
            reader: Reader = FrameReader(source)
            _refuse_writing(format, map)
        else:
            name, detected = place.name, _detected(place, format, map)
            reader = _reader(place, detected, map)
        log_map, has_key_field = _fitted(name, detected, reader, map, time_column, assume or {})
        log_map = log_map.with_extra(reader.fields, extra or {})
    except InputError:
        if isinstance(place, Pipe):
            place.close()
        raise
    form, status = detected.form, fields_of(reader.fields, detected.form).get("status")
    address = log_map.sources["address"].field
    forwarded = next((name for name in reader.forwarded() if name != address), None)
    return LogStream(
        name,
        _title(detected, map) if place is not None else "frame",
        log_map,
        reader,
        progress=progress,
        changes=changes or {},
        has_key_field=has_key_field,
        zone=stated_zone,
        client=client,
        status=status,
        forwarded=forwarded,
        is_detected=format is None and form.layout not in {"csv", "parquet"} and map is None,
    )


def _title(detected: Detected, map_: LogMap | None) -> str:
    """Return the name of a format, with what stands around its lines."""
    name = "pattern" if map_ is not None and map_.line is not None else detected.form.name
    return " in ".join([name, *(wrapper.name for wrapper in reversed(detected.wrappers))])


def _refuse_writing(format_: str | None, map_: LogMap | None) -> None:
    """Raise `InputError` where a format or a pattern is given for a frame, which has columns."""
    if format_ is not None:
        raise InputError(f"format = {format_value(format_)} must be left out; the log is a frame")
    for name in ("format", "line", "columns"):
        if map_ is not None and getattr(map_, name) is not None:
            raise InputError(
                f"{map_.name or 'map'}: {name} must be left out; the log is a frame, its columns"
                " are the fields"
            )


def _fitted(
    name: str,
    detected: Detected,
    reader: Reader,
    map_: LogMap | None,
    time_column: str | None,
    assume: Mapping[str, str],
) -> tuple[LogMap, bool]:
    """Return a map that fits a reader's fields, and whether keys have a field of their own."""
    is_mapped = map_ is not None and bool(map_.sources)
    if time_column is not None:
        if detected.form.layout == "line":
            raise InputError(
                f"--time-column = {time_column!r} must go with csv, jsonl or parquet; the"
                f" {detected.form.name} format has its time in its place"
            )
        if map_ is not None and "time" in map_.sources:
            raise InputError(
                f"--time-column = {time_column!r} must stand without a map; name it there"
            )
    guess = LogMap.guess(reader.fields, detected.form, time_column or "")
    known = (map_ or LogMap()).completed(guess, _assumed(assume))
    known.check_fields(reader.fields, name, open_ended=reader.open_ended)
    known.check_whole(reader.fields, name)
    has_column = "key" in known.sources and detected.form.layout != "line"
    return known, (is_mapped and "key" in known.sources) or has_column


_ASSUMABLE: Final = ("address", "key", "method", "path")


def _assumed(assume: Mapping[str, str]) -> dict[str, str]:
    """Return what is assumed by target; a path may have its method ahead."""
    values = dict(assume)
    for name in values:
        if name not in _ASSUMABLE:
            raise InputError(
                f"--assume {name} must be one of {', '.join(_ASSUMABLE)}, such as"
                " 'path=POST /tokenize'"
            )
    method, space, path = values.get("path", "").partition(" ")
    if space:
        if "method" in values:
            raise InputError("--assume method must be left out; the path has it ahead")
        values |= {"method": method, "path": path.strip()}
    return values


# --- detection -----------------------------------------------------------------------------------


def _reader(path: Place, detected: Detected, map_: LogMap | None) -> Reader:
    form, wrappers, _ = detected
    if map_ is not None and map_.line is not None:
        return LineReader(path, wrappers, (), map_.line)
    if form.layout == "line":
        return LineReader(path, wrappers, form.parts)
    if form.layout == "json":
        return JsonReader(path, wrappers, is_stream=detected.is_stream)
    if form.layout == "w3c":
        return W3cReader(path, head_lines(path, _HEAD_LINES))
    if form.layout == "parquet":
        return ParquetReader(path)
    return CsvReader(path, None if map_ is None else map_.columns)


def _stated(format_: str | None, map_: LogMap | None) -> str | None:
    """Return the format that the command or the map states. Raises `InputError`."""
    if map_ is None:
        return format_
    if map_.line is not None and format_ is not None:
        raise InputError(f"--format = {format_!r} must be left out; the map splits the lines")
    if map_.format is not None and format_ not in {None, map_.format}:
        raise InputError(
            f"--format = {format_!r} must agree with the map, which has {map_.format!r}"
        )
    stated = map_.format or format_
    if map_.columns is not None and stated not in {None, "csv"}:
        raise InputError(f"--format = {stated!r} must be csv; the map names its columns")
    return "csv" if map_.columns is not None else stated


def _detected(path: Place, format_: str | None, map_: LogMap | None) -> Detected:
    """Return the format that is stated, or else the one that the log is in."""
    stated = _stated(format_, map_)
    if map_ is not None and map_.line is not None:
        return Detected(FORMATS["nginx"])
    suffixes = [suffix.lower() for suffix in path.suffixes]
    suffix = next((end for end in reversed(suffixes) if end not in _PACKED_SUFFIXES), "")
    form = FORMATS.get(stated or _SUFFIXES.get(suffix, ""))
    if form is not None and form.layout in {"parquet", "csv"}:
        return Detected(form)
    lines = head_lines(path, _HEAD_LINES) or _long_start(path)
    if not lines:
        raise InputError(f"log = '{path}' must hold at least one line; it is blank")
    if lines[0].startswith("PAR1"):
        return Detected(FORMATS["parquet"])
    if "\r" in lines[0]:
        raise InputError(
            f"log = '{path}' must end its lines in line feeds, not in carriage returns; convert it"
            " first: tr '\\r' '\\n'"
        )
    forms = [form] if form is not None else [*FORMATS.values()]
    if _is_stream(lines) and any(form.layout == "json" for form in forms):
        fields = JsonReader(path, (), is_stream=True).fields
        return Detected(_json_forms(fields, forms)[0], is_stream=True)
    detected = _detect(lines, forms, depth=0)
    if detected is None and form is not None:
        detected = Detected(form)
    if detected is None and any(mark in lines[0] for mark in ",;\t"):
        return Detected(FORMATS["csv"])
    if detected is None:
        raise InputError(
            f"log = '{path}' must be in a known format; `replay --formats` lists them, or describe"
            f" its lines in a map: line = '(?P<time>…) …', see {DOCUMENTED}"
        )
    return detected


def _long_start(path: Place) -> list[str]:
    """Return the start of a log whose first line is too long to be held, as an array's may be."""
    with open_log(path, look=True) as stream:
        start = stream.read(_START_BYTES).decode("utf-8-sig", "backslashreplace").lstrip()
    return [start.partition("\n")[0]] if start else []


def _detect(lines: Sequence[str], forms: Sequence[LogFormat], depth: int) -> Detected | None:
    """Return the format of some lines, taken out of their wrappers."""
    if any(line.lower().startswith("#fields:") for line in lines):
        return _w3c(lines, forms)
    records = [record for line in lines if (record := read_object(line)) is not None]
    if 2 * len(records) >= len(lines):
        fields = _names(records)
        form = next(iter(_json_forms(fields, forms)), None)
        whole = form is not None and _is_whole(fields, form)
        inside = None if whole else _unwrapped(lines, forms, depth)
        return inside or (None if form is None else Detected(form))
    scores = [
        (sum(form.line.fullmatch(line) is not None for line in lines), form)
        for form in forms
        if form.layout == "line"
    ]
    form = next((form for score, form in scores if 2 * score >= len(lines)), None)
    if form is not None:
        return Detected(form)
    inside = _unwrapped(lines, forms, depth)
    if inside is not None:
        return inside
    score, form = max(scores, key=lambda scored: scored[0], default=(0, None))
    return Detected(form) if form is not None and score and not depth else None


def _w3c(lines: Sequence[str], forms: Sequence[LogFormat]) -> Detected | None:
    text = "\n".join(line for line in lines if line.startswith("#"))
    name = "cloudfront" if "x-edge-" in text else "iis" if "Internet Information" in text else "w3c"
    names = [form.name for form in forms if form.layout == "w3c"]
    return Detected(FORMATS[name if name in names else names[0]]) if names else None


def _is_stream(lines: Sequence[str]) -> bool:
    """Whether the lines are those of a JSON array, or of objects over several lines."""
    if lines[0].startswith("[") and _ARRAY.fullmatch(lines[0]) is not None:
        return True
    is_object = lines[0].lstrip().startswith("{")
    return is_object and read_object(lines[0]) is None and not any(map(read_object, lines))


def _json_forms(fields: Sequence[str], forms: Iterable[LogFormat]) -> list[LogFormat]:
    """Return the formats whose fields are there; one that is stated, whatever is there."""
    jsons = [form for form in forms if form.layout == "json"]
    needed = {"time", "address", "method", "path"}
    fitting = [
        form
        for form in jsons
        if form.is_loose or (needed <= {*fields_of(fields, form)} and {*form.needs} <= {*fields})
    ]
    return fitting or jsons


def _is_whole(fields: Sequence[str], form: LogFormat) -> bool:
    """Whether a format finds who asks for what in these fields."""
    known = fields_of(fields, form)
    return "address" in known and ("request" in known or "path" in known)


def _names(records: Iterable[dict[str, Any]]) -> list[str]:
    """Return the names of the fields of some objects."""
    names: dict[str, bool] = {}
    for record in records:
        collect_names(record, names)
    return [*names]


def _unwrapped(lines: Sequence[str], forms: Sequence[LogFormat], depth: int) -> Detected | None:
    """Return the format of the lines inside what stands around them."""
    if depth >= _WRAPPERS_LIMIT:
        return None
    for wrapper in WRAPPERS:
        if wrapper.whole and not _has_ends(lines, wrapper):
            wrapper = dataclasses.replace(wrapper, whole="")  # noqa: PLW2901 # reason: a carrier that takes line ends off
        unwrap = Unwrapper([wrapper])
        parts = [unwrap(line) for line in lines]
        inside = [part[0] for part in parts if part is not None and part[0]]
        if 2 * len(inside) < len(lines) or not inside:
            continue
        detected = _detect(inside, forms, depth + 1)
        if detected is not None:
            return detected._replace(wrappers=(wrapper, *detected.wrappers))
    return None


def _has_ends(lines: Iterable[str], wrapper: Wrapper) -> bool:
    """Whether a carrier leaves the end of a line in place."""
    texts = (record.get(wrapper.text) for line in lines if (record := read_object(line)))
    return any(isinstance(text, str) and text.endswith(wrapper.whole) for text in texts)
