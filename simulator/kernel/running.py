"""One run of a scenario in the kernel: make the arrays, run the events, write rows to the book."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from engine.limits import LimitTable
from engine.profile import LimitsProfile
from simulator.kernel import deciding, records
from simulator.kernel.compiling import is_compiled as _is_compiled
from simulator.kernel.compiling import warm_up as _warm_up
from simulator.kernel.limiter import (
    Array,
    ColumnLimiter,
    empty_limits,
    enlarged,
    verdict_numbers,
)
from simulator.kernel.loop import SPARE_EVENTS, run_events
from simulator.kernel.planning import KernelPlan, linked
from simulator.kernel.records import DONE, LANES_FULL, RINGS_FULL, ROWS_FULL
from simulator.play.backends import SubjectRegistry
from simulator.progress import tell_line
from simulator.rows import RunRecorder
from simulator.rows.record import CHUNK_ROWS, NO_STATUS, Numbers, RequestIdentity, SubjectTable
from simulator.rows.run_recorder import CounterIndex
from simulator.scenario import Scenario
from simulator.scenario.draws import OnOffArrivals, SessionArrivals
from simulator.traffic.population import Setup

_FIRST_ROWS: Final = 1 << 12
_MOST_SUBJECTS: Final = 1_000_000
_PART: Final = "compiled simulation"
_ANYBODY: Final = RequestIdentity(0, None, None, None, "", "", "")


def limiter_of(setup: Setup, from_ns: int) -> ColumnLimiter:
    """Return the limiter of a scenario; refusals in shadow are counted from an instant on."""
    origin_ns = setup.scenario.start_time_ns
    return ColumnLimiter(setup.tables, setup.profile.limits, origin_ns=origin_ns, from_ns=from_ns)


class KernelRun:
    """A scenario in the compiled loop.

    from_ns: the warm-up's end. template: what was made before for this scenario and warm-up.
    """

    def __init__(
        self,
        setup: Setup,
        *,
        from_ns: int = 0,
        chunk_rows: int = CHUNK_ROWS,
        template: Template | None = None,
    ) -> None:
        self.setup, self.template = setup, template
        if template is None:
            self.limiter = limiter_of(setup, from_ns)
            plan = KernelPlan(setup, self.limiter)
            self.sim = plan.arrays()
        else:
            self.limiter, self.sim = template.fresh(setup.seed)
        self._chunk_rows = chunk_rows
        self.sim = self.sim._replace(rows=np.zeros(min(_FIRST_ROWS, chunk_rows), records.ROW))
        self.sim.clock["warm_up_ns"] = from_ns

    @property
    def now_ns(self) -> int:
        """The instant up to which everything has happened."""
        return int(self.sim.clock[0]["now_ns"])

    def step(self) -> Array | None:
        """Run on; return the next rows, None at the end of the run."""
        self.sim.clock["row_count"] = 0
        while True:
            reason = run_events(self.sim)
            count = int(self.sim.clock[0]["row_count"])
            if reason == DONE:
                rows: Array = self.sim.rows[:count]
                return rows if count else None
            if reason == ROWS_FULL and count >= self._chunk_rows:
                return np.asarray(self.sim.rows)
            self._make_room(reason)

    def _make_room(self, reason: int) -> None:
        sim = self.sim
        if reason == ROWS_FULL:
            size = min(4 * len(sim.rows), self._chunk_rows)
            self.sim = sim._replace(rows=enlarged(sim.rows, size))
        elif reason == RINGS_FULL:
            self.limiter.make_ring_room()
            self.sim = sim._replace(limits=self.limiter.limits)
        elif reason == LANES_FULL:
            self.limiter.make_lane_room()
            self.sim = sim._replace(limits=self.limiter.limits)
        else:
            self._make_more_room()

    def _make_more_room(self) -> None:
        """Make larger whatever is too small for one more step."""
        sim, clock = self.sim, self.sim.clock[0]
        if clock["combo_count"] >= len(sim.combos):
            size = 2 * len(sim.combos)
            table = np.full((2 * size, 4), -1, np.int32)
            deciding.refill_table(table, sim.combo_table[sim.combo_table[:, 0] >= 0])
            sim = sim._replace(combos=enlarged(sim.combos, size), combo_table=table)
        if clock["free_request"] < 0:
            taken = len(sim.requests)
            sim = sim._replace(requests=linked(enlarged(sim.requests, 2 * taken), taken))
            clock["free_request"] = taken
        if clock["event_count"] + SPARE_EVENTS >= len(sim.events):
            sim = sim._replace(events=enlarged(sim.events, 2 * len(sim.events)))
        self.sim = sim


class Template:
    """A scenario's arrays and subjects, made once and run under many seeds, on any thread.

    For scenarios of which only the streams depend on the seed (`template_of`). from_ns: the
    warm-up's end. anonymous: one subject for all, when only totals are wanted.
    """

    def __init__(self, setup: Setup, from_ns: int, *, anonymous: bool = False) -> None:
        self.setup = setup
        self._limiter = limiter_of(setup, from_ns)
        self._sim = KernelPlan(setup, self._limiter).arrays()
        self.known = CounterIndex(setup.tables, setup.profile.limits), SubjectTable()
        clients = setup.population.clients
        mixes = [len(client.group.mix) for client in clients]
        self._first = np.cumsum([0, *(2 * size for size in mixes)])[:-1]
        self._numbers = np.zeros(2 * sum(mixes), np.int64)
        if anonymous:
            self.known[1].number(_ANYBODY)
            return
        number = _numbering(setup, self.known[1], self.known[0])
        for client in clients:
            size, key, address = len(client.group.mix), client.deal_key(), client.deal_address()
            uploads = [size + place for place, ask in enumerate(client.group.mix) if ask.is_job]
            for entry in (*range(size), *uploads):
                place = self._first[client.number] + entry
                self._numbers[place] = number(client.number, entry, key, address)
        self.known[1].clients()  # all are put into their columns, before threads read them

    def fresh(self, seed: int) -> tuple[ColumnLimiter, records.Simulation]:
        """Return a limiter that has counted nothing, and the arrays of a run under a seed."""
        limiter = self._limiter.copy()
        sim, copies = self._sim, {}
        for name in ("clock", "clients", "streams", "requests", "events", "combos", "combo_table"):
            copies[name] = getattr(sim, name).copy()
        sim = sim._replace(**copies, limits=limiter.limits)
        sim.clock["seed"] = seed
        return limiter, sim

    def subjects_of(self, combos: Array) -> Numbers:
        """Return the numbers of combos' subjects."""
        numbers: Numbers = self._numbers[self._first[combos["client"]] + combos["entry"]]
        return numbers


