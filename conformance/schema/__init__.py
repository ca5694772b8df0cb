"""The schema layer: generated requests against the floor and the ceiling documents.

`layer` holds the checks, `answers` what is asked of one answer, `adapter` everything that touches
schemathesis, and `bridge` the way of its requests into the session of a run.
"""
