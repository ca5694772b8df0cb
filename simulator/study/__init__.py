"""Studies: a run, replications, a sweep, a capacity, coverage, a comparison, a replayed log."""
