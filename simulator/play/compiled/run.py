"""One run of a scenario in compiled code: make the arrays, play them, write rows to the book."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from engine.limits import LimitTable
from engine.limits.compiled import CompiledLimiter
from engine.limits.compiled.core import FLAGS, MOST_LEGS, aligned, fresh_core, longer
from engine.profile import LimitsProfile
from simulator.play.compiled import layout as at
from simulator.play.compiled.event_loop import JIT, play
from simulator.play.compiled.layout import Sim, linked
from simulator.play.compiled.plan import Plan
from simulator.play.compiled.state import words_of
from simulator.play.gates import VerdictNumbers
from simulator.play.request_mix import Numbering
from simulator.progress import tell_line
from simulator.rows import RunBook
from simulator.rows.counters import LimitsView
from simulator.rows.record import CELL_NAMES, CHUNK_ROWS, Subject, SubjectTable
from simulator.rows.tally import NodesTally
from simulator.scenario import Scenario
from simulator.scenario.draws import OnOffArrivals
from simulator.traffic.population import Client, Setup


def warm_up(tell: Callable[[str], None] | None = None) -> None:
    """Compile everything, unless an earlier run on this machine has done it."""
    CompiledLimiter({"Default": LimitTable(())}, LimitsProfile(), tell=tell)
    JIT.warm_up(_compile_all, tell)


def _compile_all() -> None:
    core = fresh_core(np.zeros(FLAGS, dtype=np.int64))
    core.flags[MOST_LEGS] = 1
    # The compiled code is the same whatever the arrays are; without clients only the clock is read.
    empty: Any = np.zeros((0, 1), dtype=np.int64)
    clock = np.zeros(at.CLOCK_WIDTH, dtype=np.int64)
    play(words_of(Sim(*[empty] * len(Sim._fields))._replace(clock=clock)), core, 0)


class CompiledRun:
    """A scenario in the compiled loop; `chunks` returns rows as they fill up.

    from_ns: the warm-up's end, for what is counted. template: what was planned before for this
    scenario and this warm-up.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        from_ns: int = 0,
        chunk_rows: int = CHUNK_ROWS,
        template: Template | None = None,
    ) -> None:
        self.setup = setup
        self.template = template
        if template is None:
            self.limiter = _limiter(setup, from_ns)
            plan = Plan(setup, self.limiter)
            sim, self._loops = plan.sim, plan.loops
        else:
            self.limiter = template.fresh_limiter()
            sim, self._loops = template.sim(setup.seed), template.loops
        self._core = self.limiter.ready_core()
        # Indexed by column; in memory a row is contiguous.
        rows = aligned((chunk_rows, at.ROW_WIDTH)).T[: at.COLUMNS]
        self.sim = sim._replace(rows=rows)
        self.sim.clock[at.WARM_UP] = from_ns
        self._late: list[at.Ints] = []

    @property
    def now_ns(self) -> int:
        """The instant up to which everything is played."""
        return int(self.sim.clock[at.NOW])

    def step(self) -> int | None:
        """Play on; return the number of rows, None at the end of the run.

        The rows are in `self.sim.rows` until the next step. A latency of −1 is not known yet;
        `late` returns it later.
        """
        clock = self.sim.clock
        clock[at.ROWS_BEFORE] += clock[at.ROWS]
        clock[at.ROWS] = 0
        while True:
            stopped = play(words_of(self.sim), self._core, self._loops)
            if stopped == at.FULL:
                return int(self.sim.clock[at.ROWS])
            if stopped == at.DONE:
                return int(self.sim.clock[at.ROWS]) or None
            if stopped == at.NO_COUNTERS:
                self._core = self.limiter.grow()
            else:
                self._make_room()

    def late(self) -> at.Ints:
        """Return, once, the late answers of earlier steps' rows: number, latency, status."""
        count = int(self.sim.clock[at.LATE_COUNT])
        self.sim.clock[at.LATE_COUNT] = 0
        found = np.concatenate([*self._late, self.sim.late[:count]])
        self._late = []
        return found

    def _make_room(self) -> None:
        """Make larger what is too small for one more step, and take late answers out."""
        sim, clock = self.sim, self.sim.clock
        if clock[at.COMBO_COUNT] >= len(sim.combos):
            sim = _more_combos(sim)
        if clock[at.FREE_REQUEST] < 0:
            taken = len(sim.requests)
            requests = linked(sim.requests, taken, 2 * taken, at.R_NEXT)
            clock[at.FREE_REQUEST] = taken
            sim = sim._replace(requests=requests)
        if clock[at.PENDING] + at.SPARE >= len(sim.events):
            sim = _more_events(sim)
        if clock[at.CALLS] + at.SPARE >= len(sim.calls):
            sim = sim._replace(calls=_more_free(sim, sim.calls, at.FREE_CALL, at.V_NEXT))
        self._late.append(sim.late[: clock[at.LATE_COUNT]].copy())
        clock[at.LATE_COUNT] = 0
        self.sim = sim


