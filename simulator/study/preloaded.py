"""What the server of worker processes loads before it forks them: the simulator and its kernel."""

from __future__ import annotations

from simulator.play.simpy_driver import simulate_simpy
from simulator.play.simulation import load_kernel
from simulator.study.runs import run_replication

__all__ = ["load_kernel", "run_replication", "simulate_simpy"]

load_kernel()
