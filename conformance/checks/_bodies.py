"""Bodies to try, drawn by Hypothesis: deep, wide, with odd keys and repeated values.

Bodies generated from a schema are shallow and contain at most one token, but mirroring faults show
in deep bodies with many tokens. So these strategies are our own. They draw valid bodies only, so a
refusal is a finding. Other checks send what the specification leaves open (empty bodies, empty
strings, numbers).

A run, its replay and a later judgement of it must draw the same bodies for the same seed. By
default, Hypothesis mixes in constants from the local modules that are loaded, and these differ
between the three. So `repeating` draws without constants. A backend of our own would not do alone:
Hypothesis leaves it at the first failure and shrinks with its default one. Only this module uses
what Hypothesis does not document as stable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import hypothesis
from hypothesis import strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

from conformance.checks._oracle import Contradiction
from conformance.context.answers import elements, is_request, parts
from conformance.context.check import Inconclusive, Skip
from conformance.context.context import CheckContext
from conformance.messages.exchange import Exchange
from engine.messages import Json
from engine.tokens import dumps

# --- draws that repeat ----------------------------------------------------------------------------


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


# --- bodies ---------------------------------------------------------------------------------------


ODD_KEYS: Final = (
    "",
    " ",
    "Name",
    "NAME",
    "name",
    "Type",
    "TYPE",
    "types",
    "data",
    "id",
    "ID",
    "__proto__",
    "constructor",
    "a/b",
    "a~b",
    "a.b",
    "$ref",
    "0",
    "ключ",
    "\U0001f511",
    " blank ",
    "\u00e9t\u00e9",
    "e\u0301te\u0301",
    "\ufb01n",
    "\u212b",
    "zero\u200bwidth",
    "long " + "x" * 65,
)
"""Keys that a deployment may handle wrongly; all of them are ordinary keys."""
_SAME: Final = ("same", "same ", "Same", "s\u0061me", "\u00e9", "e\u0301", "0", "true", "null")
_ASKS_OVER: Final = 3
"""A search sends at most this many times its number of examples, then returns its smallest body."""
_LEVELS: Final = 6


class Counterexample(NamedTuple):
    """A body whose answer breaks a rule: the faults by clause, and the exchanges that show them."""

    body: Any
    faults: list[Contradiction]
    shown: tuple[Exchange, ...]


def tokens_in(body: Json) -> int:
    """Return how many tokens a body asks for: leaves and token request objects."""
    return len(list(elements(body, body)))


def texts() -> st.SearchStrategy[str]:
    """Return non-empty strings for leaves: Unicode text, also with quotes and escapes."""
    drawn = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=24)
    return drawn | st.sampled_from(_SAME)


def bodies(limit: int, cards: list[dict[str, Any]]) -> st.SearchStrategy[Any]:
    """Return bodies of every shape with 1 to `limit` tokens, some of them from `cards`."""
    request = st.builds(lambda data: {"type": "token", "data": data}, texts())
    leaf = texts() | texts() | request | st.sampled_from(cards)
    keys = st.sampled_from(ODD_KEYS) | st.text(
        st.characters(exclude_categories=("Cs", "Cc")), max_size=8
    ).filter(lambda key: key != "type")
    tree = st.recursive(
        leaf,
        lambda inner: (
            st.lists(inner, min_size=1, max_size=limit)
            | st.dictionaries(keys, inner, min_size=1, max_size=limit)
        ),
        max_leaves=2 * limit,
    )
    wrapped = st.builds(_wrap, tree, st.lists(keys | st.none(), max_size=_LEVELS - 1))
    return wrapped.filter(
        lambda body: isinstance(body, dict | list) and 1 <= tokens_in(body) <= limit
    ).filter(lambda body: _levels(body) <= _LEVELS + 2)


def _wrap(body: Any, steps: list[str | None]) -> Any:  # noqa: ANN401 # reason: any JSON
    """Nest a body deeper: a key wraps it into an object, None into an array."""
    for step in steps:
        body = [body] if step is None else {step: body}
    return body


def _levels(body: Json) -> int:
    is_nested = isinstance(body, dict | list) and not is_request(body)
    return is_nested + max(map(_levels, parts(body)), default=0)


def smallest(
    ctx: CheckContext,
    strategy: st.SearchStrategy[Any],
    judge: Callable[[Any], Counterexample | None],
    examples: int,
) -> Counterexample | None:
    """Return the smallest drawn body that `judge` finds broken, None when it finds none.

    Sends at most three times `examples` requests. An exception from `judge` ends the search.
    """
    broken: list[Counterexample] = []
    ended: list[Exception] = []
    left = _ASKS_OVER * examples

    @hypothesis.settings(
        max_examples=examples,
        backend=BACKEND,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        print_blob=False,
        report_multiple_bugs=False,
    )
    @hypothesis.seed(ctx.seed)
    @hypothesis.given(strategy)
    def drawn(body: Any) -> None:  # noqa: ANN401 # reason: what the strategy draws
        nonlocal left
        left -= 1
        if ended or left < 0:
            return
        try:
            found = judge(body)
        except (Inconclusive, Skip) as error:
            ended.append(error)
            return
        if found is not None:
            broken.append(found)
            raise AssertionError

    try:
        with repeating():
            drawn()
    except (AssertionError, hypothesis.errors.Flaky, BaseExceptionGroup):
        # A deployment may answer one body differently each time; what was seen still counts.
        if not broken:
            raise
    if ended and not broken:
        raise ended[0]
    return min(broken, key=lambda one: (len(dumps(one.body)), dumps(one.body)), default=None)
