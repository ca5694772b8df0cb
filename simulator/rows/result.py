"""The result of a run: its rows, summary and metrics, and the folder that holds them.

A folder is written beside its final place and then moved, so that none is half-written.

`measure` returns one metric, narrowed by labels: what conditions and searches ask for. The metrics
and labels are listed in `simulator.scenario.conditions`; their values are columns of
`simulator.rows.metrics`. `client` takes a client group's name, or one client's number. `clause`
and `rule` narrow what was refused, delayed and blocked to what that rule reported; what was offered
stays whole, so `refused_share{clause='LIM-READ'}` is the share that LIM-READ refused.
"""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from engine.command_line import schema_line
from engine.errors import InputError, did_you_mean
from engine.files import span_text
from simulator.arguments import (
    DURATION,
    FLAG,
    FOLDER,
    ArgumentRule,
    is_number,
    one_of,
    optional,
    takes,
)
from simulator.intervals import Interval, Share
from simulator.rows.findings import Findings, gather
from simulator.rows.invariants import Violation
from simulator.rows.metrics import (
    BINS,
    BY,
    COUNTS,
    EXACT_ROWS,
    NEEDS,
    SUMS,
    WHERE,
    Line,
    RunLength,
    WarmUp,
    column_of,
    frame_of,
    lines_of,
    round_ns,
    run_length_of,
    warm_up_of,
)
from simulator.rows.parquet import (
    COLUMNS,
    REQUESTS_FILE,
    choose_columns,
    open_file,
    refuse_missing,
    schema_of,
)
from simulator.scenario.conditions import METRICS, Condition

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from simulator.scenario import Scenario
    from simulator.views.charts import Plots