def template_of(scenario: Scenario, from_ns: int, *, anonymous: bool = False) -> Template | None:
    """Return the template of a scenario; None when its subjects are not known before a run.

    That is when keys or addresses are dealt at random or per request. Nor has one a scenario whose
    clients begin in a state that is drawn, or send sessions, which are sampled before the run.
    """
    for group in scenario.clients:
        dealings = scenario.dealings_of(group)
        if any(dealing.zipf is not None or dealing.per == "request" for dealing in dealings):
            return None
        if isinstance(group.arrivals, OnOffArrivals) and group.arrivals.begin == "either":
            return None
        if isinstance(group.arrivals, SessionArrivals):
            return None
    if sum(group.count * len(group.mix) for group in scenario.clients) > _MOST_SUBJECTS:
        return None
    return Template(Setup.of(scenario, 0), from_ns, anonymous=anonymous)


def _numbering(
    setup: Setup, subjects: SubjectTable, view: CounterIndex
) -> Callable[[int, int, int, int], int]:
    """Return what numbers the subject of a combo: its client, entry, key and address.

    Entries from the mix's length on are uploads.
    """
    registry, clients = SubjectRegistry(setup.scenario, subjects, view), setup.population.clients

    def number(client: int, entry: int, key: int, address: int) -> int:
        is_upload, place = divmod(entry, len(clients[client].group.mix))
        request = registry.asked(clients[client], place, key, address)
        if not is_upload:
            return request.row
        assert request.follow is not None, "an upload follows a job"
        return request.follow.row

    return number


