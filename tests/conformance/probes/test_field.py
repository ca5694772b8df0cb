"""Verdicts that hold in the field: a front's answers, warm keys, and what could not be seen."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from conformance.checks import limits
from conformance.probes.families import Family, Rate, fits
from conformance.probes.measurement import measure, neighbours, with_sight
from conformance.probes.rows import ROWS
from conformance.probes.sightings import Sighting, broken_blocks, outcomes_of
from conformance.report.terminal import show_report
from conformance.runner.bench import Bench
from conformance.runner.runner import Options, Run
from conformance.runner.verdicts import Finding, Verdict
from conformance.target import Budget
from conformance.wire.exchange import Ask, Exchange
from conformance.wire.in_process import deploy
from conformance.wire.transport import Place
from engine import Engine, LimitTable, Profile, Request, Response
from engine.profile import Algorithm
from tests.conformance import field
from tests.conformance.probes.measured import SECOND_NS, Measured, Stalling, jittery, play

SEED = LimitTable.default()
RATE = Rate(50, 10 * SECOND_NS)


def answered(statuses: list[int | None]) -> list[Exchange]:
    ask = Ask(method="POST", path="/tokenize")
    return [
        Exchange(number, "check", "lane", number, ask, number, number + 1, status)
        for number, status in enumerate(statuses, 1)
    ]


@pytest.mark.parametrize("status", [None, 408, 413, 414, 431, 500, 502, 503, 504])
def test_what_a_front_answers_is_neither_an_admission_nor_a_refusal(status: int | None) -> None:
    assert outcomes_of(answered([200, status, 429])) == ["admitted", "lost", "refused"]
    assert outcomes_of(answered([200, status, 200])) == ["admitted", "lost", "admitted"]


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_what_a_limiter_lets_through_is_an_admission_whatever_it_becomes(status: int) -> None:
    assert outcomes_of(answered([status, status, 429])) == ["admitted", "admitted", "refused"]


@pytest.mark.parametrize("counted", [True, False])
def test_a_lost_request_may_have_counted_or_not(counted: bool) -> None:
    """In its own burst, and as long as it may lie in the window."""
    rest = 50 - 10 if counted else 50
    first = [*[Sighting(0, 1)] * 20, *[Sighting(0, 1, "lost")] * 10]
    then = [Sighting(10, 11)] * (rest - 20) + [Sighting(10, 11, "refused")] * 5
    assert fits([[first, then]], RATE, Family("sliding-log"))
    assert measure([[first, then]], RATE).fault is None
    fewer = [Sighting(10, 11)] * 9 + [Sighting(10, 11, "refused")] * 45
    assert not fits([[first, fewer]], RATE, Family("sliding-log"))


def test_a_lost_request_may_have_begun_the_block() -> None:
    lost, refused = Sighting(0, 5, "lost"), Sighting(60, 61, "refused")
    assert broken_blocks([refused, Sighting(120, 121)], 100)
    assert not broken_blocks([lost, refused, Sighting(120, 121)], 100)


def test_what_was_sent_before_a_rest_is_taken_and_not_judged() -> None:
    """Somebody else has left room for ten: no fault of the deployment's."""
    warm = [Sighting(0, 1)] * 10 + [Sighting(0, 1, "refused")] * 5
    later = 20 * SECOND_NS
    fresh = [Sighting(later, later + 1)] * 50 + [Sighting(later, later + 1, "refused")] * 5
    assert measure([[warm, fresh]], RATE).fault is not None
    assert measure([[warm, fresh]], RATE, since_ns=later).fault is None


def runs_in_a_row(
    *checks: str, runs: int = 3, table: LimitTable | None = None, **limits: Any
) -> list[Run]:
    """Play checks on one deployment, run after run, with no time between."""
    made = deploy(limits=table, profile=Profile().replace(limits=limits))
    found = []
    for seed in range(runs):
        ids = tuple(f"limits.{name}" for name in checks)
        run = Run(made.target, Options(checks=ids, seed=seed), transport=made.transport)
        run.execute()
        found.append(run)
    return found


def about(run: Run, clause: str) -> list[Finding]:
    return [one for one in run.findings if one.clause == clause]


