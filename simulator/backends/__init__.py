"""Backends: they play a scenario and write down what was decided."""

from simulator.backends.simulation import FIDELITIES, Fidelity, simulate

__all__ = ["FIDELITIES", "Fidelity", "simulate"]