def _subject_numbers(run: KernelRun, book: RunRecorder) -> Callable[[Array], Numbers]:
    """Return what numbers the subjects of new combos."""
    if run.template is not None:
        return run.template.subjects_of
    number = _numbering(run.setup, book.recorder.subjects, book.view)
    for client in run.setup.population.clients:
        dealings = run.setup.scenario.dealings_of(client.group)
        if len(client.group.mix) == 1 and all(dealing.per != "request" for dealing in dealings):
            number(client.number, 0, client.deal_key(), client.deal_address())

    def numbers(combos: Array) -> Numbers:
        fields = combos[["client", "entry", "key", "address"]].tolist()
        return np.array([number(*combo) for combo in fields], dtype=np.int64)

    return numbers


def is_compiled() -> bool:
    """Whether an earlier run on this machine has compiled everything."""
    return _is_compiled(_PART)


def warm_up(tell: Callable[[str], None] = tell_line) -> None:
    """Compile everything, unless an earlier run on this machine has done it."""
    if is_compiled():
        return
    ColumnLimiter({"Default": LimitTable(())}, LimitsProfile())
    _warm_up(_PART, _compile_all, tell)


def load() -> None:
    """Load the machine code that the cache holds; compile nothing."""
    if is_compiled():
        _compile_all()


def _compile_all() -> None:
    arrays = {
        "clock": np.zeros(1, records.CLOCK),
        "tables": np.zeros(0),
        "values": np.zeros(0, np.int64),
        "pieces": np.zeros((0, 3)),
        "combo_table": np.full((2, 4), -1, np.int32),
    }
    kinds = {"kinds": np.int32, "keys": np.int32, "addresses": np.int32}
    for name, dtype in (records.TYPES | kinds).items():
        arrays[name] = np.zeros(0, dtype)
    run_events(records.Simulation(**arrays, limits=empty_limits()))


def run_in_kernel(
    setup: Setup,
    book: RunRecorder,
    progress: Callable[[int], None] | None = None,
    template: Template | None = None,
) -> None:
    """Run a scenario and write every row to `book`."""
    warm_up()
    write_rows(KernelRun(setup, from_ns=book.header.warm_up_ns, template=template), book, progress)


def write_rows(
    run: KernelRun, book: RunRecorder, progress: Callable[[int], None] | None = None
) -> None:
    """Run a scenario to its end and write every row to `book`."""
    duration_ns, recorder = run.setup.scenario.duration_ns, book.recorder
    numbers_of, verdicts_of = _subject_numbers(run, book), verdict_numbers(run.limiter, recorder)
    subjects: Numbers = np.zeros(0, dtype=np.int64)
    while (rows := run.step()) is not None:
        new = run.sim.combos[len(subjects) : int(run.sim.clock[0]["combo_count"])]
        if len(new):
            subjects = np.concatenate([subjects, numbers_of(new)])
        recorder.take(
            {
                "t_ns": rows["t_ns"].copy(),
                "subject": subjects[rows["combo"]],
                "attempt": rows["attempt"].astype(np.int64),
                "verdict": verdicts_of(rows["verdict"]),
                "wait_ns": rows["wait_ns"].copy(),
                "latency_ns": rows["latency_ns"].copy(),
                "status": np.full(len(rows), NO_STATUS, dtype=np.int64),
            }
        )
        if progress is not None:
            progress(min(run.now_ns, duration_ns))
    clock = run.sim.clock[0]
    book.tally.add_requests(int(clock["began"]), int(clock["ended"]), int(clock["well"]))
    recorder.shadow.update(run.limiter.shadow_requests())
    if progress is not None:
        progress(duration_ns)
