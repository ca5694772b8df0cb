"""The conformance harness: is a live deployment what the specification says?

    report = conformance.run("target.toml")     # inside a notebook's running loop too
    report.clauses                              # a frame, a row a clause

`deploy` makes a deployment in this process, to try the suite on; `fault_of` and `all_faults` are
the known-bad ones; `replay` runs again what failed.

Each name is imported when it is first asked for: every pytest of an environment imports this
package for its plugin, and that must cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from engine.on_demand import on_demand

if TYPE_CHECKING:
    from conformance.faults import Fault, all_faults, fault_of
    from conformance.report import Report
    from conformance.runner.preflight import Unreachable
    from conformance.runner.replay import replay
    from conformance.runner.runner import run
    from conformance.runner.verdicts import Finding, Verdict
    from conformance.target import Target
    from conformance.wire.in_process import Deployment, deploy

__all__ = [
    "Deployment",
    "Fault",
    "Finding",
    "Report",
    "Target",
    "Unreachable",
    "Verdict",
    "all_faults",
    "deploy",
    "fault_of",
    "replay",
    "run",
]

_HOMES: Final = {
    "Deployment": "conformance.wire.in_process",
    "Fault": "conformance.faults",
    "Finding": "conformance.runner.verdicts",
    "Report": "conformance.report",
    "Target": "conformance.target",
    "Unreachable": "conformance.runner.preflight",
    "Verdict": "conformance.runner.verdicts",
    "all_faults": "conformance.faults",
    "deploy": "conformance.wire.in_process",
    "fault_of": "conformance.faults",
    "replay": "conformance.runner.replay",
    "run": "conformance.runner.runner",
}

__getattr__, __dir__ = on_demand(__name__, _HOMES)
