"""A log read whole, so that a test can look at all of its lines at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from simulator.logs import LogBatch, LogStream, stream_log


@dataclass(frozen=True, slots=True)
class Field:
    """One column: `names[codes[i]]` is row i's value; the code -1 means absent."""

    codes: npt.NDArray[np.int32]
    names: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Log:
    """A read log, in the order of its lines."""

    name: str
    format: str
    t_ns: npt.NDArray[np.int64]
    line: npt.NDArray[np.int64]
    fields: Mapping[str, Field]
    unparsed: int
    unparsed_first: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.t_ns)


def read_log(source: Any, **told: Any) -> Log:
    """Read a log to its end; the parameters are those of `stream_log`."""
    stream = stream_log(source, **told)
    batch = read_all(stream)
    fields = {
        target: Field(batch.codes[target], tuple(names)) for target, names in stream.names.items()
    }
    if "key" in fields and not stream.has_key_field and not (fields["key"].codes >= 0).any():
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


def read_all(stream: LogStream) -> LogBatch:
    """Return all requests of a log."""
    batches = list(stream.batches())
    return LogBatch(
        np.concatenate([batch.t_ns for batch in batches]),
        np.concatenate([batch.line for batch in batches]),
        {name: np.concatenate([b.codes[name] for b in batches]) for name in batches[0].codes},
    )
