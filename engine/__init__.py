"""The reference engine of Tollgate."""
