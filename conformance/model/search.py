"""The search: plays sequences until some differ, reproduces each difference, then shrinks it.

A difference counts when the same sequence, with fresh values, differs in the same way twice more.
The clause is that of the shrunk sequence, where only what the difference needs is left. A
difference that does not come back is *sporadic*; it counts too, unless a slow answer can explain
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from conformance.context.check import Skip
from conformance.context.context import CheckContext, Lane
from conformance.messages.exchange import Exchange, KeyLabel
from conformance.model.comparison import Mismatch
from conformance.model.generator import READERS, Generator, Offer
from conformance.model.play import Abandoned, NotOffered, SequencePlay, SequenceStep
from conformance.model.scripts import holes, scripts
from conformance.model.shrink import smaller
from engine import Profile

_ABANDONED: Final = 60
"""How many sequences may show nothing, for want of answers."""
_REPLAYS: Final = 4
_REPRODUCED: Final = 2
_SHRINKING_PLAYS: Final = 40
_DIFFERENCES: Final = 4
"""How many sequences may differ before the search ends."""
_BASIC: Final = ("TOK-LEAF", "TOK-PLAIN", "TOK-ARRAY", "TOK-OBJECT", "TOK-COMPOSITE")
_DERIVED: Final = ("TOK-DEDUP", "REC-DEDUP-REDACT", "TOK-LIMIT")
"""Clauses that look broken where another one is, the least telling last."""
_TIMED: Final = frozenset({"field created_at", "cvc", "missing", "extra"})
"""Kinds of differences that the time of an answer decides too."""
_TIMED_CLAUSES: Final = frozenset({"QUO-CVC", "QUO-INTENT"})


@dataclass(frozen=True, slots=True)
class Case:
    """A difference that was reproduced: what differs, the smallest steps, and their exchanges."""

    difference: Mismatch
    steps: Sequence[SequenceStep]
    exchanges: Sequence[Exchange]
    sequence: int


@dataclass(slots=True)
class SearchOutcome:
    """What a search has seen. covered: how many steps bore out each clause."""

    cases: list[Case] = field(default_factory=list)
    covered: Counter[str] = field(default_factory=Counter)
    sequences: int = 0
    steps: int = 0
    abandoned: list[str] = field(default_factory=list)
    sporadic: list[Case] = field(default_factory=list)
    why_ended: str | None = None
    last: tuple[Exchange, ...] = ()


class SequenceSearch:
    """Plays drawn sequences against one deployment."""

    def __init__(
        self,
        ctx: CheckContext,
        lane: Lane,
        profile: Profile,
        offer: Offer,
        *,
        most_steps: int,
        until_ns: int,
        has_uuids: bool,
    ) -> None:
        self._ctx = ctx
        self._profile = profile
        self._offer = offer
        self._most_steps = most_steps
        self._until_ns = until_ns
        self._has_uuids = has_uuids
        self._lane = lane
        self._scripts = list(scripts(offer))
        self._plays = 0
        self._proven: set[str] = set()
        self.outcome = SearchOutcome()

    async def run(self) -> SearchOutcome:
        """Play sequences until the budget ends or enough of them differ."""
        try:
            while not self._is_over():
                await self._sequence()
        except Skip as reason:
            self.outcome.why_ended = str(reason)
        return self.outcome

    def _is_over(self) -> bool:
        outcome = self.outcome
        return (
            len(outcome.cases) >= _DIFFERENCES
            or outcome.steps >= self._most_steps
            or (self._lane.now_ns >= self._until_ns and self._are_scripts_done())
            or len(outcome.abandoned) >= _ABANDONED
        )

    def _are_scripts_done(self) -> bool:
        """Whether every clause had its chance; before that, time ends no search."""
        return self.outcome.sequences >= len(self._scripts)

    async def _sequence(self) -> None:
        outcome = self.outcome
        number = outcome.sequences
        outcome.sequences += 1
        chance = self._ctx.random(f"sequence {number}")
        generator = Generator(chance, self._offer)
        play = self._play()
        steps: list[SequenceStep] = []
        try:
            if number < len(self._scripts):
                difference, steps = await play.run(iter(self._scripts[number]))
            else:
                difference, steps = await play.run(generator.steps(), generator.learn)
            if difference is None and steps:
                reading = self._reading(play, steps)
                more, read = await play.run(iter(reading))
                difference, steps = more, [*steps, *read]
        except Abandoned as reason:
            outcome.abandoned.append(str(reason))
            return
        except NotOffered as gap:
            self._forget(gap)
            return
        finally:
            outcome.steps += len(play.exchanges)
            outcome.last = tuple(play.exchanges[-1:]) or outcome.last
            outcome.covered += play.covered
        if difference is not None:
            await self._reproduce(difference, steps, play, number)

    def _reading(self, play: SequencePlay, steps: Sequence[SequenceStep]) -> list[SequenceStep]:
        """Return a step that reads back what the last step of a sequence has stored, if it may."""
        role, refs = steps[-1].role, play.unread()
        can_read = "detokenize" in self._offer.operations - self._offer.mapped
        reader = READERS.get(role, "private_reader") if isinstance(role, str) else ""
        if not can_read or len(refs) < 2 or reader not in self._offer.roles:
            return []
        most = self._ctx.quota("Detokenize Limit", self._label(reader))
        number = steps[-1].number + 1
        return [SequenceStep(number, "detokenize", reader, body=holes(refs[:most]))]

    def _play(self) -> SequencePlay:
        self._plays += 1
        labels = {role: self._label(role) for role in sorted(self._offer.roles)}
        salt = f"{self._ctx.seed}{self._ctx.session.nonce}/{self._plays}"
        return SequencePlay(
            self._ctx,
            self._lane,
            self._profile,
            labels,
            salt,
            self._proven,
            has_uuids=self._has_uuids,
        )

    def _label(self, role: str) -> KeyLabel:
        labels = self._ctx.keys(role)
        return labels[self._plays % len(labels)]

    def _forget(self, gap: NotOffered) -> None:
        """Leave out an operation that the deployment does not offer."""
        operations = self._offer.operations - {gap.operation}
        self._offer = replace(self._offer, operations=operations)

    # --- a difference ---------------------------------------------------------------------------

    async def _replay(self, steps: Sequence[SequenceStep]) -> tuple[Mismatch | None, SequencePlay]:
        play = self._play()
        try:
            difference, _ = await play.run(iter(steps))
        except (Abandoned, NotOffered):
            difference = None
        self.outcome.steps += len(play.exchanges)
        return difference, play

    async def _reproduce(
        self, difference: Mismatch, steps: Sequence[SequenceStep], play: SequencePlay, number: int
    ) -> None:
        count = 0
        for turn in range(_REPLAYS):
            again, replayed = await self._replay(steps)
            if again is not None and again.kind == difference.kind:
                count, play, difference = count + 1, replayed, again
            if count >= _REPRODUCED or count + _REPLAYS - turn - 1 < _REPRODUCED:
                break
        case = Case(difference, steps, tuple(play.exchanges), number)
        if count < _REPRODUCED:
            if difference.kind not in _TIMED and difference.clause not in _TIMED_CLAUSES:
                self.outcome.sporadic.append(case)
            return
        try:
            case = await self._shrunk(case)
        finally:
            self.outcome.cases.append(case)

    async def _shrunk(self, case: Case) -> Case:
        """Return the smallest sequence that still differs in the same way."""
        left, is_smaller = _SHRINKING_PLAYS, True
        while is_smaller and left:
            is_smaller = False
            for steps in smaller(case.steps):
                if not left:
                    break
                left -= 1
                difference, play = await self._replay(steps)
                if difference is not None and difference.kind == case.difference.kind:
                    difference.place = case.difference.place  # of the whole record
                    done = steps[: len(play.exchanges)]
                    case = Case(difference, done, tuple(play.exchanges), case.sequence)
                    is_smaller = True
                    break
        return case


def ordered(cases: Sequence[Case]) -> list[Case]:
    """Return cases with the most trustworthy blame first.

    Direct ones come first, and the form of an answer before its content, since a wrong form makes
    the content look wrong too; then the most frequent clause.
    """
    votes = Counter(case.difference.clause for case in cases)

    def rank(case: Case) -> int:
        clause = case.difference.clause
        if clause in _BASIC:
            return _BASIC.index(clause)
        return len(_BASIC) + (1 + _DERIVED.index(clause) if clause in _DERIVED else 0)

    return sorted(
        cases,
        key=lambda case: (
            not case.difference.is_direct,
            rank(case),
            -votes[case.difference.clause],
            len(case.steps),
            case.sequence,
        ),
    )
