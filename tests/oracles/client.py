"""The client by brute force: a scenario played step by step, as its documentation says.

Written from the README, the docstrings of the scenario (`simulator.scenario.clients`, `.draws`,
`.model`) and the decisions list, for the fidelities that run no bodies. It shares nothing with the
drivers in `simulator.play`. It is handed: who the clients are, with their keys and addresses
(`populate`), the numbers that are drawn (`Draws`, from the documented streams), and a judge of
limits (`tests.oracles.limits`).

There are no timers. Everybody who waits says, when asked, at which instant and in which place of
that instant they would go on as things stand; the first of all goes on, and then all are asked
again. Paces are kept in fractions. Slow, and easy to believe.

    played = Play(scenario, seed, oracle).whole()
    played.rows, played.requests, played.succeeded, played.failed, played.pending
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from engine.limits import Limiter, Subject
from engine.profile import OutsideProfile, Profile
from simulator.scenario import Scenario, profile_of
from simulator.scenario.clients import (
    AimdPacing,
    Ask,
    DecorrelatedJitter,
    ExponentialRetry,
    FixedRetry,
    FullJitter,
    NoRetry,
    TokenBucketPacing,
)
from simulator.scenario.draws import Draw
from simulator.traffic.draws import uniform_ns
from simulator.traffic.population import Client, KeyHolder, populate
from simulator.traffic.sampling import duration_of, instants_of
from tests.oracles.limits import Oracle

SECOND = 1_000_000_000
_AFTER_REQUESTS = sys.maxsize

Moment: TypeAlias = tuple[int, tuple[int, ...]]
"""An instant, and the place in it: the service's own first, then client, attempt, request, file."""

Wish: TypeAlias = Callable[[], Moment | None]
"""When somebody who waits would go on, as things stand; None: never."""

Story: TypeAlias = Generator[Wish, None, None]


@dataclass
class Row:
    """An attempt; the columns of `requests.parquet`."""

    t_ns: int
    client: int
    attempt: int
    tenant: str | None
    application: str | None
    key: str | None
    ip: str
    method: str
    path: str
    outcome: str
    rule: str | None
    wait_ns: int
    latency_ns: int = 0
    status: int | None = None


@dataclass(frozen=True)
class Question:
    """What a request asks: an entry of the mix, a key and an address; its attempts are equal."""

    ask: Ask
    subject: Subject
    tenant: str | None
    application: str | None
    is_upload: bool = False


class Draws:
    """The numbers that chance gives a client, each kind from the stream of its name."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._durations: dict[str, int | Callable[[], int]] = {}

    def number(self, purpose: str) -> float:
        """Return the next number in (0, 1)."""
        return self.client.stream(purpose).uniform()

    def duration_ns(self, draw: Draw | None, purpose: str) -> int:
        """Return the next duration; nothing is none."""
        if draw is None:
            return 0
        if purpose not in self._durations:
            self._durations[purpose] = duration_of(draw, lambda: self.client.stream(purpose))
        found = self._durations[purpose]
        return found if isinstance(found, int) else found()


# --- what a client paces itself by ---------------------------------------------------------------


class Bucket:
    """A bucket of tokens, refilled continuously; every attempt takes one."""

    def __init__(self, pacing: TokenBucketPacing, start_ns: int) -> None:
        self.size = Fraction(pacing.burst)
        self.a_ns = Fraction(pacing.rate[0], pacing.rate[1])
        self.level, self.at_ns = self.size, start_ns

    def due_ns(self) -> int:
        """Return the first instant at which there is a token."""
        return self.at_ns + max(0, math.ceil((1 - self.level) / self.a_ns))

    def began(self, now_ns: int) -> None:
        """Take a token."""
        self.level = min(self.size, self.level + (now_ns - self.at_ns) * self.a_ns) - 1
        self.at_ns = now_ns

    def answered(self, status: int | None) -> None:
        """Learn nothing."""


class Aimd:
    """A pace in thousandths of a request a second: more with each answer, less with each 429."""

    def __init__(self, pacing: AimdPacing, start_ns: int) -> None:
        self.least, self.most = _thousandths(pacing.minimum), _thousandths(pacing.maximum)
        self.most = max(self.most, self.least)
        self.pace = min(max(_thousandths(pacing.start), self.least), self.most)
        self.step = round(pacing.increase * 1000)
        self.kept_percent = 100 - pacing.decrease_percent
        self.start_ns = start_ns
        self.last_ns: int | None = None

    def due_ns(self) -> int:
        """Return the instant that is 1 / pace after the last attempt began."""
        if self.last_ns is None:
            return self.start_ns
        return self.last_ns + 1000 * SECOND // self.pace

    def began(self, now_ns: int) -> None:
        """Note when an attempt begins."""
        self.last_ns = now_ns

    def answered(self, status: int | None) -> None:
        """Grow or shrink."""
        if status == 429:
            self.pace = max(self.least, self.pace * self.kept_percent // 100)
        else:
            self.pace = min(self.most, self.pace + self.step)


def _thousandths(rate: tuple[int, int]) -> int:
    return max(1, int(Fraction(rate[0] * 1000 * SECOND, rate[1])))


# --- instances that code runs in (RCT-HOT, D-HOT) ------------------------------------------------


@dataclass
class Instance:
    """One instance. lasting: hot from creation, it never dies. ready: it has started."""

    lasting: bool
    ready: bool
    until_ns: int = 0


@dataclass(eq=False)
class Claim:
    """One invocation's place in a pool: in the queue until it has an instance."""

    instance: Instance | None = None
    given_ns: int = 0


