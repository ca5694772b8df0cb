"""The traffic simulator: scenarios and real logs through the limits, in virtual time.

    result = simulator.run("everyday", seed=7)
    result.requests, result.summary, result.metrics(by="clause"), result.save("runs/mine")

A scenario is a TOML file, its text, a built-in name or a `Scenario`; `replay` takes an access log,
and `fit` makes a scenario of one.
`capacity` finds the largest value that meets a condition, `compare` says what differs between two
runs, `coverage` triggers every limit once, `sweep` plays many values. `with_value` changes a
scenario, and `interval_of` says what the values of several runs tell about their mean. `trace`
puts single requests through the limits alone, `strip` draws it, and `mechanism` draws the
counters beside it.

Names are imported lazily, on first use, so that a command loads only what it needs.
"""

from typing import TYPE_CHECKING

from engine.on_demand import on_demand

if TYPE_CHECKING:
    from simulator.intervals import Interval as Interval
    from simulator.intervals import interval_of as interval_of
    from simulator.rows import Result as Result
    from simulator.scenario import Scenario as Scenario
    from simulator.scenario import load as load
    from simulator.scenario import with_value as with_value
    from simulator.study.advice import Advice as Advice
    from simulator.study.advise import advise as advise
    from simulator.study.capacity import Capacity as Capacity
    from simulator.study.capacity import capacity as capacity
    from simulator.study.comparison import Comparison as Comparison
    from simulator.study.comparison import compare as compare
    from simulator.study.coverage import CoverageLine as CoverageLine
    from simulator.study.coverage import coverage as coverage
    from simulator.study.explorer import explore as explore
    from simulator.study.fit import Fit as Fit
    from simulator.study.fit import fit as fit
    from simulator.study.policies import Policies as Policies
    from simulator.study.policies import policies as policies
    from simulator.study.replay import replay as replay
    from simulator.study.runs import run as run
    from simulator.study.sweep import load_sweep as load_sweep
    from simulator.study.sweep import sweep as sweep
    from simulator.traces import caller as caller
    from simulator.traces import decide as decide
    from simulator.traces import mechanism as mechanism
    from simulator.traces import refused as refused
    from simulator.traces import spans as spans
    from simulator.traces import strip as strip
    from simulator.traces import trace as trace

    __version__: str

__getattr__, __dir__, __all__ = on_demand(__name__)
