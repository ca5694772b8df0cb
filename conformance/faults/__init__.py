"""Known-bad deployments, and the self-test that shows that the suite catches each of them.

`registry` says what a fault is; `bodies`, `creation`, `records`, `access`, `limits`, `quotas` and
`outside` hold them by the part of the specification that they break; `trial` puts one before the
checks, `selftest` all of them.
"""

from conformance.faults.registry import Fault, all_faults, fault_of

__all__ = ["Fault", "all_faults", "fault_of"]