def _limiter(setup: Setup, from_ns: int) -> CompiledLimiter:
    limits, nodes = setup.profile.limits, setup.profile.nodes
    return CompiledLimiter(
        setup.tables,
        limits,
        from_ns=from_ns,
        tell=tell_line,
        nodes=nodes,
        origin_ns=setup.scenario.start_time_ns,
    )


def _more_combos(sim: Sim) -> Sim:
    """Return twice the room for combos, and a table to match."""
    size = 2 * len(sim.combos)
    sim.clock[at.GROWN] = 1
    combos, ended = longer(sim.combos, size), longer(sim.ended, size)
    return sim._replace(combos=combos, ended=ended, combo_table=np.zeros(2 * size, dtype=np.int32))


def _more_events(sim: Sim) -> Sim:
    """Return twice the room for events, and a wheel to match."""
    links = _more_free(sim, sim.links, at.FREE_EVENT, at.L_NEXT)
    size = len(links)
    wheel = np.full(size, at.NONE, dtype=np.int32)
    wheel[: len(sim.wheel)] = sim.wheel
    sim.clock[at.GROWN] = 1
    events, heap = longer(sim.events, size), longer(sim.heap, size)
    return sim._replace(events=events, links=links, wheel=wheel, heap=heap)


def _more_free(sim: Sim, rows: at.Ints, free: int, column: int) -> at.Ints:
    """Double the rows and put the new ones on the free list, whose head is `free` of the clock."""
    size = 2 * len(rows)
    found: at.Ints = linked(rows, len(rows), size, column)
    found[-1, column] = sim.clock[free]
    sim.clock[free] = len(rows)
    return found


def _number_of(numbering: Numbering, client: Client, entry: int, key: int, address: int) -> int:
    """Return the number of a combo's subject; entries from the mix's length on are uploads."""
    mix = client.group.mix
    asked = numbering.asked(client, entry % len(mix), key, address)
    if entry < len(mix):
        return asked.row
    assert asked.follow is not None, "an upload follows a job"
    return asked.follow.row