class Pool:
    """The instances of one reactor or transform."""

    def __init__(self, outside: OutsideProfile) -> None:
        self.outside = outside
        hot, cap = outside.hot_concurrency, outside.instances_cap
        hot = hot if cap is None else min(hot, cap)
        self.idle = [Instance(lasting=True, ready=True) for _ in range(hot)]
        self.busy = 0
        self.queue: list[Claim] = []

    def claim(self, now_ns: int) -> Claim:
        """Get a lasting instance, else the one that lives longest, else a new one; or queue."""
        claim = Claim()
        self.idle = [each for each in self.idle if each.lasting or now_ns < each.until_ns]
        if self.idle:
            chosen = max(self.idle, key=lambda each: (each.lasting, each.until_ns))
            self.idle.remove(chosen)
            claim.instance = chosen
        elif self.outside.instances_cap is None or self.busy < self.outside.instances_cap:
            claim.instance = Instance(lasting=False, ready=False)
        else:
            self.queue.append(claim)
            return claim
        self.busy += 1
        return claim

    def release(self, claim: Claim, now_ns: int) -> None:
        """Hand the instance to the first in the queue, or let it idle or die; or stop queuing."""
        instance = claim.instance
        if instance is None:
            self.queue.remove(claim)
        elif self.queue:
            following = self.queue.pop(0)
            following.instance, following.given_ns = instance, now_ns
        else:
            self.busy -= 1
            instance.until_ns = now_ns + self.outside.keep_hot_ns
            if instance.lasting or (instance.ready and self.outside.keep_hot_ns):
                self.idle.append(instance)


# --- the play ------------------------------------------------------------------------------------