@pytest.mark.parametrize("rule_id", ["LIM-PUBLIC", "LIM-LEGACY"])
def test_keys_that_the_last_run_has_used_are_rested(rule_id: str) -> None:
    for run in runs_in_a_row(rule_id):
        assert {one.verdict for one in about(run, rule_id)} == {Verdict.PASS}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["sliding-log", "sliding-counter"])
def test_a_run_on_warm_keys_takes_as_long_as_it_says(algorithm: Algorithm) -> None:
    """The keys of all rows rest side by side; no probe waits on after they were found warm."""
    made = deploy(profile=Profile().replace(limits={"algorithm": algorithm}))
    ids = tuple(f"limits.{name}" for name in ("LIM-MANAGEMENT", "LIM-SEARCH", "block"))
    first, *later = [
        Run(made.target, Options(checks=ids, seed=seed), transport=made.transport).execute()
        for seed in range(3)
    ]
    assert first.took_ns <= 1.1 * (first.floor_ns + first.rest.more_ns)
    assert not first.rest.is_warm
    for report in later:
        assert report.rest.is_warm
        windows = 2 if algorithm == "sliding-counter" else 1
        # A row that is still open then rests for a window more, and is measured again.
        more_ns = report.rest.more_ns - windows * 60 * SECOND_NS
        assert more_ns == 0 or (windows == 2 and more_ns >= 60 * SECOND_NS)
        assert report.took_ns <= 1.1 * (report.floor_ns + report.rest.more_ns)
        console = Console(file=io.StringIO(), width=200)
        show_report(console, report)
        said = "more for keys still warm"
        assert said in console.file.getvalue()  # type: ignore[attr-defined] # reason: StringIO


@pytest.mark.parametrize(("others", "is_polled"), [((), True), (("LIM-SEARCH",), False)])
def test_borders_of_windows_are_looked_for_only_where_windows_may_be_fixed(
    others: tuple[str, ...], is_polled: bool
) -> None:
    """A row per minute polled for two minutes more, and the end line did not say so."""
    made = deploy(latency=jittery(3, 15, 15))
    ids = tuple(f"limits.{name}" for name in ("LIM-LEGACY", *others))
    report = Run(made.target, Options(checks=ids, seed=5), transport=made.transport).execute()
    assert (report.rest.more_ns > 60 * SECOND_NS) is is_polled
    assert report.took_ns <= 1.1 * (report.floor_ns + report.rest.more_ns)
    console = Console(file=io.StringIO(), width=200)
    show_report(console, report)
    said = "more for further measurements"
    assert (said in console.file.getvalue()) is is_polled  # type: ignore[attr-defined] # reason: StringIO


def test_what_shows_an_operation_to_exist_counts_in_no_row() -> None:
    """Its request was missing from the row's history: a sliding counter failed LIM-PATCH."""
    run = _half_full("LIM-PATCH", 40, algorithm="sliding-counter")
    asked = [one for one in run.session.exchanges.values() if one.check == "limits.LIM-PATCH"]
    own = {one.ask.key for one in asked if one.lane == "LIM-PATCH"}
    there = {one.ask.key for one in asked if one.lane == "LIM-PATCH there"}
    assert there
    assert not own & there


@pytest.mark.slow
@pytest.mark.parametrize("rule_id", ["LIM-MANAGEMENT", "LIM-LEGACY"])
def test_a_window_before_the_last_run_is_weighed_and_is_no_failure(rule_id: str) -> None:
    """A sliding counter forgets after two windows; its edges may lie anywhere."""
    for run in runs_in_a_row(rule_id, runs=2, algorithm="sliding-counter"):
        assert Verdict.FAIL not in {one.verdict for one in about(run, rule_id)}


def _half_full(rule_id: str, used: int, seed: int = 3, **limits: Any) -> Run:
    """Play a row on keys that somebody has used a little, immediately before the run."""
    made = deploy(profile=Profile().replace(limits=limits))
    options = Options(checks=(f"limits.{rule_id}",), seed=seed)
    run = Run(made.target, options, transport=made.transport)
    dealt = run.plan().dealt[0]
    row = ROWS[rule_id]
    key = dealt.keys[row.role or ""][0]
    bench = Bench(dealt.check, run.session, keys=dealt.keys, sources=dealt.sources)
    asker = row.asker(bench, row.operation, key=key, sources=dealt.sources[:1])
    place = Place("before", "somebody", 1)
    made.transport.run([made.transport.send(asker(turn), place) for turn in range(used)])
    run.execute()
    return run


