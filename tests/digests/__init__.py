"""Digests of what the simulator decides, so that a change of its form can be told from another."""
