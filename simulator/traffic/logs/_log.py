"""A log in memory, whole: the stream's batches put together.

Who replays a log takes the stream (`simulator.replaying`); this is for logs that are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.traffic.logs._mapping import Format, LogMap
from simulator.traffic.logs._opening import stream_log
from simulator.traffic.logs._stream import LogBatch

__all__ = ["Field", "Log", "read_log"]


@dataclass(frozen=True, slots=True)
class Field:
    """One column: `names[codes[i]]` is row i's value; the code -1 means absent."""

    codes: npt.NDArray[np.int32]
    names: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Log:
    """A read log, in the order of its lines.

    t_ns: instants in ns since the Unix epoch (UTC). line: line or row numbers from 1.
    fields: `address`, `method`, `path` always; `key` and the others of a map where the log has
    them. Key texts stand in `fields["key"].names` alone.
    unparsed: how many lines did not parse; unparsed_first: the first few, as `name:line: reason`.
    """

    name: str
    format: str
    t_ns: npt.NDArray[np.int64]
    line: npt.NDArray[np.int64]
    fields: Mapping[str, Field]
    unparsed: int
    unparsed_first: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.t_ns)

    @property
    def says_keys(self) -> bool:
        """Whether the log has a place for keys, so that an empty one is a request without a key."""
        return "key" in self.fields

    @property
    def names(self) -> Mapping[str, Sequence[str]]:
        """The distinct values of each field."""
        return {target: column.names for target, column in self.fields.items()}

    def batches(self) -> Iterator[LogBatch]:
        """Yield the whole log as one batch."""
        codes = {target: column.codes for target, column in self.fields.items()}
        yield LogBatch(self.t_ns, self.line, codes)


def read_log(
    source: Any,  # noqa: ANN401 # reason: a path, or any frame that Arrow can take
    *,
    format: Format | None = None,  # noqa: A002 # reason: the command's own word for it
    map: LogMap | None = None,  # noqa: A002 # reason: the command's own word for it
    time_column: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Log:
    """Read a log whole; the parameters are those of `stream_log`.

    Raises `InputError` when the source is missing, empty, unreadable, or no line of it parses.
    """
    stream = stream_log(source, format=format, map=map, time_column=time_column, progress=progress)
    batch = LogBatch.joined(list(stream.batches()))
    fields = {
        target: Field(batch.codes[target], tuple(names)) for target, names in stream.names.items()
    }
    if "key" in fields and not stream.says_keys and not (fields["key"].codes >= 0).any():
        del fields["key"]
    return Log(
        stream.name,
        stream.format,
        batch.t_ns,
        batch.line,
        fields,
        stream.unparsed,
        stream.unparsed_first,
    )
