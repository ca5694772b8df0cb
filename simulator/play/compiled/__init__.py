"""The compiled fidelity: the limits' decisions and the clients' loops over arrays.

`simulate_compiled` plays what needs no bodies; its rows are those of the `limits` fidelity, bit for
bit. Importing this package imports numba.
"""

from simulator.play.compiled.run import (
    CompiledRun,
    Template,
    simulate_compiled,
    template_of,
    warm_up,
    write_rows,
)

__all__ = [
    "CompiledRun",
    "Template",
    "simulate_compiled",
    "template_of",
    "warm_up",
    "write_rows",
]
