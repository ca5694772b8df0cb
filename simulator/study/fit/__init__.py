"""From an access log to a scenario: groups, paces, retries, and how well they stand for the log.

    fit = simulator.fit("access.log", as_kind="public", holdout="50%")
    fit.text, fit.groups, fit.comparison, fit.lost, fit.save("scenario.toml")

`observed` reads the log, `groups` tells clients apart, `series` counts in one pass, `traffic` makes
parameters of the counts, `model` the scenario file, `judge` plays it beside the log.
"""

from simulator.study.fit._fit import Fit, check_free, fit

__all__ = ["Fit", "check_free", "fit"]