class Play:
    """A scenario from its start until nobody would go on any more."""

    def __init__(self, scenario: Scenario, seed: int, limits: Oracle | Limiter) -> None:
        self.scenario = scenario
        self.profile: Profile = profile_of(scenario)
        self.limits = limits
        self.now = 0
        self.rows: list[Row] = []
        self.requests = self.succeeded = self.failed = 0
        self.pools: dict[str, Pool] = {}
        self._waiting: list[tuple[int, Wish, Story]] = []
        self._begun = 0
        for client in populate(scenario, seed).clients:
            Actor(self, client).start()

    @property
    def pending(self) -> int:
        """Requests that began and had not ended at the run's end."""
        return self.requests - self.succeeded - self.failed

    def whole(self) -> Play:
        """Let the first of all who wait go on, until there is none."""
        while True:
            moments = [(wish(), number, story) for number, wish, story in self._waiting]
            ready = [(*moment, number, story) for moment, number, story in moments if moment]
            if not ready:
                return self
            self.now, _, number, story = min(ready, key=lambda each: each[:3])
            self._waiting = [each for each in self._waiting if each[0] != number]
            self.go_on(story)

    def go_on(self, story: Story) -> None:
        """Tell a story up to where it waits, from now on."""
        wish = next(story, None)
        if wish is not None:
            self._begun += 1
            self._waiting.append((self._begun, wish, story))

    def at(self, t_ns: int, *place: int) -> Wish:
        """Go on at an instant."""
        return lambda: (t_ns, place)

    def service(self, for_ns: int) -> Iterator[Wish]:
        """Let the service take some time; no time is none."""
        if for_ns > 0:
            yield self.at(self.now + for_ns, -1)

    def began(self, began_ns: int) -> None:
        """Count a request that begins, after the warm-up."""
        self.requests += began_ns >= self.scenario.warm_up_ns

    def ended(self, began_ns: int, *, well: bool) -> None:
        """Count a request that ends, before the run's end."""
        if began_ns >= self.scenario.warm_up_ns and self.now < self.scenario.duration_ns:
            self.succeeded += well
            self.failed += not well


@dataclass
class Queued:
    """A request that has arrived and is not sent yet."""

    serial: int
    question: Question
    arrival_ns: int
    until_ns: int | None
    is_sent: bool = False
    is_over: bool = False


