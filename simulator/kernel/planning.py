"""From a scenario and its population to the arrays that the compiled loop runs."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from simulator.kernel import records as at
from simulator.kernel.limiter import Array, ColumnLimiter, zeros
from simulator.kernel.records import NONE, Simulation
from simulator.play.backends import asked_by, upload_subject
from simulator.scenario import draws
from simulator.scenario.clients import ClientGroup, Dealing
from simulator.traffic.attempts import AimdPace, RetryKind, pace_of, retry_policy
from simulator.traffic.draws import cumulative_weights, stream_number, zipf_weights
from simulator.traffic.population import Client, Setup
from simulator.traffic.sampling import (
    Piece,
    SessionRequests,
    begins_on,
    gap_ns,
    pieces_within,
    replayed_ns,
)

FIRST_COMBOS: Final = 1 << 10
_DELAYS: Final[dict[RetryKind, int]] = {
    "none": at.FIXED_DELAY,
    "fixed": at.FIXED_DELAY,
    "exponential": at.EXPONENTIAL_DELAY,
    "full-jitter": at.FULL_JITTER,
    "decorrelated-jitter": at.DECORRELATED,
}


class KernelPlan:
    """A scenario's arrays, but for the rows and the limits."""

    def __init__(self, setup: Setup, limiter: ColumnLimiter) -> None:
        self._setup, self._limiter = setup, limiter
        self._streams: list[int] = []
        self._draws: list[tuple[int, int, int, float]] = []
        self._tables: list[float] = []
        self._values = array("q")
        self._pieces: list[Piece] = []
        self._kinds: list[int] = []
        self._entries: list[tuple[int, int]] = []
        self._keys: list[int] = []
        self._addresses: list[int] = []
        self._address_numbers: dict[str, int] = {}
        self._address_pools: dict[int, int] = {}
        population, groups = setup.population, setup.scenario.clients
        self._key_numbers = {holder.label: place for place, holder in enumerate(population.keys)}
        self.groups = np.zeros(len(groups), at.GROUP)
        for place, group in enumerate(groups):
            members = population.groups[group.name]
            self._group(self.groups[place], group, population.clients[members.start : members.stop])
        places = {group.name: place for place, group in enumerate(groups)}
        self.clients = zeros(len(population.clients), at.CLIENT)
        for client in population.clients:
            self._client(self.clients[client.number], client, places[client.group.name])

    # --- a group ---------------------------------------------------------------------------------

    def _group(self, record: Any, group: ClientGroup, members: Sequence[Client]) -> None:  # noqa: ANN401 # reason: a record
        self._retry(record, group)
        record["deadline_ns"] = NONE if group.deadline_ns is None else group.deadline_ns
        record["start_ns"], record["stop_ns"] = group.start_ns, self._setup.scenario.stop_of(group)
        record["is_open"] = group.loop == "open"
        record["concurrency"] = NONE if group.concurrency is None else group.concurrency
        bounded = group.loop == "open" and group.concurrency is not None
        record["awaits"] = group.pacing is not None or bounded
        record["mix_count"] = len(group.mix)
        weights = cumulative_weights([ask.weight for ask in group.mix])
        record["mix_table"] = self._table(weights) if len(group.mix) > 1 else NONE
        if members:
            self._contents(record, group, members[0])
        record["service"] = self._draw(group.service)
        record["think"] = self._draw(draws.Constant() if group.think is None else group.think)
        self._pace(record, group)
        self._arrivals(record, group)

    def _retry(self, record: Any, group: ClientGroup) -> None:  # noqa: ANN401 # reason: a record
        sends = self._setup.profile.http.retry_after
        policy = retry_policy(group.retry, retry_after_enabled=sends)
        record["attempts"], record["delay"] = policy.attempts, _DELAYS[policy.kind]
        record["base_ns"], record["cap_ns"] = policy.base_ns, policy.cap_ns
        record["honours"] = policy.honours
        record["retries_limited"] = policy.retries(429, 0)

    def _contents(self, record: Any, group: ClientGroup, member: Client) -> None:  # noqa: ANN401 # reason: a record
        """Write what keys and addresses are dealt from, and each entry's kinds."""
        scenario, profile = self._setup.scenario, self._setup.profile
        record["first_key"] = len(self._keys)
        self._keys += [self._key_numbers[holder.label] for holder in member.keys]
        keys, addresses = scenario.dealings_of(group)
        self._deal(record, "key", keys, len(member.keys))
        self._deal(record, "address", addresses, len(member.addresses))
        deals = {int(record["key_deal"]), int(record["address_deal"])}
        record["is_fixed"] = len(group.mix) == 1 and deals == {at.FIXED_DEAL}
        record["first_kind"], record["first_entry"] = len(self._kinds), len(self._entries)
        for ask in group.mix:
            known: dict[Any, int] = {}
            for holder in member.keys or (None,):
                if holder not in known:
                    subject = asked_by(scenario, ask, holder, "0").subject
                    known[holder] = self._limiter.kind(subject)
                self._kinds.append(known[holder])
            limit_bytes = profile.account_updater.file_limit_bytes
            parts = ask.files(limit_bytes) if ask.is_job else 0
            upload = self._limiter.kind(upload_subject("0")) if ask.is_job else -1
            self._entries.append((parts, upload))

    def _deal(self, record: Any, name: str, dealing: Dealing, size: int) -> None:  # noqa: ANN401 # reason: a record
        record[f"{name}_count"], record[f"{name}_deal"] = size, at.FIXED_DEAL
        if dealing.per == "request" and size > 1:
            record[f"{name}_deal"] = at.ROTATED_DEAL
            if dealing.zipf is not None:
                record[f"{name}_deal"] = at.DRAWN_DEAL
                table = cumulative_weights(zipf_weights(size, dealing.zipf))
                record[f"{name}_table"] = self._table(table)

    def _pace(self, record: Any, group: ClientGroup) -> None:  # noqa: ANN401 # reason: a record
        if group.pacing is None:
            return
        pace = pace_of(group.pacing, group.start_ns)
        if isinstance(pace, AimdPace):
            record["pace"] = at.AIMD
            record["floor"], record["top"] = pace.least_milli, pace.most_milli
            record["growth"], record["kept_percent"] = pace.increase_milli, pace.kept_percent
            return
        limit, window_ns = pace.rate
        record["pace"], record["limit"] = at.BUCKET, limit
        record["step"], record["rest"] = divmod(window_ns, limit)
        record["slack"] = (pace.burst - 1) * window_ns

    def _arrivals(self, record: Any, group: ClientGroup) -> None:  # noqa: ANN401 # reason: a record
        form = group.arrivals
        if isinstance(form, draws.SessionArrivals):
            record["arrivals"] = at.REPLAYED_ARRIVALS
            return
        if isinstance(form, draws.ConstantArrivals):
            record["arrivals"] = at.EVEN_ARRIVALS
            record["arrive1"], record["arrive2"] = form.rate
        elif isinstance(form, draws.PoissonArrivals):
            record["arrivals"], record["gap_on"] = at.POISSON_ARRIVALS, gap_ns(form.rate)
        elif isinstance(form, draws.OnOffArrivals):
            record["arrivals"] = at.ON_OFF_ARRIVALS
            record["arrive1"], record["arrive2"] = form.on_ns, form.off_ns
            record["gap_on"], record["gap_off"] = gap_ns(form.on_rate), gap_ns(form.off_rate)
        elif isinstance(form, draws.ReplayArrivals):
            offsets_ns = replayed_ns(form)
            record["arrivals"], record["arrive1"] = at.REPLAYED_ARRIVALS, len(self._values)
            record["arrive2"] = len(offsets_ns)
            self._values.extend(offsets_ns)
        elif form is not None:
            pieces = pieces_within(form, group.start_ns, self._setup.scenario)
            record["arrivals"], record["arrive1"] = at.VARYING_ARRIVALS, len(self._pieces)
            record["arrive2"] = len(pieces)
            self._pieces += pieces

    # --- a client --------------------------------------------------------------------------------

    def _client(self, record: Any, client: Client, place: int) -> None:  # noqa: ANN401 # reason: a record
        group, of_group = client.group, self.groups[place]
        record["group"] = place
        for name in ("combo", "queue_head", "line_head", "timer", "timer_ns"):
            record[name] = NONE
        record["begins_ns"] = record["at_ns"] = group.start_ns
        bursts = group.arrivals if isinstance(group.arrivals, draws.OnOffArrivals) else None
        record["is_on"] = bursts is not None and begins_on(bursts, client)
        record["instants"], record["instant_count"] = of_group["arrive1"], of_group["arrive2"]
        record["mix_entries"] = NONE
        if isinstance(group.arrivals, draws.SessionArrivals):
            self._sessions(record, client, group.arrivals)
        if group.pacing is not None:
            pace = pace_of(group.pacing, group.start_ns)
            record["ready"] = record["mark"] = group.start_ns
            record["last_ns"] = NONE
            record["milli_rate"] = pace.milli if isinstance(pace, AimdPace) else NONE
        for name, deal in (("key", client.deal_key), ("address", client.deal_address)):
            is_fixed = of_group[f"{name}_deal"] == at.FIXED_DEAL
            record[name] = deal() if is_fixed else client.place
        record["first_address"] = self._address_place(client)
        record["think"] = len(self._streams)
        if group.loop == "closed" and self._is_drawn(of_group["think"]):
            for loop in range(group.concurrency or 1):
                self._stream(client, f"think-{loop}" if loop else "think")
        for name, purpose, is_needed in (
            ("service", "service", self._is_drawn(of_group["service"])),
            ("retry", "retry", of_group["delay"] >= at.FULL_JITTER),
            ("mix", "mix", len(group.mix) > 1 and record["mix_entries"] < 0),
            ("key_stream", "key", of_group["key_deal"] == at.DRAWN_DEAL),
            ("address_stream", "address", of_group["address_deal"] == at.DRAWN_DEAL),
            ("arrivals", "arrivals", group.loop == "open"),
            ("switches", "switches", bursts is not None),
        ):
            if is_needed:
                record[name] = self._stream(client, purpose)

    def _sessions(self, record: Any, client: Client, form: draws.SessionArrivals) -> None:  # noqa: ANN401 # reason: a record
        """Sample a client's sessions of a log: their instants, then the mix entry of each."""
        requests = SessionRequests(client, form, self._setup.scenario.stop_of(client.group))
        pairs = list(requests.pairs())
        record["instants"], record["instant_count"] = len(self._values), len(pairs)
        self._values.extend(at_ns for at_ns, _ in pairs)
        record["mix_entries"] = len(self._values)
        self._values.extend(entry for _, entry in pairs)

    def _is_drawn(self, draw: int) -> bool:
        return self._draws[draw][0] != at.CONSTANT

    def _stream(self, client: Client, purpose: str) -> int:
        self._streams.append(stream_number(f"{client.name}/{purpose}"))
        return len(self._streams) - 1

    def _address_place(self, client: Client) -> int:
        """Return where a client's addresses begin; those of a shared pool stand once."""
        is_shared = len(client.addresses) > 1
        place = self._address_pools.get(id(client.addresses)) if is_shared else None
        if place is None:
            place, numbers = len(self._addresses), self._address_numbers
            self._addresses += [numbers.setdefault(ip, len(numbers)) for ip in client.addresses]
            if is_shared:
                self._address_pools[id(client.addresses)] = place
        return place

    # --- distributions ---------------------------------------------------------------------------

    def _draw(self, draw: draws.Draw) -> int:
        """Add a distribution; return its number."""
        record: tuple[int, int, int, float]
        if isinstance(draw, draws.Constant):
            record = (at.CONSTANT, draw.value_ns, 0, 0.0)
        elif isinstance(draw, draws.Uniform):
            record = (at.UNIFORM, draw.low_ns, draw.high_ns, 0.0)
        elif isinstance(draw, draws.Exponential):
            record = (at.EXPONENTIAL, draw.mean_ns, 0, 0.0)
        elif isinstance(draw, draws.Lognormal):
            record = (at.LOGNORMAL, draw.median_ns, 0, draw.sigma)
        elif isinstance(draw, draws.Pareto):
            record = (at.PARETO, draw.least_ns, 0, draw.alpha)
        else:  # values and their weights stand at the same place of both tables
            place, size = max(len(self._tables), len(self._values)), len(draw.values_ns)
            self._tables += [0.0] * (place - len(self._tables))
            self._values.extend([0] * (place - len(self._values)))
            self._tables += cumulative_weights(draw.weights or (1.0,) * size)
            self._values.extend(draw.values_ns)
            record = (at.DISCRETE, place, size, 0.0)
        self._draws.append(record)
        return len(self._draws) - 1

    def _table(self, weights: Sequence[float]) -> int:
        self._tables += weights
        return len(self._tables) - len(weights)

    # --- all of it -------------------------------------------------------------------------------

    def arrays(self) -> Simulation:
        """Return the arrays of a run that has not begun; rows and limits are the caller's."""
        loops = [
            (number, loop)
            for number, record in enumerate(self.clients)
            if not self.groups[record["group"]]["is_open"]
            for loop in range(max(1, int(self.groups[record["group"]]["concurrency"])))
        ]
        size = 2 * (len(loops) + len(self.clients)) + 64
        requests = linked(zeros(size, at.REQUEST), len(loops))
        for record, (client, loop) in zip(requests, loops, strict=False):
            record["client"], record["serial"], record["loop"] = client, loop, loop
        requests["loop"][len(loops) :] = NONE
        clock = np.zeros(1, at.CLOCK)
        clock["free_request"], clock["seed"] = len(loops), self._setup.seed
        clock["end_ns"] = self._setup.scenario.duration_ns
        streams = zeros(len(self._streams), at.STREAM)
        streams["key"], streams["used"] = self._streams, 4
        return Simulation(
            clock=clock,
            groups=self.groups,
            clients=self.clients,
            streams=streams,
            draws=np.array(self._draws, at.DRAW),
            tables=np.array(self._tables or [0.0]),
            values=np.array(self._values or array("q", [0]), np.int64),
            pieces=np.array(self._pieces or [(0, 0.0, 0.0)], np.float64),
            entries=np.array(self._entries or [(0, 0)], at.ENTRY),
            kinds=np.array(self._kinds or [0], np.int32),
            keys=np.array(self._keys or [0], np.int32),
            addresses=np.array(self._addresses or [0], np.int32),
            requests=requests,
            events=zeros(size, at.EVENT),
            combos=np.zeros(FIRST_COMBOS, at.COMBO),
            combo_table=np.full((2 * FIRST_COMBOS, 4), -1, np.int32),
            rows=np.zeros(0, at.ROW),
            limits=self._limiter.limits,
        )


def linked(requests: Array, first: int, after: int = -1) -> Array:
    """Link the requests from `first` on into a list of free ones, followed by `after`."""
    requests["next"][first:] = np.arange(first + 1, len(requests) + 1)
    requests["next"][-1] = after
    requests["serial"][first:] = NONE
    return requests