@pytest.mark.parametrize("used", [20, 50])
@pytest.mark.parametrize("algorithm", ["sliding-log", "token-bucket"])
@pytest.mark.parametrize("rule_id", ["LIM-SEARCH", "LIM-PUBLIC"])
def test_a_counter_that_is_half_full_at_the_start_fails_nothing(
    rule_id: str, algorithm: str, used: int
) -> None:
    run = _half_full(rule_id, used, algorithm=algorithm)
    assert {one.verdict for one in about(run, rule_id)} == {Verdict.PASS}


@pytest.mark.parametrize("limit", [49, 51])
def test_a_wrong_limit_fails_on_warm_keys_too(limit: int) -> None:
    rate = SEED["LIM-PUBLIC"].rate._replace(limit_requests=limit)
    table = SEED.replace_rule("LIM-PUBLIC", rate=rate)
    for run in runs_in_a_row("LIM-PUBLIC", runs=2, table=table):
        assert Verdict.FAIL in {one.verdict for one in about(run, "LIM-PUBLIC")}


@pytest.mark.parametrize("limit", [45, 51, 60])
def test_a_windows_edge_inside_a_burst_excuses_no_other_number(limit: int) -> None:
    """Fixed windows may admit more than the rate, but not in two bursts at different phases."""
    rate = SEED["LIM-PUBLIC"].rate._replace(limit_requests=limit)
    table = SEED.replace_rule("LIM-PUBLIC", rate=rate)
    found = play("LIM-PUBLIC", table=table, algorithm="fixed-window")
    assert found.failed == {"LIM-PUBLIC"}


@pytest.mark.slow
def test_the_window_of_fixed_windows_is_told_run_after_run() -> None:
    """Wherever the clock's borders lie: two of them are looked for where bursts miss them."""
    conditions = field.Conditions("fixed-window", "refuse", 50, in_a_row=2)
    for played in field.play_each(conditions, checks=["limits.LIM-PROXY-KEY"]):
        assert not played.failed
        assert not played.unsaid


@pytest.mark.parametrize("window_s", [9, 11])
def test_a_window_a_tenth_off_fails_where_windows_are_fixed(window_s: int) -> None:
    rate = SEED["LIM-PROXY-KEY"].rate._replace(window_ns=window_s * SECOND_NS)
    table = SEED.replace_rule("LIM-PROXY-KEY", rate=rate)
    found = play("LIM-PROXY-KEY", table=table, algorithm="fixed-window")
    assert found.failed == {"LIM-PROXY-KEY"}


FIXED = ("LIM-SEARCH", "LIM-LEGACY")
"""Throttle rows that show when windows of ten seconds and of a minute begin."""


@pytest.mark.slow
def test_blocks_are_told_where_windows_are_fixed() -> None:
    """A row that blocks is looked at across a border, which throttle rows have shown."""
    found = play(*FIXED, "LIM-PUBLIC", "block", algorithm="fixed-window")
    assert not {"LIM-PUBLIC", "LIM-BLOCK", *FIXED} & found.open


@pytest.mark.slow
@pytest.mark.parametrize("block_s", [5, 15])
def test_a_block_of_another_length_fails_where_windows_are_fixed(block_s: int) -> None:
    table = SEED.replace_rule("LIM-PUBLIC", block_ns=block_s * SECOND_NS)
    found = play(*FIXED, "LIM-PUBLIC", table=table, algorithm="fixed-window")
    assert found.failed == {"LIM-PUBLIC"}


@pytest.mark.slow
@pytest.mark.parametrize("window_s", [54, 66])
def test_a_window_of_a_block_row_a_tenth_off_is_not_passed_where_windows_are_fixed(
    window_s: int,
) -> None:
    rate = SEED["LIM-PUBLIC"].rate._replace(window_ns=window_s * SECOND_NS)
    table = SEED.replace_rule("LIM-PUBLIC", rate=rate)
    found = play(*FIXED, "LIM-PUBLIC", table=table, algorithm="fixed-window")
    assert "LIM-PUBLIC" in found.open


