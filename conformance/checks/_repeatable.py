"""Hypothesis, made to draw the same for the same seed in whatever process it runs.

By default it mixes constants into its draws that it reads out of the local modules that happen to
be loaded: a run, its replay and its judgement load different ones, and a history would not be
recognised again. This is the one place that touches its interface for backends, which is not
documented as stable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import hypothesis
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

__all__ = ["BACKEND", "repeating"]

BACKEND: Final = "tollgate-repeating"
"""For `hypothesis.settings(backend=…)`."""


class Repeating(HypothesisProvider):
    """Hypothesis's own draws, without constants."""

    def _maybe_draw_constant(self, *_: Any, **__: Any) -> None:  # noqa: ANN401 # reason: its form
        return None


AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.{Repeating.__name__}"
hypothesis.settings.register_profile(BACKEND, backend=BACKEND)


@contextlib.contextmanager
def repeating() -> Iterator[None]:
    """Make it what a library gets that asks Hypothesis for its default settings, threads' too."""
    before = hypothesis.settings.get_current_profile_name()
    hypothesis.settings.load_profile(BACKEND)
    try:
        yield
    finally:
        hypothesis.settings.load_profile(before)
