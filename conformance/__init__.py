"""The conformance harness: is a live deployment what the specification says?

    report = conformance.run("target.toml")     # inside a notebook's running loop too
    report.clauses                              # a data frame, one row per clause

`deploy` creates a deployment in this process, to try the suite on. `fault_of` and `all_faults`
return known-bad deployments. `replay` repeats the checks that failed.

Each name is imported on first use: every pytest run in the environment imports this package for its
plugin, so the import must be cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.on_demand import on_demand

if TYPE_CHECKING:
    from conformance.context.verdicts import Finding as Finding
    from conformance.context.verdicts import Verdict as Verdict
    from conformance.faults import Fault as Fault
    from conformance.faults import all_faults as all_faults
    from conformance.faults import fault_of as fault_of
    from conformance.report import Report as Report
    from conformance.runner.preflight import Unreachable as Unreachable
    from conformance.runner.runner import replay as replay
    from conformance.runner.runner import run as run
    from conformance.target import Target as Target
    from conformance.wire.in_process import Deployment as Deployment
    from conformance.wire.in_process import deploy as deploy

    __version__: str

__getattr__, __dir__, __all__ = on_demand(__name__)
