"""Places: the line of the target file that a finding points at, for code hosts and scanners."""

from __future__ import annotations

import re
from pathlib import Path

from conformance.report.report import Report
from conformance.runner.results import ClauseResult

__all__ = ["place_of"]


def place_of(report: Report, result: ClauseResult | None = None) -> tuple[str, int]:
    """Return a path, relative where it can be, and a line from 1.

    It is the line that names the clause in `expected_failures`, else that of `base_url`.
    """
    words = report.command
    path = Path(words[4]) if len(words) > 4 else Path("target.toml")
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        lines = []
    wanted = [r"\s*base_url\b"]
    if result is not None and result.is_expected:
        wanted.insert(0, rf'.*"{re.escape(result.clause.id)}"')
    for pattern in wanted:
        for number, line in enumerate(lines, 1):
            if re.match(pattern, line):
                return _relative(path), number
    return _relative(path), 1


def _relative(path: Path) -> str:
    try:
        path = path.resolve().relative_to(Path.cwd())
    except ValueError:
        path = Path(path.name)
    return path.as_posix()
