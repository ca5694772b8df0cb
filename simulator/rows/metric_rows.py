"""A batch of attempt rows as arrays, with any dimension as numbers: what metrics are made of.

It makes no frames: making and grouping frames takes longer than playing a short run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["BatchRows", "Ints"]

Ints = npt.NDArray[np.int64]

_NULL: Final = -1
_MOST: Final = 1 << 62


class BatchRows:
    """Some rows of one batch. `take` gives fewer of them; columns are read where asked for.

    bin_ns: width of a bin of the dimension `time`. groups: client group → client numbers.
    """

    __slots__ = ("_batch", "_bin_ns", "_groups", "_rows")

    def __init__(
        self,
        batch: pa.RecordBatch,
        bin_ns: int | None,
        groups: Mapping[str, range],
        rows: Ints | None = None,
    ) -> None:
        self._batch = batch
        self._bin_ns = bin_ns
        self._groups = groups
        self._rows = rows

    def __len__(self) -> int:
        return self._batch.num_rows if self._rows is None else len(self._rows)

    def take(self, rows: Ints) -> BatchRows:
        """Return the rows at these places among these."""
        kept = rows if self._rows is None else self._rows[rows]
        return BatchRows(self._batch, self._bin_ns, self._groups, kept)

    def ints(self, name: str) -> Ints:
        """Return a column of numbers; null is −1, and so is all of a column that is not kept."""
        if name not in self._batch.schema.names:
            return np.full(len(self), _NULL, dtype=np.int64)
        column = self._batch.column(name)
        if column.null_count:
            column = column.fill_null(_NULL)
        return self._chosen(column.to_numpy(zero_copy_only=False))

    def coded(self, name: str) -> tuple[Ints, list[Any]]:
        """Return a dimension as places in a list of values; null is −1, as in `ints`."""
        if name == "clause":
            codes, rules = self._texts("rule")
            return codes, [rule.partition(".")[0] for rule in rules]
        if name in {"client", "group", "time"}:
            values, codes = np.unique(self._number(name), return_inverse=True)
            if name == "group":
                return values[codes], list(self._groups)
            return codes, values.tolist()
        return self._texts(name)

    def holds(self, name: str, value: str | int) -> npt.NDArray[np.bool_]:
        """Return, row by row, whether a dimension has this value."""
        codes, values = self.coded(name)
        hits = np.array([each == value for each in values] + [False])
        return np.asarray(hits[codes])  # null is −1, the last place

    def split(self, names: Sequence[str], *, nulls: bool) -> Iterator[tuple[Any, BatchRows]]:
        """Yield the rows of each combination of values, with the values; null is NaN.

        nulls: rows with a null in them count too. Without names, all rows under `None`.
        """
        if not names:
            yield None, self
            return
        columns = [self.coded(name) for name in names]
        number = np.zeros(len(self), dtype=np.int64)
        known = np.ones(len(self), dtype=bool)
        size = 1
        for codes, values in columns:
            if size * (len(values) + 1) >= _MOST:
                distinct, number = np.unique(number, return_inverse=True)
                size = len(distinct)
            number = number * (len(values) + 1) + codes + 1
            size *= len(values) + 1
            known &= codes >= 0
        rows = np.arange(len(self)) if nulls else np.flatnonzero(known)
        order = rows[np.argsort(number[rows], kind="stable")]
        for part in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
            if len(part):
                yield (
                    tuple(_value(codes[part[0]], values) for codes, values in columns),
                    (self.take(part)),
                )

    def _number(self, name: str) -> Ints:
        if name == "client":
            return self.ints("client")
        if name == "time":
            return self.ints("t_ns") // (self._bin_ns or 1) * (self._bin_ns or 1)
        top = max((numbers.stop for numbers in self._groups.values()), default=0)
        of_client = np.full(top + 1, _NULL, dtype=np.int64)
        for number, numbers in enumerate(self._groups.values()):
            of_client[numbers.start : numbers.stop] = number
        return of_client[np.minimum(self.ints("client"), top)]

    def _texts(self, name: str) -> tuple[Ints, list[str]]:
        if name not in self._batch.schema.names:
            return np.full(len(self), _NULL, dtype=np.int64), []
        column = self._batch.column(name)
        indices = column.indices
        if indices.null_count:
            indices = indices.fill_null(_NULL)
        return self._chosen(indices.to_numpy(zero_copy_only=False)), column.dictionary.to_pylist()

    def _chosen(self, values: Ints) -> Ints:
        return values if self._rows is None else values[self._rows]


def _value(code: int, values: list[Any]) -> Any:  # noqa: ANN401 # reason: a text, a number or NaN
    return np.nan if code < 0 else values[code]
