"""Draws that repeat: a run, its replay and a later judgement of it must generate the same bodies.

By default, Hypothesis mixes in constants from the local modules that are loaded, and these differ
between the three. So `repeating` draws without constants. A backend of our own would not do alone:
Hypothesis leaves it at the first failure and shrinks with its default one. Only this module uses
what Hypothesis does not document as stable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import hypothesis
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

BACKEND: Final = "tollgate-repeating"
"""For `hypothesis.settings(backend=…)`."""


class Repeating(HypothesisProvider):
    """Hypothesis's default draws; as a backend, it draws no variants of earlier bodies."""


AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.{Repeating.__name__}"
hypothesis.settings.register_profile(BACKEND, backend=BACKEND)
_drawn_constant: Final = HypothesisProvider._maybe_draw_constant  # noqa: SLF001 # reason: see above
_users: Final[list[str]] = []


def _constant(provider: HypothesisProvider, *args: Any, **more: Any) -> Any:  # noqa: ANN401 # reason: its form
    return None if _users else _drawn_constant(provider, *args, **more)


HypothesisProvider._maybe_draw_constant = _constant  # type: ignore[method-assign,assignment] # noqa: SLF001 # reason: see above


@contextlib.contextmanager
def repeating() -> Iterator[None]:
    """Let Hypothesis draw by the seed alone: `BACKEND` is the default, and nothing is a constant.

    This holds for the whole process, since libraries draw in threads of their own.
    """
    before = hypothesis.settings.get_current_profile_name()
    hypothesis.settings.load_profile(BACKEND)
    _users.append(before)
    try:
        yield
    finally:
        _users.pop()
        hypothesis.settings.load_profile(before)
