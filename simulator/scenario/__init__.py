"""Scenarios: the input of a simulation, in TOML, and the built-in ones.

`load` reads a file or a built-in scenario, `dump` writes a whole scenario, `with_value` changes one
value for sweeps. `limits_of`, `limit_tables_of` and `profile_of` combine files and changes. The
dataclasses are in `simulator.scenario.model`, `.clients` and `.draws`; their docstrings define the
behaviour, and `simulator.play` implements it.
"""

from typing import TYPE_CHECKING

from engine.on_demand import on_demand

if TYPE_CHECKING:
    from simulator.scenario.conditions import METRICS as METRICS
    from simulator.scenario.conditions import Condition as Condition
    from simulator.scenario.conditions import parse_condition as parse_condition
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
    from simulator.scenario.model import Scenario as Scenario
    from simulator.scenario.model import limit_tables_of as limit_tables_of
    from simulator.scenario.model import limits_of as limits_of
    from simulator.scenario.model import profile_of as profile_of

__getattr__, __dir__, __all__ = on_demand(__name__)
