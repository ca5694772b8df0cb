"""Scenarios: the input of a simulation, in TOML, and the built-in ones.

`load` reads a file or a built-in scenario, `dump` writes a whole scenario, `with_value` changes one
value for sweeps. `limits_of`, `limit_tables_of` and `profile_of` combine files and changes. The
dataclasses are in `simulator.scenario.model`, `.clients` and `.draws`; their docstrings define the
behaviour, and `simulator.play` implements it.
"""

from typing import TYPE_CHECKING

from engine.on_demand import on_demand

if TYPE_CHECKING:
    from simulator.scenario.clients import AimdPacing as AimdPacing
    from simulator.scenario.clients import Ask as Ask
    from simulator.scenario.clients import ClientGroup as ClientGroup
    from simulator.scenario.clients import Dealing as Dealing
    from simulator.scenario.clients import DecorrelatedJitter as DecorrelatedJitter
    from simulator.scenario.clients import ExponentialRetry as ExponentialRetry
    from simulator.scenario.clients import FixedRetry as FixedRetry
    from simulator.scenario.clients import FullJitter as FullJitter
    from simulator.scenario.clients import NoRetry as NoRetry
    from simulator.scenario.clients import Pacing as Pacing
    from simulator.scenario.clients import Retry as Retry
    from simulator.scenario.clients import TokenBucketPacing as TokenBucketPacing
    from simulator.scenario.clients import TypeWeights as TypeWeights
    from simulator.scenario.conditions import LABELS as LABELS
    from simulator.scenario.conditions import METRICS as METRICS
    from simulator.scenario.conditions import Condition as Condition
    from simulator.scenario.conditions import parse_condition as parse_condition
    from simulator.scenario.draws import Arrivals as Arrivals
    from simulator.scenario.draws import Constant as Constant
    from simulator.scenario.draws import ConstantArrivals as ConstantArrivals
    from simulator.scenario.draws import DailyArrivals as DailyArrivals
    from simulator.scenario.draws import Discrete as Discrete
    from simulator.scenario.draws import Draw as Draw
    from simulator.scenario.draws import Exponential as Exponential
    from simulator.scenario.draws import Lognormal as Lognormal
    from simulator.scenario.draws import OnOffArrivals as OnOffArrivals
    from simulator.scenario.draws import Pareto as Pareto
    from simulator.scenario.draws import PoissonArrivals as PoissonArrivals
    from simulator.scenario.draws import RampArrivals as RampArrivals
    from simulator.scenario.draws import ReplayArrivals as ReplayArrivals
    from simulator.scenario.draws import Step as Step
    from simulator.scenario.draws import StepArrivals as StepArrivals
    from simulator.scenario.draws import Uniform as Uniform
    from simulator.scenario.files import builtin as builtin
    from simulator.scenario.files import dump as dump
    from simulator.scenario.files import is_toml as is_toml
    from simulator.scenario.files import load as load
    from simulator.scenario.files import loads as loads
    from simulator.scenario.files import schema as schema
    from simulator.scenario.files import starter as starter
    from simulator.scenario.files import value_of as value_of
    from simulator.scenario.files import with_value as with_value
    from simulator.scenario.files import with_values as with_values
    from simulator.scenario.model import AddressPool as AddressPool
    from simulator.scenario.model import Application as Application
    from simulator.scenario.model import Grant as Grant
    from simulator.scenario.model import Nodes as Nodes
    from simulator.scenario.model import Proxy as Proxy
    from simulator.scenario.model import Quotas as Quotas
    from simulator.scenario.model import Reactor as Reactor
    from simulator.scenario.model import RuleChange as RuleChange
    from simulator.scenario.model import Scenario as Scenario
    from simulator.scenario.model import Tenant as Tenant
    from simulator.scenario.model import Threshold as Threshold
    from simulator.scenario.model import limit_tables_of as limit_tables_of
    from simulator.scenario.model import limits_of as limits_of
    from simulator.scenario.model import profile_of as profile_of

__getattr__, __dir__, __all__ = on_demand(__name__)
