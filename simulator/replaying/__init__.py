"""Replay of real logs through the limits: who would have been refused, when, by which clause.

    result = simulator.replay("access.log", as_kind="public", speed="1000")
    result.summary["replay"], result.clauses, result.metrics(by="ip")

The way: `simulator.traffic.logs` reads a source into columns; `make_arrivals` orders and scales
them and puts labels in the place of key texts; `decide` turns columns into columns of decisions;
`replay` does all of it and writes the result. `simulator.replaying.cli` is the command.
"""

from simulator.replaying._arrivals import Arrivals, Party, make_arrivals, read_speed
from simulator.replaying._comparing import compare_decisions
from simulator.replaying._deciding import Decisions, Fidelity, decide, limit_subject
from simulator.replaying._replay import DEFAULT_KIND, replay

__all__ = [
    "DEFAULT_KIND",
    "Arrivals",
    "Decisions",
    "Fidelity",
    "Party",
    "compare_decisions",
    "decide",
    "limit_subject",
    "make_arrivals",
    "read_speed",
    "replay",
]
