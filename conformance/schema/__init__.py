"""The schema layer: generated requests against the floor and the ceiling documents.

`layer` holds the checks, `adapter` all that touches schemathesis, `bridge` passes the generated
requests into the session of a run.
"""
