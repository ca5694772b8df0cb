"""The bench: what a check works with.

It asks the deployment through the session, deals out the keys and source addresses that are this
check's, and holds what is known: the target, the profile that has been told or discovered so far,
the limit table, the seed.

A check is deterministic: the same answers at the same times give the same requests and findings.
So everything random in it comes from `bench.random(name)`, and time only from exchanges and
`now_ns`.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from conformance.runner.registry import Check, Inconclusive, Skip, in_time
from conformance.runner.session import Session
from conformance.runner.verdicts import Finding, Verdict
from conformance.target import Source, Target
from conformance.wire.exchange import Ask, Exchange, KeyLabel
from conformance.wire.shapes import filled
from conformance.wire.transport import Place, Transport
from engine import LimitTable, Profile
from engine.messages import Json

__all__ = ["Bench", "Lane"]

_SECOND_NS: Final = 1_000_000_000
_Computed = TypeVar("_Computed")


class Lane:
    """One sender: a key, a source address, and its own turn of requests.

    Lanes run side by side inside `bench.side_by_side` or `bench.gather`.
    """

    def __init__(self, bench: Bench, name: str, **defaults: Any) -> None:  # noqa: ANN401 # reason: fields of Ask
        self._bench = bench
        self.name = name
        self.defaults = defaults
        self.turn = 0

    @property
    def now_ns(self) -> int:
        """The suite's clock."""
        return self._bench.transport.now_ns

    async def ask(self, method: str, path: str, body: Json | bytes = None, **more: Any) -> Exchange:  # noqa: ANN401 # reason: fields of Ask
        """Send one request; returns its exchange, whatever comes back."""
        return await self.send(
            Ask(method=method, path=path, body=body, **{**self.defaults, **more})
        )

    async def insist(
        self,
        method: str,
        path: str,
        body: Json | bytes = None,
        *,
        patience_ns: int | None = None,
        **more: Any,  # noqa: ANN401 # reason: fields of Ask
    ) -> Exchange:
        """Send one request and, where a limit refuses it, again as soon as it may.

        Stays below the limits by itself where it can. Raises `Inconclusive` when there is no
        answer, or none but 429. `patience_ns`: how long to go on where no `Retry-After` says.
        """
        ask = Ask(method=method, path=path, body=body, **{**self.defaults, **more})
        return await self._bench.insist(self, ask, patience_ns)

    async def send(self, ask: Ask) -> Exchange:
        """Send a request as it is; from this check's first address when it names none."""
        self.turn += 1
        if ask.source is None:
            ask = dataclasses.replace(ask, source=self._bench.sources[0])
        place = Place(self._bench.check.id, self.name, self.turn)
        return await self._bench.session.exchange(place, ask)

    async def sleep_until_ns(self, at_ns: int, why: str = "") -> None:
        """Wait for an instant of the suite's clock; why: what ends then, for who watches.

        Raises `Skip` at once where the run's time is over by then.
        """
        self._bench.session.check_time(at_ns, self._bench.check.id)
        with self._bench.session.waiting(self._bench.check.id, at_ns, why):
            await self._bench.transport.sleep_until_ns(at_ns)

    async def sleep_ns(self, for_ns: int, why: str = "") -> None:
        """Wait so long."""
        await self.sleep_until_ns(self.now_ns + for_ns, why)


