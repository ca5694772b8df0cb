"""One run of one scenario in compiled code: arrays made, played, and handed to the run's book."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

import numpy as np

from engine.limits import LimitTable
from engine.limits.compiled import CompiledLimiter
from engine.limits.compiled.columns import verdict_of
from engine.limits.compiled.core import FLAGS, MOST_LEGS, fresh_core
from engine.profile import LimitsProfile, Profile
from simulator.backends.asking import _asked
from simulator.backends.compiled import drawing
from simulator.backends.compiled import layout as at
from simulator.backends.compiled.layout import Sim, linked, longer
from simulator.backends.compiled.loop import JIT, play
from simulator.backends.compiled.planning import Plan
from simulator.results import RunBook
from simulator.results.recorder import CHUNK_ROWS
from simulator.results.rows import Subject
from simulator.scenario import Scenario
from simulator.traffic.population import Population

__all__ = ["CompiledRun", "simulate_compiled", "warm_up"]

_ROW_NAMES: Final = ("t_ns", "subject", "attempt", "verdict", "wait_ns", "latency_ns", "status")


def warm_up(tell: Callable[[str], None] | None = None) -> None:
    """Compile everything, unless an earlier run on this machine has done it."""
    CompiledLimiter({"Default": LimitTable(())}, LimitsProfile(), tell=tell)
    JIT.warm_up(_compile_all, tell)


def _compile_all() -> None:
    core = fresh_core(np.zeros(FLAGS, dtype=np.int64))
    core.flags[MOST_LEGS] = 1
    play(_nothing(), core, 0)


def _nothing() -> Sim:
    """Return arrays of the types that a plan makes, with nobody in them."""

    def ints(width: int) -> at.Ints:
        return np.zeros((0, width), dtype=np.int64)

    floats = np.zeros((0, 2))
    small = np.full(2, -1, dtype=np.int32)
    streams = np.zeros((0, drawing.STREAM_WIDTH), dtype=np.uint64)
    return Sim(
        clock=np.zeros(at.CLOCK_WIDTH, dtype=np.int64),
        groups=ints(at.GROUP_WIDTH),
        group_floats=floats,
        clients=ints(at.CLIENT_WIDTH),
        client_floats=floats,
        streams=streams,
        draws=ints(drawing.DRAW_WIDTH),
        shares=np.zeros(0),
        tables=np.zeros(0),
        values=np.zeros(0, dtype=np.int64),
        pieces=np.zeros((0, 3)),
        kinds=small,
        keys=small,
        addresses=small,
        requests=ints(at.REQUEST_WIDTH),
        events=ints(at.EVENT_WIDTH),
        heap=ints(2),
        combos=np.zeros((1, at.COMBO_WIDTH), dtype=np.int32),
        combo_table=small,
        ended=ints(2),
        rows=ints(1),
    )


class CompiledRun:
    """A scenario on its way through the compiled loop; `chunks` hands out rows as they fill up.

    tables, profile: the limits in force. from_ns: the warm-up's end, for what is counted.
    """

    def __init__(  # reason: what a run is told
        self,
        scenario: Scenario,
        population: Population,
        tables: dict[str, LimitTable],
        profile: Profile,
        seed: int,
        *,
        from_ns: int = 0,
        chunk_rows: int = CHUNK_ROWS,
    ) -> None:
        self.limiter = CompiledLimiter(tables, profile.limits, from_ns=from_ns)
        self._plan = Plan(
            scenario, population, self.limiter, seed, told_to_wait=profile.http.retry_after
        )
        self._core = self.limiter.ready_core()
        self.sim = self._plan.sim._replace(rows=np.zeros((at.COLUMNS, chunk_rows), dtype=np.int64))
        self.sim.clock[at.WARM_UP] = from_ns

    @property
    def now_ns(self) -> int:
        """The instant up to which everything is played."""
        return int(self.sim.clock[at.NOW])

    def step(self) -> int | None:
        """Play on; return how many rows there are, None once there will be no more.

        The rows are in `self.sim.rows`, and gone at the next step.
        """
        self.sim.clock[at.ROWS] = 0
        while True:
            stopped = play(self.sim, self._core, self._plan.loops)
            if stopped == at.FULL:
                return int(self.sim.clock[at.ROWS])
            if stopped == at.DONE:
                return int(self.sim.clock[at.ROWS]) or None
            if stopped in {at.NO_LANES, at.NO_RINGS}:
                self._core = self.limiter.grow()
            else:
                self._make_room(stopped)

    def _make_room(self, stopped: int) -> None:
        sim, clock = self.sim, self.sim.clock
        if stopped == at.NO_COMBOS:
            size, count = 2 * len(sim.combos), int(clock[at.COMBO_COUNT])
            combos = longer(sim.combos, size)
            self.sim = sim._replace(
                combos=combos, ended=longer(sim.ended, size), combo_table=_hashed(combos, count)
            )
            return
        if clock[at.FREE_REQUEST] < 0:
            taken = len(sim.requests)
            requests = linked(sim.requests, taken, 2 * taken, at.R_NEXT)
            clock[at.FREE_REQUEST] = taken
            sim = sim._replace(requests=requests)
        if clock[at.PENDING] + 16 >= len(sim.events):
            sim = self._more_events(sim)
        self.sim = sim

    @staticmethod
    def _more_events(sim: Sim) -> Sim:
        size, first = 2 * len(sim.events), int(sim.clock[at.FREE_EVENT])
        events = linked(sim.events, len(sim.events), size, at.E_NEXT)
        events[-1, at.E_NEXT] = first
        sim.clock[at.FREE_EVENT] = len(sim.events)
        return sim._replace(events=events, heap=longer(sim.heap, size))


def _hashed(combos: np.ndarray, count: int) -> np.ndarray:
    """Return the table by which combos are found, as the loop's `_combo` probes it."""
    size = 2 * len(combos)
    table = np.full(size, -1, dtype=np.int32)
    rows = combos[:count].astype(np.int64)
    with np.errstate(over="ignore"):
        mixed = (rows[:, at.O_CLIENT] * 31 + rows[:, at.O_ENTRY]) * np.int64(at.MIX_1) + (
            rows[:, at.O_KEY] * 8191 + rows[:, at.O_ADDRESS]
        ) * np.int64(at.MIX_2)
    slots = ((mixed ^ (mixed >> 31)) & (size - 1)).tolist()
    for number, first in enumerate(slots):
        slot = first
        while table[slot] >= 0:
            slot = (slot + 1) & (size - 1)
        table[slot] = number
    return table


