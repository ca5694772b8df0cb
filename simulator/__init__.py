"""The traffic simulator: scenarios and real logs through the limits, in virtual time.

    result = simulator.run("everyday", seed=7)
    result.requests, result.summary, result.metrics(by="clause"), result.save("runs/mine")

A scenario is a TOML file, its text, a built-in name or a `Scenario`; `replay` takes an access log.
`capacity` finds the largest value that meets a condition, `compare` says what differs between two
runs, `coverage` triggers every limit once, `sweep` plays many values. `with_value` changes a
scenario, and `interval_of` says what the values of several runs tell about their mean. `trace`
puts single requests through the limits alone, and `strip` draws it.

Names are imported lazily, on first use, so that a command loads only what it needs.
"""

from typing import TYPE_CHECKING, Final

from engine.on_demand import on_demand

if TYPE_CHECKING:
    from simulator.intervals import Interval, interval_of
    from simulator.rows import Result
    from simulator.scenario import Scenario, load, with_value
    from simulator.study.advise import Advice, advise
    from simulator.study.capacity import Capacity, capacity
    from simulator.study.comparison import Comparison, compare
    from simulator.study.coverage import CoverageLine, coverage
    from simulator.study.explorer import explore
    from simulator.study.policies import Policies, policies
    from simulator.study.replay import replay
    from simulator.study.runs import run
    from simulator.study.sweep import load_sweep, sweep
    from simulator.traces import caller, decide, refused, spans, strip, trace

__all__ = [
    "Advice",
    "Capacity",
    "Comparison",
    "CoverageLine",
    "Interval",
    "Policies",
    "Result",
    "Scenario",
    "advise",
    "caller",
    "capacity",
    "compare",
    "coverage",
    "decide",
    "explore",
    "interval_of",
    "load",
    "load_sweep",
    "policies",
    "refused",
    "replay",
    "run",
    "spans",
    "strip",
    "sweep",
    "trace",
    "with_value",
]

_HOMES: Final = {
    "Advice": "simulator.study.advise",
    "Capacity": "simulator.study.capacity",
    "Comparison": "simulator.study.comparison",
    "CoverageLine": "simulator.study.coverage",
    "Interval": "simulator.intervals",
    "Policies": "simulator.study.policies",
    "Result": "simulator.rows",
    "Scenario": "simulator.scenario",
    "advise": "simulator.study.advise",
    "caller": "simulator.traces",
    "capacity": "simulator.study.capacity",
    "compare": "simulator.study.comparison",
    "coverage": "simulator.study.coverage",
    "decide": "simulator.traces",
    "explore": "simulator.study.explorer",
    "interval_of": "simulator.intervals",
    "load": "simulator.scenario",
    "load_sweep": "simulator.study.sweep",
    "policies": "simulator.study.policies",
    "refused": "simulator.traces",
    "replay": "simulator.study.replay",
    "run": "simulator.study.runs",
    "spans": "simulator.traces",
    "strip": "simulator.traces",
    "sweep": "simulator.study.sweep",
    "trace": "simulator.traces",
    "with_value": "simulator.scenario",
}

__getattr__, __dir__ = on_demand(__name__, _HOMES)
