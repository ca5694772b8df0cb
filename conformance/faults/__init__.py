"""Known-bad deployments, and the self-test that shows that the suite catches each of them.

`registry` says what a fault is. `bodies`, `records`, `access` and `limits` hold faults by the part
of the specification that they break, `further` what wrong services were seen to do. `trial` runs
the checks on one of them, `selftest` on all.
"""

from conformance.faults.registry import Fault, all_faults, fault_of

__all__ = ["Fault", "all_faults", "fault_of"]