@pytest.mark.parametrize("block_s", [5, 15, 20, 120])
def test_a_block_of_another_length_is_not_one_that_refusals_extend(block_s: int) -> None:
    table = SEED.replace_rule("LIM-PUBLIC", block_ns=block_s * SECOND_NS)
    found = play("LIM-SEARCH", "LIM-PUBLIC", table=table)
    worst = max(one.verdict for one in found.run.findings if one.clause == "LIM-PUBLIC")
    assert worst is Verdict.FAIL or (worst is Verdict.INCONCLUSIVE and block_s > 10)


def test_the_sentence_about_a_longer_block_says_what_was_seen() -> None:
    """A block of 45 s was told as one of 36 s, which would have looked the same."""
    found = play("LIM-PUBLIC", table=SEED.replace_rule("LIM-PUBLIC", block_ns=15 * SECOND_NS))
    assert "still refused 10.0 s after the refusal before it" in found.says("LIM-PUBLIC")
    assert "a block of 12 s to 15 s would explain it" in found.says("LIM-PUBLIC")


@pytest.mark.slow
def test_a_longer_block_that_refusals_extend_fails() -> None:
    """What is silent for longer than the block may last, and refused still, is not extended."""
    table = SEED.replace_rule("LIM-MANAGEMENT", block_ns=90 * SECOND_NS)
    found = play("LIM-MANAGEMENT", table=table, block_extends=True)
    assert found.failed == {"LIM-MANAGEMENT"}
    assert "s without any request; the row says 200 per 60 s" in found.says("LIM-MANAGEMENT")


@pytest.mark.slow
def test_a_block_of_the_rows_length_that_refusals_extend_passes() -> None:
    found = play("LIM-MANAGEMENT", block_extends=True)
    assert not found.failed


@pytest.mark.parametrize("limit", [45, 50])
def test_without_time_for_a_second_look_nothing_is_failed_and_the_first_is_kept(
    limit: int,
) -> None:
    budget = Budget(requests=100_000, minutes=2)
    rate = SEED["LIM-PUBLIC"].rate._replace(limit_requests=limit)
    table = SEED.replace_rule("LIM-PUBLIC", rate=rate, block_ns=15 * SECOND_NS)
    found = play("LIM-PUBLIC", table=table, target={"budget": budget})
    (finding,) = [one for one in found.run.findings if one.verdict is not Verdict.PASS]
    assert finding.verdict is Verdict.INCONCLUSIVE
    assert (
        "a second measurement after a rest would decide it, but the budget of 2 min" in finding.says
    )


