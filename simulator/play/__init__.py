"""Backends: they play a scenario and record the decisions."""

from simulator.play.simulation import (
    FIDELITIES,
    SEED,
    Fidelity,
    seed_in_force,
    simulate,
    template_for,
)

__all__ = ["FIDELITIES", "SEED", "Fidelity", "seed_in_force", "simulate", "template_for"]
