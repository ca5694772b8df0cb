"""The conformance harness: is a live deployment what the specification says?

import conformance
report = conformance.run("target.toml")     # inside a notebook's running loop too
report.clauses                              # a frame, a row a clause
"""

from conformance.preflight import Unreachable
from conformance.report import Report
from conformance.running import run
from conformance.target import Target
from conformance.verdicts import Finding, Verdict

__all__ = ["Finding", "Report", "Target", "Unreachable", "Verdict", "run"]
