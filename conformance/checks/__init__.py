"""The clause checks: one file a section of the specification, each check bound to clause ids.

`conformance.context.check.all_checks` imports every module here but those that begin with `_`.
How limits are measured stands in `conformance.limits`.
"""