class _Writer:
    """Hands rows to a run's book: combos become subjects, verdicts the recorder's."""

    def __init__(self, book: RunBook, run: CompiledRun, population: Population) -> None:
        self._book = book
        self._run = run
        self._clients = population.clients
        self._subjects: list[int] = []
        self._verdicts: dict[int, int] = {0: 0}
        for client in population.clients:
            mix, keys = client.group.mix, client.keys
            if len(mix) == 1 and len(keys) <= 1 and len(client.addresses) == 1:
                self._number(client.number, 0, 0, 0)

    def _number(self, number: int, entry: int, key: int, address: int) -> int:
        client = self._clients[number]
        ask = client.group.mix[entry]
        holder = client.keys[key] if client.keys else None
        ip = client.addresses[address]
        asked = _asked(ask, holder, ip, None)
        row = Subject(
            number,
            holder.tenant if holder else None,
            holder.application if holder else None,
            holder.label if holder else None,
            ip,
            asked.method,
            asked.path,
            self._book.view.counters(asked.subject),
        )
        return self._book.recorder.subjects.number(row)

    def write(self, count: int) -> None:
        """Write the rows of the run's last step."""
        sim = self._run.sim
        known = int(sim.clock[at.COMBO_COUNT])
        for combo in sim.combos[len(self._subjects) : known].tolist():
            self._subjects.append(self._number(*combo[: at.O_LANE]))
        columns = dict(zip(_ROW_NAMES, sim.rows[:, :count].copy(), strict=True))
        columns["subject"] = np.array(self._subjects, dtype=np.int64)[columns["subject"]]
        columns["verdict"] = self._renumbered(columns["verdict"])
        self._book.recorder.take(columns)

    def _renumbered(self, verdicts: at.Ints) -> at.Ints:
        numbers, inverse = np.unique(verdicts, return_inverse=True)
        legs = self._run.limiter.legs
        for number in numbers.tolist():
            if number not in self._verdicts:
                outcome, rule = verdict_of(number, legs)
                self._verdicts[number] = self._book.recorder.verdicts.number(outcome, rule)
        mapped = np.array([self._verdicts[number] for number in numbers.tolist()], dtype=np.int64)
        return mapped[inverse]

    def finish(self) -> None:
        """Write what is counted a request, and what shadow rules would have refused."""
        sim, tally = self._run.sim, self._book.tally
        for subject, (ended, well) in zip(
            self._subjects, sim.ended[: len(self._subjects)].tolist(), strict=True
        ):
            if ended:
                tally.requests_ended(subject, ended, well)
        for rule, count in self._run.limiter.shadow_counts().items():
            tally.add_shadow(self._book.header.warm_up_ns, [rule] * count)


def simulate_compiled(  # reason: what a run is told
    scenario: Scenario,
    population: Population,
    tables: dict[str, LimitTable],
    profile: Profile,
    seed: int,
    book: RunBook,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Play a scenario and write every row to `book`."""
    warm_up(_tell)
    from_ns = book.header.warm_up_ns
    run = CompiledRun(scenario, population, tables, profile, seed, from_ns=from_ns)
    writer = _Writer(book, run, population)
    while (count := run.step()) is not None:
        writer.write(count)
        if progress is not None:
            progress(min(run.now_ns, scenario.duration_ns))
    writer.finish()
    if progress is not None:
        progress(scenario.duration_ns)


def _tell(text: str) -> None:
    print(f"simulator: {text}", file=sys.stderr, flush=True)  # noqa: T201 # reason: a minute of silence would look like a hang
