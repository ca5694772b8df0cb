"""The conformance of Tollgate."""
