"""Fit a scenario to an access log: groups, paces and retries, and how well they match the log.

    fit = simulator.fit("access.log", as_kind="public", holdout="50%")
    fit.text, fit.groups, fit.comparison, fit.lost, fit.save("scenario.toml")

`observed` reads the log and assigns clients to groups, `series` counts in one pass, `traffic`
estimates parameters from the counts, `model` writes the scenario file, `sessions` cuts the log for
traffic as bursty as it, and `judge` compares runs of the file with the log.
"""

from simulator.study.fit._fit import Fit, check_free, fit

__all__ = ["Fit", "check_free", "fit"]
