"""The limiter over arrays: the same rules, algorithms and decisions, compiled.

`CompiledLimiter` takes columns and gives columns; a compiled simulation calls `decide` of
`engine.limits.compiled.composition` one request at a time. What is counted where comes from the
engine's own `Legs`, how it is counted from `engine.limits.algorithms`, taken as they stand; only
layout and loop are here. Tests hold it equal to `Limiter`, decision for decision.

Importing this package imports numba; nothing else in the engine does.
"""

from engine.limits.compiled.limiter import Columns, CompiledLimiter, Decided

__all__ = ["Columns", "CompiledLimiter", "Decided"]
