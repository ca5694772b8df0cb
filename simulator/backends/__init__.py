"""Backends: they play a scenario and write down what was decided."""

from simulator.backends.simulation import FIDELITIES, Fidelity, seed_in_force, simulate

__all__ = ["FIDELITIES", "Fidelity", "seed_in_force", "simulate"]