class Template:
    """A scenario's arrays and subjects, made once and played under many seeds, on any thread.

    For scenarios in which only the streams depend on the seed (`template_of`). from_ns: the
    warm-up's end. known: all subjects, for a run's book. anonymous: one subject for all, when only
    totals are wanted.
    """

    def __init__(self, setup: Setup, from_ns: int, *, anonymous: bool = False) -> None:
        self.setup = setup
        self._limiter = _limiter(setup, from_ns)
        plan = Plan(setup, self._limiter)
        self.loops = plan.loops
        self.known = LimitsView(setup.tables, setup.profile.limits), SubjectTable()
        clients = setup.population.clients
        mixes = [len(client.group.mix) for client in clients]
        self._first = np.cumsum([0, *(2 * size for size in mixes)])[:-1]
        self._numbers = np.zeros(2 * sum(mixes), dtype=np.int64)
        if anonymous:
            self.known[1].number(_ANYBODY)
        else:
            self._number(clients)
        self.known[1].clients()  # all are put into their columns, before threads read them
        room = max(len(plan.sim.combos), 1 << (2 * sum(mixes) + 63).bit_length())
        self._sim = plan.sim._replace(
            combos=longer(plan.sim.combos, room),
            combo_table=np.full(2 * room, -1, dtype=np.int32),
            ended=longer(plan.sim.ended, room),
        )
        self._lanes = sum(mixes)

    def _number(self, clients: Sequence[Client]) -> None:
        """Number the subjects: entries of a mix, then the uploads of its jobs."""
        numbering = Numbering(self.setup.scenario, self.known[1], self.known[0])
        for client in clients:
            first = int(self._first[client.number])
            key, address = client.deal_key(), client.deal_address()
            size = len(client.group.mix)
            for entry, ask in enumerate(client.group.mix):
                for place in (entry, size + entry) if ask.is_job else (entry,):
                    number = _number_of(numbering, client, place, key, address)
                    self._numbers[first + place] = number

    def fresh_limiter(self) -> CompiledLimiter:
        """Return a new limiter with room for all clients."""
        found = self._limiter.fresh()
        found.ready_core()
        found.grow(lanes=self._lanes)
        return found

    def sim(self, seed: int) -> Sim:
        """Return arrays for one run, with the streams of a seed."""
        written = {name: getattr(self._sim, name) for name in _WRITTEN}
        copies = {name: longer(array, len(array)) for name, array in written.items()}
        found = self._sim._replace(**copies)
        found.streams[:, 0] = seed
        return found

    def subjects_of(self, combos: np.ndarray[Any, Any]) -> at.Ints:
        """Return the numbers of combos' subjects."""
        found: at.Ints = self._numbers[self._first[combos[:, at.O_CLIENT]] + combos[:, at.O_ENTRY]]
        return found


_WRITTEN: Final = (
    *("clock", "clients", "passed", "streams", "pools", "calls", "requests", "events"),
    *("links", "near", "wheel", "heap", "combos", "combo_table", "ended", "late"),
    *("in_flight", "apart"),
)
"""The arrays that a run writes to; the others are the same for all seeds."""
_MOST_SUBJECTS: Final = 1_000_000
_ANYBODY: Final = Subject(0, None, None, None, "", "", "")