def check_out(out: Path, *, force: bool) -> None:
    """Raise `InputError` where `out` cannot be a run's folder; changes nothing that stays.

    A folder that holds something is refused unless `force`; so is a file, and a place that
    cannot be written to.
    """
    if out.is_dir():
        if any(out.iterdir()) and not force:
            raise InputError(f"--out = {out} must be an empty folder; add --force to replace it")
    elif out.exists():
        raise InputError(f"--out = {out} must be a folder; it is a file")
    parent = out if out.is_dir() else next(p for p in out.absolute().parents if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(
            f"--out = {out} must be a folder that can be written; {parent} is not, choose another"
        )


@contextmanager
def out_folder(out: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield an empty folder that becomes `out` when the block succeeds; else it is removed.

    With `force` the files of an earlier run are replaced one by one; other files in `out` stay.
    Raises `InputError` as `check_out` does.
    """
    check_out(out, force=force)
    partial = out.parent / f".{out.name}.{secrets.token_hex(4)}.partial"
    new_parents = [parent for parent in partial.parents if not parent.exists()]
    try:
        partial.mkdir(parents=True)
    except OSError as fault:
        _remove_empty(new_parents)
        raise InputError(
            f"--out = {out} must be a folder that can be written; {fault.strerror}"
        ) from None
    try:
        yield partial
        if out.is_dir():
            for item in sorted(partial.iterdir()):
                _replace(item, out / item.name)
            partial.rmdir()
        else:
            partial.rename(out)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        _remove_empty(new_parents)
        raise


def _replace(new: Path, old: Path) -> None:
    if old.is_dir() and not old.is_symlink():
        shutil.rmtree(old)
    new.replace(old)


def _remove_empty(folders: Iterable[Path]) -> None:
    """Remove folders, innermost first, that are there and empty."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


Keep: TypeAlias = Literal["rows", "subjects", "totals"]
"""What a run keeps: its rows with their digest; the counts of each subject, of which the summary's
groups and shares are made; or the summary's totals alone."""

SUMMARY_FILE: Final = "summary.json"
SUMMARY_FORMAT: Final = 2
"""Rises where a part that a reader here uses is added, goes or changes its meaning: a reader takes
this format alone. Parts that no reader here needs are added without."""
RESOLVED_FILE: Final = "scenario.resolved.toml"
_INTERVAL_COLUMNS: Final = list(Interval._fields)
_BATCH_ROWS: Final = 1 << 17
_MOST_BINS: Final = 1_000_000
_SERIES: Final = one_of([name for name in METRICS if name != "first_refusal"])
_HALF_WIDTH: Final = ArgumentRule(
    "a number above 0, half the width of an interval",
    lambda value: is_number(value) and 0 < value < float("inf"),
    float,
)


@contextlib.contextmanager
def _readable(file: Path) -> Iterator[None]:
    """Raise `InputError` naming the file where Arrow cannot read it."""
    try:
        yield
    except (pa.ArrowException, OSError):
        raise InputError(f"{file} must be a run's rows; it is no readable Parquet") from None


class Result:
    """A run's result.

    summary: what `summary.json` holds. violations: broken invariants, none in a sound run.
    check_s: seconds of wall clock that the checkers took; in no file.

    The rows are in memory (`simulator.run` without a folder) or in the run's folder. A file may
    keep fewer columns than a run has: `columns` says which, and whatever needs another raises
    `InputError`.
    """

    def __init__(
        self,
        summary: dict[str, Any],
        *,
        table: pa.Table | None = None,
        folder: Path | None = None,
        violations: tuple[Violation, ...] = (),
        check_s: float = 0.0,
    ) -> None:
        self.summary = summary
        self.violations = violations
        self.check_s = check_s
        self.scenario_text: str | None = None
        self.folder = folder
        self._table = table
        self._findings: dict[int, Findings] = {}

    @classmethod
    @takes(folder=FOLDER)
    def load(cls, folder: str | Path) -> Result:
        """Return the result that a run's folder holds. Raises `InputError` when it holds none."""
        folder = Path(folder)
        try:
            summary = json.loads((folder / SUMMARY_FILE).read_text("utf-8"))
        except (OSError, ValueError, RecursionError):
            summary = None
        if not isinstance(summary, dict) or "format" not in summary:
            raise InputError(
                f"folder = {folder} must be a run's folder; it has no readable {SUMMARY_FILE}"
            )
        if summary["format"] != SUMMARY_FORMAT:
            raise InputError(
                f"folder = {folder} must be a run's folder of format {SUMMARY_FORMAT}; its"
                f" {SUMMARY_FILE} has format {summary['format']}, of another version: run it again"
            )
        result = cls(summary, folder=folder)
        resolved = folder / RESOLVED_FILE
        if resolved.is_file():
            result.scenario_text = resolved.read_text("utf-8", errors="replace")
        return result

    # --- rows and numbers ------------------------------------------------------------------------

    @property
    def table(self) -> pa.Table:
        """The attempt rows as an Arrow table, in decision order."""
        if self._table is None:
            assert self.folder is not None, "rows are in memory or in a folder"
            file = self.folder / REQUESTS_FILE
            with _readable(file):
                self._table = pq.read_table(file, page_checksum_verification=True)
        return self._table

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the attempt rows have here, in order."""
        if self._table is not None:
            return tuple(self._table.column_names)
        assert self.folder is not None, "rows are in memory or in a folder"
        file = self.folder / REQUESTS_FILE
        with _readable(file):
            return tuple(pq.read_schema(file).names)

    @property
    def requests(self) -> pd.DataFrame:
        """The attempt rows as a frame, in decision order."""
        frame: pd.DataFrame = self.table.to_pandas()
        return frame

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the attempt rows in batches, from the file where they are not in memory."""
        return self._batches(self.columns)

    def findings(self, bins: int = BINS) -> Findings:
        """Return what the rows say, over time in at most so many bins; they are counted once."""
        if bins not in self._findings:
            self._findings[bins] = gather(self.batches(), self.summary, bins=bins)
        return self._findings[bins]

    @property
    def groups(self) -> dict[str, range]:
        """Client group → the numbers of its clients."""
        return {
            group["name"]: range(group["first_client"], group["first_client"] + group["clients"])
            for group in self.summary["groups"]
        }

    @property
    def clauses(self) -> pd.DataFrame:
        """The table by limit clause."""
        import pandas as pd  # noqa: PLC0415 # reason: it loads longer than a small run takes

        frame = pd.DataFrame(self.summary["clauses"]).set_index("clause")
        return frame.astype({"first_refusal_ns": "Int64"})

    @property
    def replications(self) -> pd.DataFrame:
        """A line a metric: mean, its interval over replications, and how that is made.

        Empty for a single run.
        """
        import pandas as pd  # noqa: PLC0415 # reason: it loads longer than a small run takes

        intervals = self.summary.get("replications", {}).get("intervals", {})
        return pd.DataFrame.from_dict(intervals, orient="index", columns=_INTERVAL_COLUMNS)

    @takes(by=BY, bin=optional(DURATION), where=optional(WHERE))
    def metrics(
        self,
        by: str | Sequence[str] = (),
        *,
        bin: str | int | None = None,  # noqa: A002 # reason: what an analyst calls it
        where: Mapping[str, str | int] | None = None,
    ) -> pd.DataFrame:
        """Return metrics, a line a group; `by` is one dimension or several.

        Dimensions: client, group, tenant, application, key, ip, method, path, clause, rule, time.
        bin: width of a bin for `time`, in ns or as a text such as `"10s"`. where: dimension → the
        value that rows must have.
        Columns: `simulator.rows.metrics.lines_of`. Rows of the warm-up are left out.

        A metric is NaN where a column that it is made of is not among `columns`.

        Raises `InputError` for an unknown dimension, and for one whose column is not kept.
        """
        assert not isinstance(bin, str), "a text was read already"
        if bin is not None and "time" not in (*by, *(where or ())):
            raise InputError(f"bin = {bin} ns must go with by = 'time'; add that, or leave it out")
        lines = self._metrics(by, bin, where, self.columns, self.summary["warm_up_ns"])
        return frame_of(lines, by)

    def line(self, where: Mapping[str, str | int] | None = None) -> Line | None:
        """Return what `metrics` has in its one line; None where no row is left."""
        columns, start_ns = self.columns, self.summary["warm_up_ns"]
        return next(iter(self._metrics((), None, where, columns, start_ns).values()), None)

    @takes(metric=_SERIES, bin=optional(DURATION), where=optional(WHERE))
    def warm_up(
        self,
        metric: str = "refused_share",
        *,
        bin: str | int | None = None,  # noqa: A002 # reason: what an analyst calls it
        where: Mapping[str, str | int] | None = None,
    ) -> WarmUp:
        """Return the warm-up that MSER-5 suggests for a metric, with the metric's series.

        bin: width of a bin of the series, in ns or as a text; 180 bins at most unless given.
        where: dimension → the value that rows must have, as in `metrics`.

        >>> import simulator
        >>> result = simulator.run("management-loop", fidelity="limits")
        >>> found = result.warm_up("offered")
        >>> found.given_ns, len(found.series) > 50
        (0, True)
        """
        assert not isinstance(bin, str), "a text was read already"
        end_ns = self.summary["duration_ns"]
        bin_ns = round_ns(max(1, -(-end_ns // BINS))) if bin is None else bin
        if bin_ns < 1:
            raise InputError(f"bin = {bin_ns} ns must be above 0; take a wider one")
        if end_ns > bin_ns * _MOST_BINS:
            raise InputError(f"bin = {bin_ns} ns must make at most {_MOST_BINS} bins; take more")
        column = METRICS[metric].column
        asked = {"t_ns", *NEEDS[column], *map(column_of, where or ())}
        refuse_missing(f"warm_up of {metric}", ("t_ns", *NEEDS[column]), self.columns)
        columns = [name for name in self.columns if name in asked]
        lines = self._metrics(["time"], bin_ns, where, columns, 0)
        values = {at_ns: line[column] for (at_ns,), line in lines.items()}
        absent = 0.0 if metric in COUNTS else float("nan")
        return warm_up_of(
            metric,
            [values.get(at_ns, absent) for at_ns in range(0, end_ns, bin_ns)],
            bin_ns=bin_ns,
            end_ns=end_ns,
            given_ns=self.summary["warm_up_ns"],
        )

    @takes(half_width=_HALF_WIDTH, metric=_SERIES, bin=optional(DURATION))
    def run_length(
        self,
        half_width: float,
        metric: str = "refused_share",
        *,
        bin: str | int | None = None,  # noqa: A002 # reason: what an analyst calls it
    ) -> RunLength:
        """Return how long a run, or how many replications, would give an interval's half-width.

        bin: as in `warm_up`, whose suggestion is left out.
        """
        runs = self.summary.get("replications", {}).get("runs", [])
        lines = [run["line"].get(metric) for run in runs]
        return run_length_of(
            self.warm_up(metric, bin=bin),
            half_width,
            end_ns=self.summary["duration_ns"],
            of_runs=[line for line in lines if line is not None],
        )

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield some columns of the rows, from the file where they are not in memory."""
        if self._table is not None:
            yield from self._table.select(columns).to_batches(max_chunksize=_BATCH_ROWS)
            return
        assert self.folder is not None, "rows are in memory or in a folder"
        # Whatever is buffered ahead stays in memory until the whole file is read.
        path = self.folder / REQUESTS_FILE
        with (
            _readable(path),
            pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True) as file,
        ):
            yield from file.iter_batches(_BATCH_ROWS, columns=list(columns))

    def _metrics(
        self,
        by: Sequence[str],
        bin_ns: int | None,
        where: Mapping[str, str | int] | None,
        columns: Sequence[str],
        start_ns: int,
    ) -> dict[tuple[Any, ...], Line]:
        return lines_of(
            self._batches(columns),
            by,
            end_ns=self.summary["duration_ns"],
            start_ns=start_ns,
            bin_ns=bin_ns,
            groups=self.groups,
            where=where,
            counters=self.summary.get("counters"),
            exact=self.summary["rows"] <= EXACT_ROWS,
        )

    @property
    def plots(self) -> Plots:
        """Altair charts: `plots.timeline()`, `shut_out`, `clauses`, `waits`, `latencies`."""
        from simulator.views.charts import Plots  # noqa: PLC0415 # reason: charts load where drawn

        return Plots(self)

    # --- keeping -----------------------------------------------------------------------------

    def write_to(self, folder: Path, columns: Sequence[str] | None = None) -> None:
        """Write the result's files and its page into a folder; rows that are there stay.

        columns: those of `self.columns` that the file keeps, all of them unless given.
        """
        from simulator.views.report import write_report  # noqa: PLC0415 # reason: charts load only where a page is written

        file = folder / REQUESTS_FILE
        if not file.exists():
            written = self.columns if columns is None else columns
            with open_file(file, schema_of(written)) as writer:
                for batch in self._batches(written):
                    writer.write_batch(batch)
        summary = self.summary if columns is None else {**self.summary, "columns": list(columns)}
        text = json.dumps(summary, indent=2, ensure_ascii=False)
        (folder / SUMMARY_FILE).write_text(text + "\n", "utf-8")
        if self.scenario_text is not None:
            text = self.scenario_text
            if not text.startswith("#:schema "):  # as that of a loaded result does
                text = schema_line("simulator.scenario", "scenario.schema.json") + text
            (folder / RESOLVED_FILE).write_text(text, "utf-8")
        write_report(folder, self.findings() if columns is None else None)

    @takes(folder=FOLDER, columns=COLUMNS, force=FLAG)
    def save(
        self,
        folder: str | Path,
        *,
        columns: str | Sequence[str] | None = None,
        force: bool = False,
    ) -> Path:
        """Write `requests.parquet`, `summary.json`, `report.html` and the resolved scenario.

        columns: those that the file keeps, as names or a text with commas; `decisions` stands for
            t_ns, key, outcome, rule and wait_ns. All that are here unless given.

        Raises `InputError` for a folder that holds something (unless `force`) or cannot be written,
        and for a column that is not here.
        """
        folder = Path(folder)
        chosen = choose_columns(columns)
        if chosen is not None:
            refuse_missing(f"columns = {','.join(chosen)}", chosen, self.columns)
        with out_folder(folder, force=force) as partial:
            self.write_to(partial, chosen)
        return folder

    # --- looking -----------------------------------------------------------------------------

    def __repr__(self) -> str:
        totals = self.summary["totals"]
        return (
            f"<Result {self.summary['scenario']} seed={self.summary['seed']} "
            f"offered={totals['offered']} refused={totals['refused']}>"
        )

    def __rich__(self) -> Table:
        """Return the table by limit clause, of those that any request met, for a terminal."""
        from simulator.views.text import plain_table  # noqa: PLC0415 # reason: loads only where it is shown

        table = plain_table(["clause"], _COUNTS)
        for line in self.summary["clauses"]:
            if line["offered"]:
                table.add_row(line["clause"], *_cells(line))
        return table

    def _repr_html_(self) -> str:
        from simulator.views.text import percent_text  # noqa: PLC0415 # reason: as above

        totals = self.summary["totals"]
        met = self.clauses[self.clauses["offered"] > 0]
        name = html.escape(str(self.summary["scenario"]))
        head = (
            f"<b>{name}</b>, seed {self.summary['seed']}, {self.summary['fidelity']}: "
            f"{totals['offered']:,} offered, {totals['refused']:,} refused "
            f"({percent_text(totals['refused_share'])})"
        )
        blocked = met["blocked_ns"].map(lambda ns: span_text(int(ns)) if ns else "–")
        counts = ["offered", "admitted", "refused", "refused_by_others", "delayed"]
        table = met[counts].assign(blocked=blocked, keys=met["keys"], ips=met["ips"])
        names = {
            "refused_by_others": "refused by others",
            "keys": "refused keys",
            "ips": "refused IPs",
        }
        text = table.rename(columns=names).to_html(border=0)
        faults = self.summary["checks"]["faults"]
        tail = f"<p><b>{faults} broken invariants</b></p>" if faults else ""
        return f"<div><p>{head}</p>{text}{tail}</div>"


_COUNTS: Final = (
    *("offered", "admitted", "refused", "refused by others", "delayed", "blocked"),
    *("refused keys", "refused IPs", "first refusal"),
)


def _cells(line: dict[str, Any]) -> list[str]:
    first_ns = line["first_refusal_ns"]
    shadow = f" ({line['shadow_refused']:,} shadow)" if line["shadow_refused"] else ""
    return [
        f"{line['offered']:,}",
        f"{line['admitted']:,}",
        f"{line['refused']:,}{shadow}",
        f"{line['refused_by_others']:,}",
        f"{line['delayed']:,}",
        span_text(line["blocked_ns"]) if line["blocked_ns"] else "–",
        str(line["keys"]),
        str(line["ips"]),
        "–" if first_ns is None else span_text(first_ns),
    ]


_NAN: Final = float("nan")
_CLIENT_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_BY_RULE: Final[tuple[str, ...]] = ("clause", "rule")
_REPORTED: Final = frozenset({"refused", "delayed", "blocked", "blocked_time", "first_refusal"})
_TOTALS: Final = frozenset({"offered", "delayed", "refused", "blocked", "refused_share"})
"""Metrics that the totals of a summary hold, equal to those computed from the rows."""


def measure(result: Result, condition: Condition, *, attempts: int = 1) -> float:
    """Return the value of what a condition is about; a share with its counts (`Share`).

    It is in nanoseconds where it is a duration, and NaN where there is none. attempts: the most
    that a client makes of a request. Raises `InputError` for an unknown client group.
    """
    metric, labels = condition.metric, dict(condition.labels)
    if not labels and metric == "refused_share":
        return share_of(result.summary, attempts=attempts)
    if not labels and metric in _TOTALS:
        return float(result.summary["totals"][metric])
    by_rule = {name: labels.pop(name) for name in _BY_RULE if name in labels}
    where = _where(result, labels)
    narrowed: dict[str, str | int] = {**where, **by_rule}
    if metric == "refused_share":
        groups = result.summary["windows"]["groups"]
        if not by_rule and where.keys() == {"group"} and where["group"] in groups:
            return share_of(result.summary, str(where["group"]), attempts=attempts)
        offered = value_in(result.line(where), "offered")
        refused = value_in(result.line(narrowed), "refused")
        episode = result.summary["windows"]["episode"] * attempts
        return Share([refused], [offered], episode)
    if by_rule and metric in _REPORTED:
        return value_in(result.line(narrowed), metric)
    return value_in(result.line(where), metric)


def share_of(summary: Mapping[str, Any], group: str | None = None, *, attempts: int = 1) -> Share:
    """Return the refused share of a run, or of a client group in it, with its counts.

    attempts: the most that a client makes of a request.
    """
    windows = summary["windows"]
    counts = windows if group is None else windows["groups"][group]
    return Share(counts["refused"], counts["offered"], windows["episode"] * attempts)


def kept_for(scenario: Scenario, conditions: Iterable[Condition]) -> Keep:
    """Return what a run must keep for the values that some conditions are about.

    A share needs the busiest counter, which the counts of subjects tell, as those of a group.
    """
    groups = {(("client", group.name),) for group in scenario.clients}
    keep: Keep = "totals"
    for condition in conditions:
        if condition.metric == "refused_share" and (
            not condition.labels or condition.labels in groups
        ):
            keep = "subjects"
        elif condition.labels or condition.metric not in _TOTALS:
            return "rows"
    return keep


def columns_of(condition: Condition, *, warm_up: bool = False) -> set[str]:
    """Return the columns of the rows that a condition's value is made of.

    warm_up: whether rows are left out by their time.
    """
    needed = set(NEEDS[METRICS[condition.metric].column])
    needed.update(column_of(name) for name, _ in condition.labels)
    return needed | {"t_ns"} if warm_up else needed


def _where(result: Result, labels: Mapping[str, str]) -> dict[str, str | int]:
    where: dict[str, str | int] = {n: value for n, value in labels.items() if n != "client"}
    name = labels.get("client")
    if name is not None:
        if name in result.groups:
            where["group"] = name
        elif _CLIENT_NUMBER.fullmatch(name):
            where["client"] = int(name)
        else:
            raise InputError(
                f"client = {name!r} must be a client group{did_you_mean(name, result.groups)}"
            )
    return where


def value_in(line: Line | None, metric: str) -> float:
    """Return a metric's value in a line; where there is none, a count is 0 and all else NaN."""
    if line is None:
        return 0.0 if metric in SUMS else _NAN
    value = line[METRICS[metric].column]
    return _NAN if value is None else float(value)
