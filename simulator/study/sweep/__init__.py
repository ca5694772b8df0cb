"""Sweeps: one scenario under many values, sampled or in a grid, each run under its own seed.

`sweep` plays them on all local cores, or on a Dask cluster, into a folder that is a Parquet
dataset; `load_sweep` reads it back. A sweep that was stopped goes on where it was.
"""

from simulator.study.sweep._dataset import load_sweep
from simulator.study.sweep._sweep import sweep

__all__ = ["load_sweep", "sweep"]