def _slowed(algorithm: str, limit: int, latency_ms: int) -> Measured:
    """Play LIM-CREATE with another number and a throttle that slows, through some latency."""
    rate = SEED["LIM-CREATE"].rate._replace(limit_requests=limit)
    table = SEED.replace_rule("LIM-CREATE", rate=rate)
    way = jittery(3, latency_ms, latency_ms // 10)
    return play("LIM-CREATE", table=table, latency=way, algorithm=algorithm, throttle="delay")


@pytest.mark.parametrize("latency_ms", [50, 150])
def test_a_number_is_told_by_when_each_turn_came_through_any_latency(latency_ms: int) -> None:
    """A latency moves every turn alike; what it varies by is much less than a turn's place."""
    assert not _slowed("token-bucket", 200, latency_ms).open
    for limit in (199, 201):
        assert _slowed("token-bucket", limit, latency_ms).open == {"LIM-CREATE"}


@pytest.mark.parametrize(
    ("says", "is_open"),
    [
        ("a limit of 49 would have looked the same", True),
        ("a limit of 51, a window of 9 s or a window of 11 s would have looked the same", True),
        ("a limit of 45 or a limit of 55 would have looked the same", False),
        ("a limit of 490, a limit of 510 or a window of 9 s would have looked the same", False),
    ],
)
def test_a_number_is_looked_at_wherever_a_sentence_leaves_it_open(says: str, is_open: bool) -> None:
    """It may stand before a comma, and behind other findings."""
    found = [
        Finding("LIM-READ", "limits.LIM-READ", Verdict.INFORMATIONAL, "counted as sliding-log"),
        Finding("LIM-READ", "limits.LIM-READ", Verdict.INCONCLUSIVE, f"not decided: {says}"),
    ]
    assert limits.is_number_open(50, found) == is_open


@pytest.mark.parametrize("latency_ms", [50, pytest.param(150, marks=pytest.mark.slow)])
def test_a_buckets_number_is_told_whatever_it_regains_during_a_round_trip(latency_ms: int) -> None:
    """One of 200 regains up to seven requests meanwhile, and looked like one of 201."""
    found = {}
    for limit in (199, 200, 201):
        rate = SEED["LIM-CREATE"].rate._replace(limit_requests=limit)
        table = SEED.replace_rule("LIM-CREATE", rate=rate)
        way = jittery(3, latency_ms, latency_ms // 10)
        found[limit] = play("LIM-CREATE", table=table, latency=way, algorithm="token-bucket")
    assert not found[200].open
    assert found[199].open == found[201].open == {"LIM-CREATE"}


def test_turns_of_another_number_are_not_taken_for_a_server_that_stalled() -> None:
    """Every wait is told by one number exactly: 199 had passed as a server of 20 s a request."""
    assert not _slowed("sliding-log", 200, 50).open
    found = _slowed("sliding-log", 199, 50)
    assert found.failed == {"LIM-CREATE"}
    says = "waited exactly as long as a limit of 199 makes them wait; the row says 200 per 10 s"
    assert says in found.says("LIM-CREATE")


def test_what_could_not_be_seen_is_said_and_not_passed() -> None:
    """LIM-CREATE, through pauses of seconds: 201 must not pass for 200."""
    rate = SEED["LIM-CREATE"].rate._replace(limit_requests=201)
    table = SEED.replace_rule("LIM-CREATE", rate=rate)
    found = play("LIM-CREATE", table=table, latency=Stalling(3, 2, 3))
    assert found.failed or "would have looked the same" in found.says("LIM-CREATE")


def test_a_measurement_names_what_would_have_looked_the_same() -> None:
    """One burst of 50 says nothing of how long the window is."""
    once = [[Sighting(0, 1)] * 50 + [Sighting(0, 1, "refused")] * 5]
    measured = with_sight(measure([once], RATE), [once], "sliding-log")
    assert measured.unseen == ("a window of 9 s", "a window of 11 s")
    assert [name for name, _ in neighbours(Rate(50, 10 * SECOND_NS, 4 * SECOND_NS))] == [
        *(f"a limit of {number}" for number in (49, 51, 45, 55)),
        *("a window of 9 s", "a window of 11 s"),
        *(f"a block of {length} s" for length in ("2", "3.6", "4.4", "6", "8", "12")),
    ]


SAMPLE = [one for one in field.RUNS if one.algorithm in {"sliding-log", "token-bucket"}]


@pytest.mark.slow
@pytest.mark.parametrize("conditions", SAMPLE[1::12], ids=lambda one: one.name)
def test_a_conforming_deployment_is_not_failed(conditions: field.Conditions) -> None:
    """A sample of the 120 runs; `python -m tests.conformance.field` plays all."""
    probes = [name for name in field.MEASURING if name not in field.TIMED]
    played = field.play(conditions, checks=probes)
    assert played.failed == ()


def test_no_choice_of_algorithm_hides_what_a_row_is() -> None:
    """Calm, one row of every algorithm is passed with full sight."""
    for algorithm in field.ALGORITHMS:
        profile = Profile().replace(limits={"algorithm": algorithm})
        made = deploy(profile=profile)
        options = Options(checks=("limits.LIM-SEARCH",), seed=4)
        run = Run(made.target, options, transport=made.transport)
        run.execute()
        assert {one.verdict for one in about(run, "LIM-SEARCH")} == {Verdict.PASS}


class OnlyTokenize(Engine):
    """Has nothing but POST /tokenize; what is not there is under no row."""

    async def submit(self, request: Request) -> Response:
        if request.path.partition("?")[0] != "/tokenize" or request.method != "POST":
            return Response(404, {"title": "not here"})
        return await super().submit(request)


def test_rows_of_what_a_deployment_does_not_have_are_not_judged() -> None:
    """LIM-CREATE is judged on /tokenize alone; searches and patches are skipped, not failed."""
    found = play("LIM-CREATE", "LIM-SEARCH", "LIM-PATCH", "lowest", engine=OnlyTokenize)
    assert found.failed == set()
    verdicts = {one.clause: one.verdict for one in found.run.findings}
    assert verdicts["LIM-SEARCH"] == verdicts["LIM-PATCH"] == Verdict.SKIPPED
    assert verdicts["LIM-CREATE"] == verdicts["LIM-LOWEST"] == Verdict.PASS


def test_an_operation_that_is_there_and_not_limited_is_failed() -> None:
    """Unknown ids are not found here as well: a known one shows that PATCH is there."""
    table = LimitTable(tuple(rule for rule in SEED if rule.id != "LIM-PATCH"))
    assert play("LIM-PATCH", table=table).failed == {"LIM-PATCH"}


@pytest.mark.slow
def test_what_is_there_is_looked_up_once_where_nothing_is_settled() -> None:
    """Slow answers that met no limit: the second look-up was a fault of the harness."""
    table = LimitTable(tuple(rule for rule in SEED if rule.id != "LIM-DELETE"))
    found = play("LIM-DELETE", table=table, told_table=SEED, latency=jittery(3, 5_000, 100))
    assert Verdict.ERROR not in {one.verdict for one in found.run.findings}
    assert "LIM-DELETE" in found.open


def test_what_is_never_refused_is_not_told_as_requests_that_are_spaced() -> None:
    """Later in a run than a block of LIM-IP lasts, no limit at all was told as spaced requests."""
    table = LimitTable(tuple(rule for rule in SEED if rule.id != "LIM-DELETE"))
    found = play("LIM-DELETE", table=table, told_table=SEED, latency=jittery(3, 1_500, 50))
    assert found.failed == {"LIM-DELETE"}


class Fronted(Engine):
    """A front answers the first search by itself; the throttle slows, and searches fail."""

    is_first = True

    async def submit(self, request: Request) -> Response:
        if request.path.startswith("/tokens/search") and self.is_first:
            self.is_first = False
            return Response(413)
        return await super().submit(request)


def test_the_answer_of_a_front_is_not_taken_for_what_the_rows_requests_are_answered() -> None:
    """413 once, and a limit that nothing meets: told as failed requests that do not count."""
    table = LimitTable(tuple(rule for rule in SEED if rule.id != "LIM-SEARCH"))
    found = play("LIM-SEARCH", table=table, told_table=SEED, engine=Fronted)
    assert "are answered 413" not in found.says("LIM-SEARCH")
    assert found.failed == {"LIM-SEARCH"}


class WithoutAccountUpdater(Engine):
    """Has no account updater, and counts what asks for it in the rows for any request."""

    async def submit(self, request: Request) -> Response:
        answer = await super().submit(request)
        if request.path.startswith("/account-updater") and answer.status != 429:
            return Response(404, {"title": "not here"})
        return answer


def test_what_another_row_refuses_on_a_path_that_is_not_there_is_skipped() -> None:
    """The legacy key that asks meets LIM-LEGACY: that says nothing of LIM-ACCOUNT-UPDATER."""
    table = LimitTable(tuple(rule for rule in SEED if rule.id != "LIM-ACCOUNT-UPDATER"))
    found = play("LIM-ACCOUNT-UPDATER", table=table, told_table=SEED, engine=WithoutAccountUpdater)
    assert {one.verdict for one in found.run.findings} == {Verdict.SKIPPED}


def test_any_request_is_judged_on_a_path_that_is_not_there_only_where_it_is_counted() -> None:
    """LIM-PRIVATE by paths of 404: skipped where a router stands before the limiter."""

    class Routed(Engine):
        async def submit(self, request: Request) -> Response:
            if request.path.startswith("/logs"):
                return Response(404, {"title": "not here"})
            return await super().submit(request)

    class Counted(Engine):
        async def submit(self, request: Request) -> Response:
            answer = await super().submit(request)
            is_there = not request.path.startswith("/logs") or answer.status == 429
            return answer if is_there else Response(404, {"title": "not here"})

    found = play("LIM-PRIVATE", engine=Routed)
    assert {one.verdict for one in found.run.findings} == {Verdict.SKIPPED}
    found = play("LIM-PRIVATE", engine=Counted)
    assert {one.verdict for one in found.run.findings} == {Verdict.PASS}
