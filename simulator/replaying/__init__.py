"""Replay of real logs through the limits."""
