"""Backends: they play a scenario (`simulation`) or a log (`replay`), and record the decisions."""
