"""Replay of real logs through the limits: who would have been refused, when, by which clause.

    result = simulator.replay("access.log", as_kind="public", speed="1000")
    result.summary["replay"], result.clauses, result.metrics(by="ip")

The way: `simulator.traffic.logs` reads a source batch by batch; `make_arrivals` orders and scales
the requests and puts labels in the place of key texts; `decide` turns blocks of them into blocks of
decisions; `replay` does all of it and writes the result. `simulator.replaying.cli` is the command.
"""

from simulator.replaying._arrivals import Arrivals, Block, make_arrivals, read_speed
from simulator.replaying._comparing import Comparison
from simulator.replaying._deciding import Decisions, Fidelity, decide, limit_subject
from simulator.replaying._parties import Party
from simulator.replaying._replay import DEFAULT_KIND, replay

__all__ = [
    "DEFAULT_KIND",
    "Arrivals",
    "Block",
    "Comparison",
    "Decisions",
    "Fidelity",
    "Party",
    "decide",
    "limit_subject",
    "make_arrivals",
    "read_speed",
    "replay",
]
