"""Exploring a scenario by hand: sliders, and a picture that follows, in a notebook."""

from simulator.exploring._explorer import Explorer, explore

__all__ = ["Explorer", "explore"]
