"""Run folders: written beside their final place and then moved, so that none is half-written.

The caller writes the content.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from engine.errors import InputError

__all__ = ["check_out", "out_folder"]


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
    parent = out if out.is_dir() else _nearest_folder(out)
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


def _nearest_folder(path: Path) -> Path:
    parent = path.absolute().parent
    while not parent.exists():
        parent = parent.parent
    return parent
