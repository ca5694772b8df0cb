"""From a scenario and its population to the arrays that the compiled loop plays.

Numbers are put where `layout` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from engine.errors import InputError
from engine.limits.compiled import CompiledLimiter
from engine.limits.compiled.core import aligned, longer
from engine.limits.nodes import BALANCES, BY_NAME, home_of
from engine.limits.subject import OTHER_FIELDS, KeyField, Subject
from engine.profile import Profile
from simulator.play.compiled import layout as at
from simulator.play.compiled import sampling as drawing
from simulator.play.compiled.event_queue import ALL_NEAR, FIRST_TUNING
from simulator.play.compiled.layout import Sim, linked
from simulator.play.outside import behind
from simulator.play.request_mix import asked_by, upload_subject
from simulator.scenario import draws
from simulator.scenario.clients import (
    Ask,
    ClientGroup,
    Dealing,
    FixedRetry,
    NoRetry,
    TokenBucketPacing,
)
from simulator.scenario.model import Proxy, Reactor
from simulator.traffic import client_rules as rules
from simulator.traffic.arrivals import ON_OFF, PIECE_WIDTH, REPLAYED, VARYING
from simulator.traffic.draws import BALANCE_STREAM, cumulative_weights, stream_number, zipf_weights
from simulator.traffic.population import Client, KeyHolder, Setup
from simulator.traffic.sampling import begins_on, processes_of

_BOUND: Final = 1 << 62
_FIRST_ROOM: Final = 1 << 10
_FIRST_CALLS: Final = 1 << 6


class Plan:
    """A scenario's arrays.

    sim: the arrays. loops: how many closed loops there are.
    """

    def __init__(self, setup: Setup, limiter: CompiledLimiter) -> None:
        scenario, population, profile = setup.scenario, setup.population, setup.profile
        self._profile = profile
        self._scenario = scenario
        self._limiter = limiter
        self._seed = setup.seed
        self._streams: list[tuple[int, int]] = []
        self._numbers = Numbers()
        self._pieces: list[float] = []
        self._kinds: list[int] = []
        self._others: dict[tuple[KeyField, str], int] = {}
        self._key_numbers = {holder.label: place for place, holder in enumerate(population.keys)}
        self._keys: list[int] = []
        self._addresses: list[int] = []
        self._address_numbers: dict[str, int] = {}
        self._pools: dict[int, int] = {}
        self._processes = processes_of(scenario)
        self._behind: list[list[int]] = []
        self._instances: list[list[int]] = []
        self._entries: list[list[int]] = []
        self._places: dict[Proxy | Reactor, int] = {}
        self._streams_behind: list[tuple[str | None, ...]] = []
        everything: list[Proxy | Reactor] = [*scenario.proxies, *scenario.reactors]
        for each in everything:
            self._put_behind(each)
        self._purposes: list[tuple[str | None, ...]] = []
        first_of = {name: numbers.start for name, numbers in population.groups.items()}
        self._group_rows = []
        self._group_gaps = []
        for group in scenario.clients:
            member = population.clients[first_of[group.name]] if group.count else None
            row, gaps_ns = self._group(group, member)
            self._group_rows.append(row)
            self._group_gaps.append(gaps_ns)
        self._alikes = [self._alike(group, n) for n, group in enumerate(scenario.clients)]
        places = {group.name: place for place, group in enumerate(scenario.clients)}
        clients = [self._client(c, places[c.group.name]) for c in population.clients]
        loops = [
            (client.number, lane)
            for client in population.clients
            if client.group.loop == "closed"
            for lane in range(client.group.concurrency or 1)
        ]
        self.loops = len(loops)
        self._node_stream = len(self._streams)
        self._streams.append((setup.seed, stream_number(BALANCE_STREAM)))
        self.sim = self._arrays(clients, loops)

    # --- a group ---------------------------------------------------------------------------------

    def _group(self, group: ClientGroup, member: Client | None) -> tuple[list[int], list[float]]:
        row = [0] * at.GROUP_WIDTH
        self._retry(row, group)
        row[at.G_DEADLINE] = at.NONE if group.deadline_ns is None else group.deadline_ns
        row[at.G_OPEN] = group.loop == "open"
        row[at.G_CONCURRENCY] = at.NONE if group.concurrency is None else group.concurrency
        row[at.G_AWAITS] = group.pacing is not None or (
            group.loop == "open" and group.concurrency is not None
        )
        row[at.G_MIX_COUNT] = len(group.mix)
        if len(group.mix) > 1:
            row[at.G_MIX] = self._numbers.table(
                cumulative_weights([ask.weight for ask in group.mix])
            )
        if member is None:
            self._purposes.append(())
        else:
            self._pools_of(row, group, member)
        row[at.G_SERVICE] = self._numbers.draw(group.service)
        row[at.G_THINK] = self._numbers.draw(
            draws.Constant() if group.think is None else group.think
        )
        self._pacing(row, group)
        return row, self._arrivals(row, group)

    def _retry(self, row: list[int], group: ClientGroup) -> None:
        retry = group.retry
        rule = rules.retry_row(retry, told_to_wait=self._profile.http.retry_after)
        row[at.G_RETRY : at.G_RETRY + len(rule)] = rule
        if isinstance(retry, NoRetry):
            return
        for how, status in enumerate((*_statuses(self._profile), 429)):
            row[at.G_RETRIES] |= (status in retry.statuses) << how
        if 4 * rule[rules.CAP] >= _BOUND:
            field = "delay" if isinstance(retry, FixedRetry) else "cap"
            raise InputError(
                f"clients.{group.name}.retry.{field} must be below 36 years where it is compiled; "
                "take less"
            )

    def _pools_of(self, row: list[int], group: ClientGroup, member: Client) -> None:
        """Note what keys and addresses are dealt from, and each pair of entry and key's rules."""
        row[at.G_KEYS] = len(self._keys)
        self._keys += [self._key_numbers[holder.label] for holder in member.keys]
        keys, addresses = self._scenario.dealings_of(group)
        self._deal(row, at.G_KEY_COUNT, keys, len(member.keys))
        self._deal(row, at.G_ADDRESS_COUNT, addresses, len(member.addresses))
        kinds = {row[at.G_KEY_DEAL], row[at.G_ADDRESS_DEAL]}
        row[at.G_DEALS] = len(group.mix) > 1 or kinds != {at.FIXED}
        row[at.G_KINDS] = len(self._kinds) // at.KIND_WIDTH
        row[at.G_ENTRIES] = len(self._entries)
        self._purposes.append(self._mix(group.mix))
        for ask in group.mix:
            known: dict[KeyHolder | None, list[int]] = {}
            for holder in member.keys or (None,):
                found = known.get(holder)
                if found is None:
                    subject = asked_by(self._scenario, ask, holder, "0").subject
                    others = [self._other_part(part, subject) for part in OTHER_FIELDS]
                    found = known[holder] = [self._limiter.kind(subject), *others]
                self._kinds += found

    def _other_part(self, part: KeyField, subject: Subject) -> int:
        """Return the number of a part that a request may be counted by."""
        value: str | None = getattr(subject, part)
        if value is None:
            return at.NONE
        return self._others.setdefault((part, value), len(self._others))

    def _deal(self, row: list[int], place: int, dealing: Dealing, size: int) -> None:
        """Write how members of a pool are dealt."""
        row[place + at.DEAL_COUNT] = size
        kind = at.FIXED
        if dealing.per == "request" and size > 1:
            kind = at.ROTATED
            if dealing.zipf is not None:
                kind = at.DRAWN
                weights = cumulative_weights(zipf_weights(size, dealing.zipf))
                row[place + at.DEAL_TABLE] = self._numbers.table(weights)
        row[place + at.DEAL_KIND] = kind

    def _pacing(self, row: list[int], group: ClientGroup) -> None:
        pacing = group.pacing
        if pacing is None:
            return
        row[at.G_PACING], _, rule = rules.pace_rows(pacing, group.start_ns)
        row[at.G_RULE : at.G_RULE + len(rule)] = rule
        if isinstance(pacing, TokenBucketPacing) and (
            pacing.burst * pacing.rate.window_ns >= _BOUND
        ):
            raise InputError(
                f"clients.{group.name}.pacing.burst = {pacing.burst} must be lower where it is "
                "compiled: burst × nanoseconds of the window must stay below 2^62"
            )

    def _arrivals(self, row: list[int], group: ClientGroup) -> list[float]:
        """Write a group's process; return the gaps of its arrivals."""
        process = self._processes.get(group.name)
        if process is None:
            return [0.0, 0.0]
        row[at.G_ARRIVALS] = process.kind
        row[at.G_ARRIVE_1], row[at.G_ARRIVE_2] = process.rule
        if process.kind == REPLAYED:
            row[at.G_ARRIVE_1] = self._numbers.value_place(process.instants)
        elif process.kind == VARYING:
            row[at.G_ARRIVE_1] = len(self._pieces) // PIECE_WIDTH
            self._pieces += process.pieces
        return list(process.gaps_ns)

    # --- a client --------------------------------------------------------------------------------

    def _alike(self, group: ClientGroup, place: int) -> tuple[list[int], list[tuple[int, str]]]:
        """Return what all clients of a group have in common, and which streams each has.

        A stream is told by the column of the client's row that says where it is, and its purpose.
        """
        groups = self._group_rows[place]
        row = [0] * at.CLIENT_WIDTH
        row[at.C_GROUP], row[at.C_START] = place, group.start_ns
        row[at.C_STOP] = self._scenario.stop_of(group)
        row[at.C_COMBO] = row[at.C_QUEUE_HEAD] = row[at.C_LINE_HEAD] = at.NONE
        row[at.C_BEGINS] = row[at.C_AT] = group.start_ns
        row[at.C_TIMER] = -1
        if group.pacing is not None:
            _, line, _ = rules.pace_rows(group.pacing, group.start_ns)
            row[at.C_DUE : at.C_DUE + len(line)] = line
        wanted = (
            (at.C_MIX, "mix", len(group.mix) > 1),
            (at.C_KEYS, "key", groups[at.G_KEY_DEAL] == at.DRAWN),
            (at.C_ADDRESS_STREAM, "address", groups[at.G_ADDRESS_DEAL] == at.DRAWN),
            (at.C_RETRY, "retry", groups[at.G_RETRY + rules.KIND] >= rules.DRAWN),
            (at.C_SERVICE, "service", self._numbers.draws[groups[at.G_SERVICE]][0]),
            (at.C_ARRIVALS, "arrivals", groups[at.G_OPEN]),
            (at.C_SWITCHES, "switches", groups[at.G_ARRIVALS] == ON_OFF),
        )
        streams = [(column, purpose) for column, purpose, is_wanted in wanted if is_wanted]
        return row, streams

    def _client(self, client: Client, place: int) -> list[int]:
        group, groups = client.group, self._group_rows[place]
        alike, streams = self._alikes[place]
        row = alike.copy()
        row[at.C_KEY] = self._dealt(client.deal_key, groups[at.G_KEY_DEAL], client)
        row[at.C_ADDRESS] = self._dealt(client.deal_address, groups[at.G_ADDRESS_DEAL], client)
        row[at.C_ADDRESSES] = self._address_place(client)
        row[at.C_IS_ON] = begins_on(client)
        for column, purpose in streams:
            row[column] = self._stream(client, purpose)
        row[at.C_BEHIND] = len(self._streams)
        for named in self._purposes[place]:
            if named is None:
                self._streams.append((0, 0))
            else:
                self._stream(client, named)
        row[at.C_THINK] = len(self._streams)
        if group.loop == "closed" and self._numbers.draws[groups[at.G_THINK]][0]:
            for lane in range(group.concurrency or 1):
                self._stream(client, f"think-{lane}" if lane else "think")
        return row

    @staticmethod
    def _dealt(deal: Any, how: int, client: Client) -> int:  # noqa: ANN401 # reason: a dealer
        return int(deal()) if how == at.FIXED else client.place

    def _stream(self, client: Client, purpose: str) -> int:
        self._streams.append((self._seed, stream_number(f"{client.name}/{purpose}")))
        return len(self._streams) - 1

    def _address_place(self, client: Client) -> int:
        shared = len(client.addresses) > 1
        found = self._pools.get(id(client.addresses)) if shared else None
        if found is None:
            found = len(self._addresses)
            numbers = self._address_numbers
            self._addresses += [numbers.setdefault(ip, len(numbers)) for ip in client.addresses]
            if shared:
                self._pools[id(client.addresses)] = found
        return found

    # --- the outside -----------------------------------------------------------------------------

    def _put_behind(self, each: Proxy | Reactor) -> None:
        """Make the row of what is behind a proxy or a reactor; note the purposes of its streams."""
        found = behind(each)
        row = [at.NONE] * at.BEHIND_WIDTH
        if found.destination is not None:
            row[at.B_DESTINATION] = self._numbers.draw(found.destination)
        if found.unreachable_share:
            row[at.B_SHARE] = self._numbers.table([found.unreachable_share])
        if found.request is not None:
            row[at.B_REQUEST] = self._numbers.draw(found.request)
            row[at.B_REQUEST_POOL] = self._pool()
        if found.response is not None:
            row[at.B_RESPONSE] = self._numbers.draw(found.response)
            row[at.B_RESPONSE_POOL] = self._pool()
        self._places[each] = len(self._behind)
        self._behind.append(row)
        self._streams_behind.append(found.streams)

    def _pool(self) -> int:
        row = [at.NONE] * at.POOL_WIDTH
        row[at.P_LASTING], row[at.P_BUSY] = self._profile.outside.hot_instances, 0
        self._instances.append(row)
        return len(self._instances) - 1

    def _mix(self, mix: tuple[Ask, ...]) -> tuple[str | None, ...]:
        """Make a mix's rows; return the purposes of a client's streams, None for nothing drawn.

        An entry's streams are numbered from 0 within its group.
        """
        met: list[int] = []
        for ask in mix:
            row = [at.NONE] * at.ENTRY_WIDTH
            row[at.M_PARTS] = row[at.M_STREAMS] = 0
            which = self._scenario.proxy_of(ask) or self._scenario.reactor_of(ask)
            if which is not None:
                row[at.M_BEHIND] = self._places[which]
                if row[at.M_BEHIND] not in met:
                    met.append(row[at.M_BEHIND])
                row[at.M_STREAMS] = at.BEHIND_STREAMS * met.index(row[at.M_BEHIND])
            if ask.is_job:
                row[at.M_PARTS] = ask.files(self._profile.account_updater.file_limit_bytes)
                row[at.M_UPLOAD] = self._limiter.kind(upload_subject("0"))
            self._entries.append(row)
        return tuple(purpose for place in met for purpose in self._streams_behind[place])

    # --- all of it -------------------------------------------------------------------------------

    def _arrays(self, clients: list[list[int]], loops: list[tuple[int, int]]) -> Sim:
        places = len(loops) + len(clients)
        streams = aligned((max(1, len(self._streams)), at.STREAM_WIDTH), np.uint64)
        streams[: len(self._streams), :2] = np.array(self._streams, np.uint64).reshape(-1, 2)
        streams[:, 3] = 4
        requests = linked(_ints([], at.REQUEST_WIDTH), len(loops), 2 * places + 16, at.R_NEXT)
        for number, (client, lane) in enumerate(loops):
            requests[number, at.R_CLIENT] = client
            requests[number, at.R_SERIAL] = requests[number, at.R_LANE] = lane
        room = 1 << (2 * places + 63).bit_length()
        clock = [0] * at.CLOCK_WIDTH
        clock[at.FREE_REQUEST] = len(loops)
        clock[at.END] = self._scenario.duration_ns
        clock[at.SHIFT], clock[at.TUNE_AT] = ALL_NEAR, FIRST_TUNING
        clock_of(self._profile, clock)
        homes = self._balancer(clock)
        return Sim(
            clock=np.array(clock, dtype=np.int64),
            groups=_ints(self._group_rows, at.GROUP_WIDTH),
            group_gaps=np.array(self._group_gaps, dtype=np.float64).reshape(-1, at.GAPS_WIDTH),
            clients=_ints(clients, at.CLIENT_WIDTH),
            passed=np.zeros(max(1, len(clients))),
            streams=streams,
            draws=_ints(self._numbers.draws, drawing.DRAW_WIDTH),
            shares=np.array(self._numbers.shares, dtype=np.float64),
            tables=np.array(self._numbers.tables or [0.0], dtype=np.float64),
            values=np.array(self._numbers.values or [0], dtype=np.int64),
            pieces=np.array(self._pieces or [0.0], dtype=np.float64),
            entries=_ints(self._entries, at.ENTRY_WIDTH),
            behind=_ints(self._behind, at.BEHIND_WIDTH),
            pools=_ints(self._instances, at.POOL_WIDTH),
            calls=linked(_ints([], at.CALL_WIDTH), 0, _FIRST_CALLS, at.V_NEXT),
            kinds=np.array(self._kinds or [0] * at.KIND_WIDTH, dtype=np.int32),
            keys=np.array(self._keys or [0], dtype=np.int32),
            addresses=np.array(self._addresses or [0], dtype=np.int32),
            requests=requests,
            events=aligned((room, at.EVENT_WIDTH)),
            links=linked(_ints([], at.LINK_WIDTH), 0, room, at.L_NEXT),
            near=aligned((at.NEAR_ROOM, at.NEAR_WIDTH)),
            wheel=np.full(room, at.NONE, dtype=np.int32),
            heap=aligned((room, 2)),
            combos=aligned((_FIRST_ROOM, at.COMBO_WIDTH), np.int32),
            combo_table=np.full(2 * _FIRST_ROOM, -1, dtype=np.int32),
            ended=np.zeros((_FIRST_ROOM, at.ENDED_WIDTH), dtype=np.int64),
            rows=np.zeros((at.COLUMNS, 1), dtype=np.int64),
            late=np.zeros((_FIRST_ROOM, 3), dtype=np.int64),
            homes=np.array(homes or [0], dtype=np.int32),
            in_flight=np.zeros(at.MOST_NODES, dtype=np.int64),
            apart=np.zeros((max(1, len(self._group_rows)), len(self._limiter.legs) + 1), np.int64),
        )

    def _balancer(self, clock: list[int]) -> list[int]:
        """Write what chooses a node; return the nodes of keys and addresses."""
        nodes = self._profile.nodes
        if nodes.is_exact:
            return []
        clock[at.NODES] = nodes.count
        clock[at.BALANCE] = BALANCES[nodes.balance]
        clock[at.NODE_STREAM] = self._node_stream
        if clock[at.BALANCE] != BY_NAME:
            return []
        keys = list(self._key_numbers) if nodes.balance == "key" else []
        clock[at.HOME_KEYS] = len(keys)
        return [home_of(name, nodes.count) for name in (*keys, *self._address_numbers)]


