"""Distributions and tables for the compiled loop: rows, weights and values."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.backends.compiled import drawing
from simulator.scenario.draws import (
    Constant,
    Discrete,
    Draw,
    Exponential,
    Lognormal,
    Pareto,
    Uniform,
)
from simulator.traffic.draws import cumulative_weights

__all__ = ["Numbers"]


class Numbers:
    """Distributions and tables; each method puts one where it belongs, and says where."""

    def __init__(self) -> None:
        self.draws: list[tuple[int, int, int, int]] = []
        self.shares: list[float] = []
        self.tables: list[float] = []
        self.values: list[int] = []

    def draw(self, draw: Draw) -> int:
        """Add a distribution."""
        share = 0.0
        if isinstance(draw, Constant):
            row = (drawing.CONSTANT, draw.value_ns, 0, 0)
        elif isinstance(draw, Uniform):
            row = (drawing.UNIFORM, draw.low_ns, draw.high_ns, 0)
        elif isinstance(draw, Exponential):
            row = (drawing.EXPONENTIAL, draw.mean_ns, 0, 0)
        elif isinstance(draw, Lognormal):
            row, share = (drawing.LOGNORMAL, draw.median_ns, 0, 0), draw.sigma
        elif isinstance(draw, Pareto):
            row, share = (drawing.PARETO, draw.least_ns, 0, 0), draw.alpha
        else:
            row = self._discrete(draw)
        self.draws.append(row)
        self.shares.append(share)
        return len(self.draws) - 1

    def _discrete(self, draw: Discrete) -> tuple[int, int, int, int]:
        """Place the values and their weights at the same place of both tables."""
        size = max(len(self.tables), len(self.values))
        self.tables += [0.0] * (size - len(self.tables))
        self.values += [0] * (size - len(self.values))
        self.tables += cumulative_weights(draw.weights or (1.0,) * len(draw.values_ns))
        self.values += draw.values_ns
        return drawing.DISCRETE, size, len(draw.values_ns), 0

    def table(self, table: Sequence[float]) -> int:
        """Add floats."""
        self.tables += table
        return len(self.tables) - len(table)

    def value_place(self, values: Sequence[int]) -> int:
        """Add whole numbers."""
        self.values += values
        return len(self.values) - len(values)
