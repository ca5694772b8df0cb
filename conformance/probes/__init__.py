"""Measuring a deployed limiter from outside.

`sightings` holds what a client can know and what follows from it whatever the latency. `families`
says which ways of counting could have answered so. `bursts` sends requests, and `rows` plays the
clusters of them that show a row of the limit table. `conformance.checks` binds this to clauses.
"""
