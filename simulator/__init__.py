"""The traffic simulator: scenarios and real logs through the limits, in virtual time.

    result = simulator.run("everyday", seed=7)
    result.requests, result.summary, result.metrics(by="clause"), result.save("runs/mine")

A scenario is a TOML file, a built-in name or a `Scenario`; `replay` takes an access log.
"""

from simulator.replaying import replay
from simulator.results import Result
from simulator.running import run
from simulator.scenario import Scenario, load

__all__ = ["Result", "Scenario", "load", "replay", "run"]