def template_of(scenario: Scenario, from_ns: int, *, anonymous: bool = False) -> Template | None:
    """Return the template of a scenario; None when its subjects are not known before a run.

    That is when keys or addresses are dealt at random or per request. Nor has one a scenario whose
    clients begin in a state that is drawn.
    """
    dealt = [each for group in scenario.clients for each in scenario.dealings_of(group)]
    if any(each.zipf is not None or each.per == "request" for each in dealt):
        return None
    if any(
        isinstance(group.arrivals, OnOffArrivals) and group.arrivals.begin == "either"
        for group in scenario.clients
    ):
        return None
    if sum(group.count * len(group.mix) for group in scenario.clients) > _MOST_SUBJECTS:
        return None
    with _no_collection():
        return Template(Setup.of(scenario, 0), from_ns, anonymous=anonymous)


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pause the garbage collector while many objects are made."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Writer:
    """Writes rows to a run's book, with subjects for combos and the recorder's verdicts.

    Rows are written in order, so a row that waits for its answer delays those after it.
    """

    def __init__(self, book: RunBook, run: CompiledRun) -> None:
        self._book = book
        self._run = run
        self._clients = run.setup.population.clients
        self._subjects: at.Ints = np.zeros(0, dtype=np.int64)
        self._verdicts = VerdictNumbers(run.limiter, book.recorder)
        self._held: deque[dict[str, at.Ints]] = deque()
        self._handed_on = 0
        if run.template is not None:
            return
        scenario, recorder = run.setup.scenario, book.recorder
        self._numbering = Numbering(scenario, recorder.subjects, book.view)
        for client in self._clients:
            group = client.group
            deals = any(each.per == "request" for each in scenario.dealings_of(group))
            if len(group.mix) == 1 and not deals:
                self._numbering.asked(client, 0, client.deal_key(), client.deal_address())

    def _known(self, count: int) -> at.Ints:
        """Return the subjects of so many combos."""
        new = self._run.sim.combos[len(self._subjects) : count]
        if not len(new):
            return self._subjects
        if self._run.template is not None:
            found = self._run.template.subjects_of(new)
        else:
            numbers = [
                _number_of(self._numbering, self._clients[client], *combo)
                for client, *combo in new[:, : at.O_LANE].tolist()
            ]
            found = np.array(numbers, dtype=np.int64)
        self._subjects = np.concatenate([self._subjects, found])
        return self._subjects

    def write(self, count: int) -> None:
        """Take the rows of the run's last step, and write what is answered."""
        sim = self._run.sim
        subjects = self._known(int(sim.clock[at.COMBO_COUNT]))
        columns = dict(zip(CELL_NAMES, sim.rows[:, :count].copy(), strict=True))
        columns["subject"] = subjects[columns["subject"]]
        columns["verdict"] = self._verdicts.of(columns["verdict"])
        self._held.append(columns)
        self._hand_on()

    def _hand_on(self) -> None:
        late = self._run.late()
        if len(late):
            self._answer(late)
        while self._held and self._held[0]["latency_ns"].min(initial=0) >= 0:
            columns = self._held.popleft()
            self._handed_on += len(columns["t_ns"])
            self._book.recorder.take(columns)

    def _answer(self, late: at.Ints) -> None:
        """Record the answers of rows that were answered late."""
        first = self._handed_on
        for columns in self._held:
            size = len(columns["t_ns"])
            chosen = late[(late[:, 0] >= first) & (late[:, 0] < first + size)]
            columns["latency_ns"][chosen[:, 0] - first] = chosen[:, 1]
            columns["status"][chosen[:, 0] - first] = chosen[:, 2]
            first += size

    def finish(self) -> None:
        """Write the remaining rows, and the counts that are not made from rows."""
        self._hand_on()
        assert not self._held, "every row is answered before the end"
        sim, tally = self._run.sim, self._book.tally
        counts = sim.ended[: len(self._subjects)].sum(axis=0).tolist()
        tally.add_requests(counts[at.Q_BEGAN], counts[at.Q_ENDED], counts[at.Q_WELL])
        for clause, count in self._run.limiter.shadow_requests().items():
            tally.add_shadow_requests(clause, count)
        if self._book.nodes is not None:
            self._add_apart(self._book.nodes)

    def _add_apart(self, nodes: NodesTally) -> None:
        limiter, groups = self._run.limiter, self._run.setup.scenario.clients
        exact, legs, apart = limiter.exact_legs, limiter.legs, self._run.sim.apart
        for place, leg in zip(*np.nonzero(apart), strict=True):
            count = int(apart[place, leg])
            nodes.add(groups[place].name, legs[leg], count, beyond=exact[leg])


def simulate_compiled(
    setup: Setup,
    book: RunBook,
    progress: Callable[[int], None] | None = None,
    template: Template | None = None,
) -> None:
    """Play a scenario and write every row to `book`."""
    run = CompiledRun(setup, from_ns=book.header.warm_up_ns, template=template)
    JIT.warm_up(_compile_all, tell_line)  # the limiter has seen to its own code
    write_rows(run, book, progress)


def write_rows(
    run: CompiledRun, book: RunBook, progress: Callable[[int], None] | None = None
) -> None:
    """Play a run to its end and write every row to `book`."""
    duration_ns = run.setup.scenario.duration_ns
    writer = _Writer(book, run)
    while (count := run.step()) is not None:
        writer.write(count)
        if progress is not None:
            progress(min(run.now_ns, duration_ns))
    writer.finish()
    if progress is not None:
        progress(duration_ns)
