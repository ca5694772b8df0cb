"""Measuring a deployed limiter from outside.

`sightings` is what a client can know, `soundness` and `families` say what follows from it whatever
the latency, `rows` plays the clusters of requests that show a row of the limit table. The checks
that bind this to clauses stand in `conformance.checks`.
"""
