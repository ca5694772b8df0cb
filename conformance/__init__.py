"""The conformance harness: is a live deployment what the specification says?

    report = conformance.run("target.toml")     # inside a notebook's running loop too
    report.clauses                              # a frame, a row a clause

Each name is imported when it is first asked for: every pytest of an environment imports this
package for its plugin, and that must cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.on_demand import on_demand

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

__getattr__, __dir__ = on_demand(__name__, _HOMES)
