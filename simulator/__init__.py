"""The simulator of Tollgate."""
