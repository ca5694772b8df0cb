"""The compiled fidelity: the limits' decisions and the clients' loops over arrays.

`simulate_compiled` plays what `cannot_play` does not name; its rows are those of the `limits`
fidelity, bit for bit. Importing this package imports numba.
"""

from simulator.backends.compiled.backend import (
    CompiledRun,
    Template,
    simulate_compiled,
    template_of,
    warm_up,
    write_rows,
)
from simulator.backends.compiled.planning import cannot_play

__all__ = [
    "CompiledRun",
    "Template",
    "cannot_play",
    "simulate_compiled",
    "template_of",
    "warm_up",
    "write_rows",
]
