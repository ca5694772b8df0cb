"""The compiled fidelity: the limits' decisions and the clients' loops over arrays.

`run` plays what needs no bodies; its rows are those of the `limits` fidelity, bit for bit. It
imports numba.
"""