def _ints(rows: Sequence[Sequence[int]], width: int) -> Any:  # noqa: ANN401 # reason: an array
    return longer(np.array(rows, dtype=np.int64).reshape(-1, width), len(rows))


class Numbers:
    """Distributions and tables; each method puts one where it belongs, and says where."""

    def __init__(self) -> None:
        self.draws: list[tuple[int, int, int, int]] = []
        self.shares: list[float] = []
        self.tables: list[float] = []
        self.values: list[int] = []

    def draw(self, draw: draws.Draw) -> int:
        """Add a distribution."""
        share = 0.0
        if isinstance(draw, draws.Constant):
            row = (drawing.CONSTANT, draw.value_ns, 0, 0)
        elif isinstance(draw, draws.Uniform):
            row = (drawing.UNIFORM, draw.low_ns, draw.high_ns, 0)
        elif isinstance(draw, draws.Exponential):
            row = (drawing.EXPONENTIAL, draw.mean_ns, 0, 0)
        elif isinstance(draw, draws.Lognormal):
            row, share = (drawing.LOGNORMAL, draw.median_ns, 0, 0), draw.sigma
        elif isinstance(draw, draws.Pareto):
            row, share = (drawing.PARETO, draw.least_ns, 0, 0), draw.alpha
        else:
            row = self._discrete(draw)
        self.draws.append(row)
        self.shares.append(share)
        return len(self.draws) - 1

    def _discrete(self, draw: draws.Discrete) -> tuple[int, int, int, int]:
        """Place the values and their weights at the same place of both tables."""
        size = max(len(self.tables), len(self.values))
        self.tables += [0.0] * (size - len(self.tables))
        self.values += [0] * (size - len(self.values))
        self.tables += cumulative_weights(draw.weights or (1.0,) * len(draw.values_ns))
        self.values += draw.values_ns
        return drawing.DISCRETE, size, len(draw.values_ns), 0

    def table(self, table: Sequence[float]) -> int:
        """Add floats."""
        self.tables += table
        return len(self.tables) - len(table)

    def value_place(self, values: Sequence[int]) -> int:
        """Add whole numbers."""
        self.values += values
        return len(self.values) - len(values)


def _statuses(profile: Profile) -> tuple[int, ...]:
    """Return the status that each end of the outside causes: well, timed out, unreachable, code."""
    return at.NONE, 408, 502, profile.outside.reactor_timeout_status


def clock_of(profile: Profile, clock: list[int]) -> None:
    """Write what the profile says of the outside into the run's numbers."""
    outside = profile.outside
    clock[at.CALL_TIMEOUT] = outside.destination_timeout_ns
    clock[at.CODE_TIMEOUT] = outside.reactor_timeout_ns
    clock[at.STATUSES : at.STATUSES + at.LIMITED] = _statuses(profile)
    clock[at.COLD_START] = outside.cold_start_ns
    clock[at.KEEP_HOT] = outside.keep_hot_ns
    clock[at.INSTANCES] = at.NONE if outside.instances_cap is None else outside.instances_cap
