"""The folder of a sweep: a Parquet dataset partitioned by point, one file a run, and what it is.

A file appears whole (it is written beside its place and moved), so what is there is done; a sweep
that goes on plays what is missing. `_sweep.json` says which sweep it is, so that another one is not
mixed in.
"""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from engine.errors import InputError
from simulator.arguments import FOLDER, takes
from simulator.study.replications import NONE_IS_0

__all__ = ["SPEC_FILE", "done_runs", "load_sweep", "open_folder", "write_row"]

SPEC_FILE: Final = "_sweep.json"
"""Readers of Parquet datasets pass over what begins with `_`."""


def open_folder(folder: Path, spec: dict[str, Any]) -> None:
    """Make a sweep's folder, or go on with one that holds the same sweep.

    Raises `InputError` where it holds another sweep or something else, or cannot be written.
    """
    text = json.dumps(spec, indent=2, ensure_ascii=False) + "\n"
    known = folder / SPEC_FILE
    try:
        if known.is_file():
            if known.read_text("utf-8") != text:
                raise InputError(
                    f"--out = {folder} must hold this sweep or nothing; it holds another, "
                    "choose another folder"
                )
            return
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"--out = {folder} must be an empty folder or a sweep's; choose one")
        folder.mkdir(parents=True, exist_ok=True)
        known.write_text(text, "utf-8")
    except OSError as fault:
        raise InputError(
            f"--out = {folder} must be a folder that can be written; {fault.strerror}"
        ) from None


def done_runs(folder: Path) -> set[tuple[int, int]]:
    """Return (point, replication) of the runs that came to an end well."""
    return {
        (int(path.parent.name.partition("=")[2]), int(path.stem.removeprefix("run-")))
        for path in folder.glob("point=*/run-*.parquet")
    }


def write_row(folder: Path, row: dict[str, Any]) -> None:
    """Write one run's row; a failed one under a name of its own, so that it is tried again."""
    place = folder / f"point={row['point']:06d}"
    place.mkdir(exist_ok=True)
    stem = f"{'run' if row['status'] == 'ok' else 'failed'}-{row['replication']:06d}"
    partial = place / f".{stem}.{secrets.token_hex(4)}.partial"
    kept = {name: value for name, value in row.items() if name != "point"}
    pq.write_table(pa.Table.from_pylist([kept]), partial, compression="zstd")
    partial.replace(place / f"{stem}.parquet")
    if row["status"] == "ok":
        (place / f"failed-{row['replication']:06d}.parquet").unlink(missing_ok=True)


@takes(folder=FOLDER)
def load_sweep(folder: str | Path) -> pd.DataFrame:
    """Return a sweep as a frame, a row a run in order of point and replication.

    Columns: what was set, by its path; `point`, `replication`, `seed`, `fidelity`, `status` (`ok`
    or `failed`), `error`, `sha256`, `scenario` (the resolved TOML), and a metric a column,
    durations in nanoseconds. Raises `InputError` for a folder that holds no sweep.
    """
    folder = Path(folder)
    if not (folder / SPEC_FILE).is_file():
        raise InputError(f"folder = {folder} must be a sweep's folder; it has no {SPEC_FILE}")
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("point=*/*.parquet")):
        point = int(path.parent.name.partition("=")[2])
        row = pq.ParquetFile(path).read().to_pylist()[0]
        rows.append({**json.loads(row.pop("values")), "point": point, **row})
    frame = pd.DataFrame(rows)
    if not len(frame):
        return frame
    for name in frame.columns:
        if str(name).startswith(NONE_IS_0):
            frame.loc[frame["status"] == "ok", name] = frame[name].fillna(0.0)
    order = frame.sort_values(["point", "replication"], kind="stable")
    return order.reset_index(drop=True)
