"""A run of the suite: its plan, its schedule, its session, its verdicts.

`runner` drives it; a check is written against `conformance.context`; `offline` computes the
verdicts again from a recorded history. The package is not called `run`: `conformance.run` is the
function.
"""
