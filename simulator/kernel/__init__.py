"""The limits and the clients once more, compiled: the fidelity `compiled`.

Everything compiled lives here. Plain functions over arrays of records, compiled by numba, which is
the optional extra `fast`: importing this package imports it, and nothing else in the project does.
Decisions are those of the readable limiter and of the SimPy driver, bit for bit; tests hold them
together by digests and drawn scenarios.
"""