class Actor:
    """One client."""

    def __init__(self, play: Play, client: Client) -> None:
        group = client.group
        self.play, self.client, self.group = play, client, group
        self.draws = Draws(client)
        end_ns = play.scenario.duration_ns
        self.stop_ns = end_ns if group.stop_ns is None else min(end_ns, group.stop_ns)
        self.line: list[object] = []
        self.places_taken = self.files = 0
        self.queue: list[Queued] = []
        self.pace: Bucket | Aimd | None = None
        if isinstance(group.pacing, TokenBucketPacing):
            self.pace = Bucket(group.pacing, group.start_ns)
        elif isinstance(group.pacing, AimdPacing):
            self.pace = Aimd(group.pacing, group.start_ns)

    def start(self) -> None:
        """Begin every loop of a closed client, or look for an open one's first arrival."""
        if self.group.loop == "open":
            self.play.go_on(self.open_loop())
        else:
            for lane in range(self.group.concurrency or 1):
                self.play.go_on(self.closed_loop(lane))

    def before_stop(self, t_ns: int, attempt: int, *number: int) -> Wish:
        """Go on at an instant, in the client's place for an attempt; never from the stop on.

        number: the request's, and of a further file of a split job the file's.
        """
        place = (self.client.number, attempt, *number)
        return lambda: (t_ns, place) if t_ns < self.stop_ns else None

    # --- loops ---

    def closed_loop(self, lane: int) -> Story:
        """Think, ask, wait for the answer, and again."""
        purpose = f"think-{lane}" if lane else "think"
        from_ns = self.group.start_ns
        while True:
            think_ns = self.draws.duration_ns(self.group.think, purpose)
            yield self.before_stop(from_ns + think_ns, 1, lane)
            yield from self.request(lane)
            from_ns = self.play.now

    def open_loop(self) -> Story:
        """Ask at each arrival; with `concurrency` at most so many requests are under way."""
        instants = instants_of(self.group, self.play.scenario)(self.client)
        most = self.group.concurrency
        for serial, t_ns in enumerate(instants):
            yield self.before_stop(t_ns, 1, serial)
            if most is None:
                self.play.go_on(self.request(serial))
            elif self.places_taken < most:
                self.places_taken += 1
                self.play.go_on(self.place(serial))
            else:
                self.play.go_on(self.wait_for_a_place(serial))

    def place(self, serial: int) -> Story:
        """Play a request, then whoever waits for its place."""
        yield from self.request(serial)
        while self.play.now < self.stop_ns:
            self.queue = [queued for queued in self.queue if not queued.is_over]
            if not self.queue:
                break
            queued = self.queue.pop(0)
            yield self.before_stop(self.play.now, 1, queued.serial)
            if not queued.is_over:
                queued.is_sent = True
                yield from self.files_of(queued.question, queued.arrival_ns, queued.serial)
        self.places_taken -= 1

    def wait_for_a_place(self, serial: int) -> Story:
        """Stand in the queue until a place is free, or fail at the deadline."""
        now, deadline_ns = self.play.now, self.group.deadline_ns
        until_ns = None if deadline_ns is None else now + deadline_ns
        queued = Queued(serial, self.question(), now, until_ns)
        files = self.file_count(queued.question)
        for _ in range(files):
            self.play.began(now)
        self.queue.append(queued)
        if until_ns is None:
            return
        yield self.before_stop(until_ns, 0, serial)
        if not queued.is_sent:
            queued.is_over = True
            for _ in range(files):
                self.play.ended(now, well=False)

    # --- a request ---

    def request(self, serial: int) -> Story:
        """Draw what is asked; a split job is several, begun together, the last is waited for."""
        question, now = self.question(), self.play.now
        for _ in range(self.file_count(question)):
            self.play.began(now)
        yield from self.files_of(question, now, serial)

    def file_count(self, question: Question) -> int:
        """Return how many requests a request is: more than one where a job is split."""
        if not (_is_job(question.ask) and question.ask.split):
            return 1
        limit_bytes = self.play.profile.account_updater.file_limit_bytes
        return max(1, math.ceil(Fraction(question.ask.size_bytes, limit_bytes)))

    def files_of(self, question: Question, arrival_ns: int, serial: int) -> Story:
        """Send what began at an arrival."""
        for _ in range(self.file_count(question) - 1):
            self.files += 1
            self.play.go_on(self.attempts(question, arrival_ns, _AFTER_REQUESTS, self.files))
        yield from self.attempts(question, arrival_ns, serial)

    def question(self) -> Question:
        """Draw an entry of the mix, a key and an address."""
        mix = self.group.mix
        ask = mix[0]
        if len(mix) > 1:
            sums = [sum(a.weight for a in mix[: place + 1]) for place in range(len(mix))]
            aim = self.draws.number("mix") * sums[-1]
            ask = next(a for a, upper in zip(mix, sums, strict=True) if aim < upper)
        key_place, address_place = self.client.deal_key(), self.client.deal_address()
        holder = self.client.keys[key_place] if self.client.keys else None
        return _question(self.play.scenario, ask, holder, self.client.addresses[address_place])

    def attempts(self, question: Question, began_ns: int, *number: int) -> Story:
        """Play a request up to its end; and the upload that follows a job."""
        play = self.play
        queued_ns, attempt, last_ns = play.now - began_ns, 1, 0
        until_ns = None if self.group.deadline_ns is None else began_ns + self.group.deadline_ns
        while True:
            if self.pace is not None:
                yield from self.turn(until_ns, attempt, *number)
                if until_ns is not None and play.now >= until_ns:
                    play.ended(began_ns, well=False)
                    return
            row = self.arrive(question, attempt)
            status = yield from self.answer(question, row, queued_ns, *number)
            queued_ns = 0
            if status is None:
                well = until_ns is None or play.now < until_ns
                play.ended(began_ns, well=well)
                if _is_job(question.ask) and not question.is_upload:
                    yield from self.upload(question, *number)
                return
            if not self.is_retried(status, attempt):
                break
            last_ns = self.delay_ns(attempt, last_ns)
            next_ns = play.now + max(last_ns, self.told_ns(status, row.wait_ns))
            if until_ns is not None and next_ns >= until_ns:
                if play.now < until_ns:
                    yield self.before_stop(until_ns, 0, *number)
                break
            attempt += 1
            yield self.before_stop(next_ns, attempt, *number)
        play.ended(began_ns, well=False)

    def turn(self, until_ns: int | None, attempt: int, *number: int) -> Iterator[Wish]:
        """Wait in line until the pace allows an attempt, or until the deadline."""
        play, pace, me = self.play, self.pace, object()
        assert pace is not None
        self.line.append(me)

        def wish() -> Moment | None:
            moments = []
            if self.line[0] is me:
                due_ns = max(play.now, pace.due_ns())
                moments.append((due_ns, (self.client.number, attempt, *number)))
            if until_ns is not None:
                moments.append((until_ns, (self.client.number, 0, *number)))
            return min((each for each in moments if each[0] < self.stop_ns), default=None)

        if self.line[0] is not me or pace.due_ns() > play.now:
            yield wish
        self.line.remove(me)
        if until_ns is None or play.now < until_ns:
            pace.began(play.now)

    def is_retried(self, status: int, attempt: int) -> bool:
        """Whether an answer is retried."""
        retry = self.group.retry
        return (
            not isinstance(retry, NoRetry) and attempt < retry.attempts and status in retry.statuses
        )

    def told_ns(self, status: int, wait_ns: int) -> int:
        """Return what the answer's Retry-After says, where it has one and the client heeds it."""
        retry, told = self.group.retry, self.play.profile.http.retry_after
        if status != 429 or not told or isinstance(retry, NoRetry) or not retry.honour_retry_after:
            return 0
        return max(1, math.ceil(Fraction(wait_ns, SECOND))) * SECOND

    def delay_ns(self, attempt: int, last_ns: int) -> int:
        """Return the retry's own delay after attempt 1, 2 and on."""
        retry = self.group.retry
        if isinstance(retry, FixedRetry):
            return retry.delay_ns
        assert not isinstance(retry, NoRetry)
        if isinstance(retry, DecorrelatedJitter):
            high_ns = 3 * (retry.base_ns if attempt == 1 else last_ns)
            own_ns: int = uniform_ns(self.draws.number("retry"), retry.base_ns, high_ns)
            return min(retry.cap_ns, own_ns)
        full_ns = min(retry.cap_ns, retry.base_ns << (attempt - 1))
        if isinstance(retry, ExponentialRetry):
            return full_ns
        assert isinstance(retry, FullJitter)
        jittered_ns: int = uniform_ns(self.draws.number("retry"), 0, full_ns)
        return jittered_ns

    def upload(self, job: Question, *number: int) -> Story:
        """Upload the job's file: a request of its own, without a key."""
        yield self.before_stop(self.play.now, 1, *number)
        subject = Subject("PUT", "/batch-files/{id}", job.subject.ip)
        now, upload = self.play.now, Question(job.ask, subject, None, None, is_upload=True)
        self.play.began(now)
        yield from self.attempts(upload, now, *number)

    # --- an attempt ---

    def arrive(self, question: Question, attempt: int) -> Row:
        """Let the limits decide."""
        subject = question.subject
        verdict = self.play.limits.decide(self.play.now, subject)
        row = Row(
            self.play.now,
            self.client.number,
            attempt,
            question.tenant,
            question.application,
            subject.key_id,
            subject.ip,
            subject.method,
            subject.path,
            verdict.outcome,
            verdict.rule,
            verdict.wait_ns,
        )
        self.play.rows.append(row)
        return row

    def answer(
        self, question: Question, row: Row, queued_ns: int, *number: int
    ) -> Generator[Wish, None, int | None]:
        """Wait for the answer; return the status of a failure, None where the attempt succeeded.

        queued_ns: how long the request waited for a place, which its first latency counts.
        """
        play, ask = self.play, question.ask
        status: int | None = None
        times = self.outside_times(ask)
        if row.outcome in {"refused", "blocked"}:
            row.latency_ns = queued_ns
            status = 429
        else:
            service_ns = self.draws.duration_ns(self.group.service, "service")
            is_outside = ask.proxy is not None or ask.reactor is not None
            if is_outside:
                status = yield from self.outside(ask, row.wait_ns, times)
                row.status = status
                play_ns = play.now + service_ns
            else:
                play_ns = play.now + row.wait_ns + service_ns
            row.latency_ns = queued_ns + play_ns - row.t_ns
            if is_outside or play_ns > row.t_ns:
                yield play.at(play_ns, self.client.number, 0, *number)
        if self.pace is not None:
            self.pace.answered(status)
        return status

    def outside_times(self, ask: Ask) -> dict[str, int]:
        """Draw what the outside does to an attempt: once an attempt, refused ones too."""
        scenario, draws = self.play.scenario, self.draws
        for reactor in scenario.reactors:
            if reactor.name == ask.reactor:
                return {"code": draws.duration_ns(reactor.service, f"react {reactor.name}")}
        for proxy in scenario.proxies:
            if proxy.name == ask.proxy:
                name, share = proxy.name, proxy.unreachable_share
                return {
                    "destination": draws.duration_ns(proxy.destination, f"destination {name}"),
                    "reached": int(not share or draws.number(f"reach {name}") >= share),
                    "request": draws.duration_ns(
                        proxy.request_transform, f"request transform {name}"
                    ),
                    "response": draws.duration_ns(
                        proxy.response_transform, f"response transform {name}"
                    ),
                }
        return {}

    def outside(
        self, ask: Ask, wait_ns: int, times: dict[str, int]
    ) -> Generator[Wish, None, int | None]:
        """Wait for a reactor, or for a proxy's transforms and destination."""
        play, limit_ns = self.play, self.play.profile.outside.destination_timeout_ns
        yield from play.service(wait_ns)
        if ask.reactor is not None:
            return (yield from self.code(f"reactor {ask.reactor}", times["code"]))
        proxy = next(each for each in play.scenario.proxies if each.name == ask.proxy)
        if proxy.request_transform is not None:
            status = yield from self.code(f"request {proxy.name}", times["request"])
            if status is not None:
                return status
        yield from play.service(min(times["destination"], limit_ns))
        if times["destination"] > limit_ns:
            return 408
        if not times["reached"]:
            return 502
        if proxy.response_transform is not None:
            return (yield from self.code(f"response {proxy.name}", times["response"]))
        return None

    def code(self, name: str, run_ns: int) -> Generator[Wish, None, int | None]:
        """Run code in an instance: wait for one, start it where it is cold, run; all in 30 s."""
        play, outside = self.play, self.play.profile.outside
        pool = play.pools.setdefault(name, Pool(outside))
        until_ns = play.now + outside.reactor_timeout_ns
        claim = pool.claim(play.now)
        if claim.instance is None:
            # Who waited goes on after all else that the service does at that instant.
            yield lambda: (until_ns if claim.instance is None else claim.given_ns, (-1, 1))
        in_time = claim.instance is not None
        if claim.instance is not None and not claim.instance.ready:
            left_ns = until_ns - play.now
            yield from play.service(min(outside.cold_start_ns, left_ns))
            in_time = outside.cold_start_ns <= left_ns
            claim.instance.ready = in_time
        if in_time:
            left_ns = until_ns - play.now
            yield from play.service(min(run_ns, left_ns))
            in_time = run_ns <= left_ns
        pool.release(claim, play.now)
        return None if in_time else outside.reactor_timeout_status


def _is_job(ask: Ask) -> bool:
    return ask.request.partition("?")[0] == "POST /account-updater/jobs"


def _question(scenario: Scenario, ask: Ask, holder: KeyHolder | None, ip: str) -> Question:
    """Return who asks for what: a key's rules, those of a proxy's key or of its hostname."""
    method, path = ask.request.split(" ", 1)
    proxy = next((each for each in scenario.proxies if each.name == ask.proxy), None)
    tenant = holder.tenant if holder else proxy.tenant if proxy else None
    subject = Subject(
        method,
        path,
        ip,
        key_id=holder.label if holder else None,
        tenant_kind=holder.tenant_kind if holder else None,
        application_kind=holder.application_kind if holder else None,
        legacy=holder.legacy if holder else False,
        table=holder.table if holder else "Default",
        proxy_key_id=proxy.name if proxy and ask.via == "key" and not proxy.require_auth else None,
        host_id=proxy.name if proxy and ask.via == "host" else None,
    )
    return Question(ask, subject, tenant, holder.application if holder else None)
