"""The limiter over arrays: the same rules, algorithms and decisions, compiled.

`CompiledLimiter` takes columns and gives columns; a compiled simulation calls `decide` of
`engine.limits.compiled.composition` one request at a time. What is counted where comes from the
engine's own `RuleSet`, how it is counted from `engine.limits.compiled.algorithms`; only layout and
loop are here. Tests hold it equal to `Limiter`, decision for decision.

The limiter is imported on first use, and numba with it; nothing else in the engine imports numba.
"""

from typing import TYPE_CHECKING

from engine.on_demand import on_demand

if TYPE_CHECKING:
    from engine.limits.compiled.limiter import Columns as Columns
    from engine.limits.compiled.limiter import CompiledLimiter as CompiledLimiter
    from engine.limits.compiled.limiter import Decided as Decided

__getattr__, __dir__, __all__ = on_demand(__name__)
