"""Hypothesis, made to draw the same for the same seed in whatever process it runs.

By default it mixes constants into its draws that it reads out of the local modules that happen to
be loaded: a run, its replay and its judgement load different ones, and a history would not be
recognised again. This is the one place that touches its interface for backends, which is not
documented as stable.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

__all__ = ["BACKEND"]

BACKEND: Final = "tollgate-repeating"
"""For `hypothesis.settings(backend=…)`."""


class Repeating(HypothesisProvider):
    """Hypothesis's own draws, without constants."""

    def _maybe_draw_constant(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 # reason: its form
        return None


AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.{Repeating.__name__}"