class Bench:
    """What one check of one run works with.

    keys: the labels that it may use, by role; sources: the addresses, at least one (None: the
    machine's own choice).
    """

    def __init__(
        self,
        check: Check,
        session: Session,
        *,
        keys: Mapping[str, Sequence[KeyLabel]] | None = None,
        sources: Sequence[Source] | None = None,
    ) -> None:
        self.check = check
        self.session = session
        self.target: Target = session.target
        self.transport: Transport = session.transport
        self.limits: LimitTable = session.limits
        self.seed: int = session.seed
        self.sources: tuple[Source, ...] = tuple(sources or session.target.addresses)
        self._keys = keys
        self._lanes: dict[str, Lane] = {}
        self._main = self.lane("main")

    def __repr__(self) -> str:
        return f"<Bench of {self.check.id}>"

    @property
    def profile(self) -> Profile:
        """The choices of the deployment: told, discovered so far, else the defaults."""
        return self.session.profile

    @property
    def latency_ns(self) -> int:
        """What one request takes there and back, by the preflight; 0 when not measured."""
        return self.session.latency_ns

    def knows(self, choice: str) -> bool:
        """Whether a choice (`section.field` of the profile) was told or discovered."""
        return choice in self.session.known

    # --- asking ---------------------------------------------------------------------------------

    def ask(
        self,
        method: str,
        path: str,
        body: Json | bytes = None,
        *,
        patient: bool = True,
        retry: bool = True,
        **more: Any,  # noqa: ANN401 # reason: fields of Ask
    ) -> Exchange:
        """Send one request and wait; `key="private_prod.1"`, `source=…`, `headers=…`, as in Ask.

        Patient, it stays below the limits, asks again when refused all the same, and raises
        `Inconclusive` when there is no answer; else whatever happens is returned at once. retry:
        whether an answer of 5xx is asked for once more, see `insist`.
        """
        assert not self.check.is_side_by_side, "await lane.ask: the loop must not be held up"
        ask = Ask(method=method, path=path, body=body, **more)
        work = self.insist(self._main, ask, retry=retry) if patient else self._main.send(ask)
        found: Exchange = self.transport.run([work])[0]
        return found

    def call(
        self,
        name: str,
        values: Mapping[str, Json] | None = None,
        *,
        body: Json | bytes = None,
        patient: bool = True,
        **more: Any,  # noqa: ANN401 # reason: fields of Ask
    ) -> Exchange:
        """Ask for an operation by its name, in the shape that the target gives it.

        `bench.call("search", {"value": "x"}, key=…)`; `body` replaces the shape's own.
        """
        method, path, shaped = self.shaped(name, values)
        sent = shaped if body is None else body
        return self.ask(method, path, sent, patient=patient, **more)

    def shaped(self, name: str, values: Mapping[str, Json] | None = None) -> tuple[str, str, Json]:
        """Return method, path and body of an operation here; for lanes."""
        return filled(self.target.shape(name), values or {})

    def lane(self, name: str, **defaults: Any) -> Lane:  # noqa: ANN401 # reason: fields of Ask
        """Return a sender with defaults of its own; names are unique within the check."""
        assert name not in self._lanes, f"{self.check.id} has two lanes called {name}"
        self._lanes[name] = Lane(self, name, **defaults)
        return self._lanes[name]

    @property
    def lane_names(self) -> Iterable[str]:
        """The senders so far."""
        return self._lanes

    def side_by_side(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run coroutines of lanes at the same time, from a plain check; results in order."""
        return self.transport.run(coroutines)

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run coroutines of lanes at the same time, from an `async def` check."""
        return await self.transport.gather(coroutines)

    async def aside(self, compute: Callable[[], _Computed]) -> _Computed:
        """Return what a function computes, without holding up the other checks.

        Raises `Skip` where the run's time is over before that is done.
        """

        def look() -> None:
            self.session.check_time(self.transport.now_ns, self.check.id, is_asked=True)

        return await self.transport.aside(lambda: in_time(look, compute))

    async def insist(
        self, lane: Lane, ask: Ask, patience_ns: int | None = None, *, retry: bool = True
    ) -> Exchange:
        """Send patiently for a lane; see `Lane.insist`.

        An answer of 5xx to tokenize is asked for once more: where the second is none, the first was
        sporadic. It stays in the history, the check of steadiness judges it with its share, and no
        other check takes it for what it looks for.
        """
        is_tokenize = self.session.target.shape("tokenize").path == ask.path
        began_ns = self.transport.now_ns
        longest_ns = self.session.patience_ns + 5 * _SECOND_NS
        backoff_ns = _SECOND_NS
        while True:
            placed = await self._placed(ask)
            found = await lane.send(placed)
            if found.status is None:
                raise Inconclusive(f"no answer to {ask.method} {_short(ask.path)}: {found.error}")
            if not found.refused:
                if not (retry and is_tokenize and found.status >= 500):  # reason: 5xx
                    return found
                second = await lane.send(await self._placed(ask))
                is_sporadic = second.status is not None and second.status < 500
                return second if is_sporadic and not second.refused else found
            told_ns = _retry_after_ns(found)
            wait_ns = max(told_ns, backoff_ns)
            patient_ns = longest_ns if told_ns or patience_ns is None else patience_ns
            if self.transport.now_ns + wait_ns > began_ns + patient_ns:
                raise Inconclusive(f"{ask.method} {_short(ask.path)} is refused (429) all the time")
            await lane.sleep_ns(wait_ns)
            backoff_ns *= 2

    async def _placed(self, ask: Ask) -> Ask:
        """Return the request with a source that may send now; waits for that."""
        sources = self.sources if ask.source is None else (ask.source,)
        while True:
            now_ns = self.transport.now_ns
            source, wait_ns = self.session.pacer.admit(now_ns, ask, sources)
            if not wait_ns:
                return dataclasses.replace(ask, source=source)
            await self.transport.sleep_until_ns(now_ns + wait_ns)

    # --- keys, addresses, chance ----------------------------------------------------------------

    def keys(self, role: str) -> tuple[KeyLabel, ...]:
        """Return the labels of a role's keys that this check may use."""
        if self._keys is None:
            return self.target.labels(role)
        return tuple(self._keys.get(role, ()))

    def key(self, role: str, place: int = 1) -> KeyLabel:
        """Return the label of a role's key; raises `Skip` when there are not so many."""
        found = self.keys(role)
        if not 1 <= place <= len(found):
            raise Skip(f"needs {place} key(s) of role {role}; add [[keys]] role = {role!r}")
        return found[place - 1]

    def learn_key(self, label: KeyLabel, text: str) -> None:
        """Take a key that this check has made; asks may then name it."""
        self.session.redactor.learn(label, text)
        self.transport.learn_key(label, text)

    def random(self, name: str) -> random.Random:
        """Return a source of chance of its own, fixed by seed, nonce, check and name."""
        return random.Random(f"{self.seed}{self.session.nonce}/{self.check.id}/{name}")  # noqa: S311 # reason: must repeat

    def make(self, name: str, maker: Callable[[], str]) -> str:
        """Return a text that no seed fixes, such as an encrypted one; `judge` has the same again.

        name: unique within the check. The text stands in the history: it must be no secret.
        """
        return self.session.make(self.check.id, name, maker)

    # --- saying ---------------------------------------------------------------------------------

    def finding(
        self,
        clause: str,
        verdict: Verdict,
        says: str,
        *shown: Exchange,
        reading: tuple[str, object] | None = None,
    ) -> Finding:
        """Return a finding of this check with its evidence."""
        assert clause in self.check.clauses, f"{self.check.id} does not judge {clause}"
        evidence = tuple(exchange.number for exchange in shown)
        return Finding(clause, self.check.id, verdict, says, evidence, self.check.accepts, reading)

    def passes(self, clause: str, says: str, *shown: Exchange) -> Finding:
        """Say that what was asked for was seen."""
        return self.finding(clause, Verdict.PASS, says, *shown)

    def fails(self, clause: str, says: str, *shown: Exchange) -> Finding:
        """Say that the deployment breaks the clause."""
        return self.finding(clause, Verdict.FAIL, says, *shown)

    def inconclusive(self, why: str) -> Inconclusive:
        """Return the exception that ends the check without a verdict."""
        return Inconclusive(why)


def _retry_after_ns(exchange: Exchange) -> int:
    text = exchange.header("Retry-After") or ""
    return int(text) * _SECOND_NS if text.isascii() and text.isdigit() else 0


def _short(path: str) -> str:
    return path.partition("?")[0]
