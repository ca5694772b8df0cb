"""Measuring a limiter from outside, by direct tests: number, window, block, what counts, for whom.

`sending` holds parties, bursts and polls, `throttle` and `block` the tests, `rows` how each row of
the table is sent, and `findings` turns a measurement into findings on clauses.
"""
