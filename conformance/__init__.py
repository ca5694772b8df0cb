"""The conformance harness: is a live deployment what the specification says?

report = conformance.run("target.toml")     # inside a notebook's running loop too
report.clauses                              # a frame, a row a clause
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from conformance.preflight import Unreachable
    from conformance.report import Report
    from conformance.running import run
    from conformance.target import Target
    from conformance.verdicts import Finding, Verdict

__all__ = ["Finding", "Report", "Target", "Unreachable", "Verdict", "run"]

_HOMES: Final = {
    "Finding": "conformance.verdicts",
    "Report": "conformance.report",
    "Target": "conformance.target",
    "Unreachable": "conformance.preflight",
    "Verdict": "conformance.verdicts",
    "run": "conformance.running",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 # reason: any public name
    """Import a public name when it is first asked for.

    Every pytest of an environment imports this package for its plugin; that must cost nothing.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
