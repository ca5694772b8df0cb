"""Known-bad deployments, and the self-test that shows that the suite catches each of them.

`registry` defines a fault. `bodies`, `records`, `access` and `limits` hold faults by the part of
the specification that they break. `trial` runs the checks on one fault, `selftest` on all.
"""

from conformance.faults.registry import Fault, all_faults, fault_of

__all__ = ["Fault", "all_faults", "fault_of"]
