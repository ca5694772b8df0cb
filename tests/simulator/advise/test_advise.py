"""Advice: right where the truth is known, and supported by runs that can be played again."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

import simulator
from engine.errors import InputError
from simulator.cli import main
from simulator.progress import Interrupted
from simulator.study.advise import advise
from simulator.study.comparison import observe
from simulator.study.runs import replicator
from simulator.views.text import percent_text
from tests.simulator.advise.truth import checked, unconfirmed

UNITS = {"s": 1, "m": 60, "h": 3_600}

ONE_GROUP = """
name = "one-group"
duration = "{duration}"

[[tenants]]
name = "acme"
kind = "{tenant}"

[[applications]]
name = "shop"
tenant = "acme"
kind = "{kind}"
{keys}

[[addresses]]
name = "office"

[[clients]]
name = "workers"
count = {count}
application = "shop"
addresses = "office"
loop = "open"
arrivals = "{rate}"
mix = [{{ request = "{request}" }}]
"""


def one_group(
    request: str = "POST /tokenize",
    *,
    kind: str = "private",
    tenant: str = "production",
    count: int = 1,
    rate: str = "4/1s",
    keys: str = "",
    duration: str = "5m",
) -> str:
    """Return a scenario of one group whose clients share a key and an address."""
    return ONE_GROUP.format(
        request=request,
        kind=kind,
        tenant=tenant,
        count=count,
        rate=rate,
        keys=keys,
        duration=duration,
    )


def per_second(pace: str) -> Fraction:
    """Return a pace such as `6.6/s` in requests a second."""
    number, unit = pace.split("/")
    return Fraction(number) / UNITS[unit]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["visitors", "office"])
def test_advice_holds_by_brute_force_and_is_confirmed(name: str) -> None:
    """`python -m tests.simulator.advise.truth` checks six scenarios, and by 400 runs a value."""
    found, wrong, judged = checked(name, 100)
    assert judged
    assert not wrong
    assert not unconfirmed(found)


def test_what_a_group_met_is_what_its_rows_say() -> None:
    """Changes are observed without rows; the rows have the same numbers."""
    scenario = simulator.load("everyday")
    with replicator() as player:
        (line,) = observe(player, scenario, [11])
    rows = simulator.run(scenario, fidelity="compiled", seed=11, check=False).metrics("group")
    for metric in ("offered", "refused", "refused_share", "goodput_per_s", "attempts_per_success"):
        for group, value in rows[metric].items():
            assert line[f"{metric}{{client='{group}'}}"] == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        pytest.param(one_group(count=3, rate="8/1s"), Fraction(20, 3), id="LIM-CREATE, three"),
        pytest.param(one_group(count=2, rate="8/1s"), Fraction(10), id="LIM-CREATE, two"),
        pytest.param(one_group("GET /tokens", rate="8/1s"), Fraction(10), id="LIM-READ"),
        pytest.param(one_group("POST /tokens/search"), Fraction(5), id="LIM-SEARCH"),
        pytest.param(one_group("PATCH /tokens/{id}", rate="9/1s"), Fraction(20), id="LIM-PATCH"),
        pytest.param(one_group("DELETE /tokens/{id}", rate="9/1s"), Fraction(20), id="LIM-DELETE"),
        pytest.param(
            one_group("GET /account-updater/jobs", rate="2/1s"), Fraction(1), id="LIM-ACCOUNT"
        ),
        pytest.param(one_group(tenant="test"), Fraction(5), id="LIM-TEST-TENANT"),
        pytest.param(
            one_group("GET /applications", kind="management"),
            Fraction(200, 60),
            id="LIM-MANAGEMENT",
        ),
        pytest.param(one_group(kind="public", rate="1/1s"), Fraction(50, 60), id="LIM-PUBLIC"),
        pytest.param(
            one_group(keys="legacy_keys = 1", rate="2/1s"), Fraction(100, 60), id="LIM-LEGACY"
        ),
    ],
)
def test_the_largest_pace_is_what_the_row_says(text: str, truth: Fraction) -> None:
    """Clients at even intervals: the largest pace is the limit's share of each, up to 1 %.

    A throttle that refuses 1 % admits a pace of its limit / 0.99; clients that ask at the same
    instants fill the last places of a window together.
    """
    found = advise(text)
    (line,) = found.pace.to_dict("records")
    assert 0.985 * truth <= per_second(line["keeps"]) <= truth / Fraction(98, 100)
    assert per_second(line["keeps"]) < per_second(line["breaks"]) <= truth / Fraction(97, 100)


def test_a_clause_explains_what_it_refuses() -> None:
    """Where one clause refuses, taking it away leaves nothing refused: it explains all of it."""
    found = advise(one_group("GET /applications", kind="management"))
    (line,) = found.binding.to_dict("records")
    assert line["clause"] == "LIM-MANAGEMENT"
    assert line["refused_share"] > 0.1
    assert line["explains"] == pytest.approx(line["refused_share"])


def test_a_clause_behind_another_explains_less() -> None:
    """On a test tenant the legacy key's limit is behind 50 in 10 s: alone, neither is the cause."""
    text = one_group(tenant="test", keys="legacy_keys = 1", rate="10/1s", duration="2m")
    found = advise(text).binding.set_index("clause")
    assert set(found.index) == {"LIM-TEST-TENANT", "LIM-LEGACY"}
    assert (found["explains"] < found["refused_share"]).any()


def test_the_smallest_limit_is_the_demand() -> None:
    """Four requests a second need 240 a minute, and 239 are too few; that is the price as well."""
    found = advise(one_group("GET /applications", kind="management"), refused=0.0001)
    (line,) = found.limit.to_dict("records")
    assert (line["rule"], line["enough"], line["too_low"]) == ("LIM-MANAGEMENT", "240/1m", "239/1m")
    assert (line["price_now"], line["price"]) == (200, 240)
    (change,) = [each for each in found.suggestions if each.about == "limit"]
    assert change.edits == (("rules.LIM-MANAGEMENT.rate", "240/1m"),)
    assert '+LIM-MANAGEMENT = { rate = "240/1m"' in change.diff(found.scenario)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "price"), [("fixed-window", 400), ("token-bucket", 399), ("sliding-log", 200)]
)
def test_the_price_is_the_worst_case_of_the_algorithm(algorithm: str, price: int) -> None:
    """D-ALGORITHM: a fixed window lets twice its rate through, a bucket one less than twice."""
    text = one_group("GET /applications", kind="management", rate="8/1s")
    scenario = simulator.with_value(simulator.load(text), "choices.limits.algorithm", algorithm)
    assert advise(scenario).limit["price_now"].tolist() == [price]


@pytest.mark.slow
def test_nodes_with_counters_of_their_own_add_up() -> None:
    """Of 480 requests a minute each of two nodes gets 240; both may pass (D-COUNTERS-LIFE)."""
    text = one_group("GET /applications", kind="management", rate="8/1s", duration="1m")
    found = advise(text + '[nodes]\ncount = 2\nsharing = "none"\n', refused=0.0001)
    (line,) = found.limit.to_dict("records")
    assert (line["enough"], line["price_now"], line["price"]) == ("240/1m", 400, 480)
    slow = advise(text + '[nodes]\ncount = 2\nsharing = "shared-slow"\nrace = "100ms"\n')
    assert slow.limit["price_now"].tolist() == [None]


def test_spreading_follows_the_counter() -> None:
    """LIM-MANAGEMENT counts the key alone: more keys help, more addresses cannot (section 8.4)."""
    text = one_group("GET /applications", kind="management", count=4, rate="2/1s")
    found = {each.about: each for each in advise(text).suggestions}
    assert "add no counter" in found["addresses"].text
    assert found["addresses"].edits == ()
    share, goodput = found["keys"].effects
    assert (share.b, share.is_sure) == (0, True)
    assert goodput.change.low > 0


def test_addresses_are_as_many_as_the_network_has_hosts() -> None:
    """A /31 has two hosts (RFC 3021), a /29 six of its eight addresses."""
    text = one_group(kind="public", count=8, rate="3/1s", duration="1m")
    for network, most in (("203.0.113.0/31", 2), ("203.0.113.0/29", 6)):
        pool = f'name = "office"\nnetwork = "{network}"'
        found = advise(text.replace('name = "office"', pool, 1), replications=1)
        (spread,) = [each for each in found.suggestions if each.about == "addresses"]
        assert f"with {most} addresses" in spread.text
        assert dict(spread.edits)["addresses[0].count"] == most


def test_a_batch_is_filled_up_to_the_quota() -> None:
    """QUO-TOKENIZE: five tokens in a request, unless the tenant's quota says otherwise."""
    mix = '"POST /tokenize", tokens = 2'
    text = one_group().replace('"POST /tokenize"', mix)
    (batch,) = [each for each in advise(text).suggestions if each.about == "batch"]
    assert "put 5 tokens" in batch.text
    assert "2.5 times as many" in batch.text
    assert batch.applied_to(simulator.load(text)).clients[0].mix[0].tokens == 5
    quota = text.replace('kind = "production"', 'quotas = { "Tokenize Limit" = 2 }')
    assert not [each for each in advise(quota).suggestions if each.about == "batch"]
    short = one_group("GET /tokens", duration="20s")
    assert not [each for each in advise(short).suggestions if each.about == "batch"]


def test_retries_that_ignore_the_answer_cost_attempts() -> None:
    """In the storm, honouring Retry-After lowers the refused share, and surely so."""
    found = advise("retry-storm", groups=["impatient"], most_replications=5)
    kinder = next(each for each in found.suggestions if "honour Retry-After" in each.text)
    share, _ = kinder.effects
    assert share.change.high < 0
    assert share.is_sure
    (line,) = found.retry.to_dict("records")
    assert line["attempts_per_success"] > 2
    assert 0 < line["refused_after_a_block"] <= 1


def test_a_pace_of_random_arrivals_is_decided_in_a_few_runs() -> None:
    """The border's interval, below 50/m of the limit: Poisson traffic needs room."""
    text = one_group(kind="public", rate="1/1s").replace(
        'arrivals = "1/1s"', 'arrivals = { kind = "poisson", rate = "1/1s" }'
    )
    found = advise(text, most_replications=60)
    (line,) = found.pace.to_dict("records")
    assert line["keeps"] is not None
    assert line["breaks"] is not None
    assert per_second(line["keeps"]) < per_second(line["breaks"]) < Fraction(50, 60)


def test_verify_plays_other_seeds() -> None:
    """`verify` says what fresh runs with the change show, and whether the target is met."""
    text = one_group("GET /applications", kind="management")
    found = advise(text, verify=True)
    verified = {each.about: each.verified for each in found.suggestions if each.edits}
    assert f"{percent_text(0)} refused" in verified["limit"]
    assert verified["limit"].endswith("the target is met.")


def test_verify_does_not_play_the_runs_that_the_advice_rests_on() -> None:
    """Of random arrivals, other runs show another share than those that the advice quotes."""
    text = one_group(kind="public", rate="1/1s").replace(
        'arrivals = "1/1s"', 'arrivals = { kind = "poisson", rate = "1/1s" }'
    )
    text += 'retry = { kind = "fixed", delay = "1s", attempts = 3 }\n'
    found = advise(text, replications=3, most_replications=3, verify=True)
    (without,) = [each for each in found.suggestions if each.about == "retry"]
    assert without.effects[0].b > 0
    assert f"{percent_text(without.effects[0].b)} refused (" not in without.verified


def test_the_page_names_every_suggestion(tmp_path: Path) -> None:
    """The folder has a page, a CSV file a table, and a diff of each change that can be made."""
    text = one_group("GET /applications", kind="management")
    found = advise(text)
    found.write_to(tmp_path)
    page = (tmp_path / "advice.html").read_text("utf-8")
    lead = page.partition("<p><b>")[2].partition("</b></p>")[0]
    assert "<li>" not in page.partition(lead)[0], "one sentence first"
    assert "LIM-MANAGEMENT refuses" in lead
    assert "; what helps" in lead
    assert lead.count(". ") == 0
    assert all(each.text in page for each in found.suggestions)
    assert "most that one caller can send in a window" in page, "the picture of the trade-off"
    assert found.tradeoff["group"].iloc[0] in page.partition("legend")[2]
    assert ">None<" not in page
    assert ">NaN<" not in page
    diffs = sorted(path.name for path in tmp_path.glob("*.diff"))
    assert len(diffs) == sum(bool(each.edits) for each in found.suggestions)
    assert "raise LIM-MANAGEMENT from 200/1m" in found.changes["says"].str.cat()


def test_bad_input_is_one_line() -> None:
    """A group that is not there, and a share that cannot be, are named with the rule."""
    with pytest.raises(InputError, match=r"groups: 'worker' must be a client group; .*workers"):
        advise(one_group(), groups=["worker"])
    with pytest.raises(InputError, match="refused = 1 must be above 0 and below 1"):
        advise(one_group(), refused=1)


def test_an_interrupt_keeps_what_is_known() -> None:
    """Ctrl-C while the second clause is played away: what the first explains is known already."""
    asked: list[str] = []

    def told(text: str) -> None:
        asked.append(text)
        if sum(".off" in each for each in asked) == 2:
            raise KeyboardInterrupt

    text = one_group(tenant="test", keys="legacy_keys = 1", rate="10/1s", duration="2m")
    with pytest.raises(Interrupted) as interrupted:
        advise(text, progress=told)
    found = interrupted.value.result
    assert len(found.binding) == 1
    assert found.unfinished == "it was interrupted"


def test_the_command_prints_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`advise FILE --out DIR` prints each group's suggestions and writes the folder once."""
    file = tmp_path / "one.toml"
    file.write_text(one_group("GET /applications", kind="management"), "utf-8")
    command = ["advise", str(file), "--out", str(tmp_path / "out"), "--refused", "1%"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert f"pace: at most {percent_text(0.01)} refused up to 3." in printed
    assert (tmp_path / "out" / "advice.html").is_file()
    assert main(command) == 2
    assert "must be an empty folder" in capsys.readouterr().err


@pytest.mark.slow
def test_a_log_is_fitted_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`advise LOG` fits a scenario and advises its groups; flags of a log need one."""
    log = tmp_path / "access.csv"
    rows = simulator.run("management-loop", fidelity="limits", progress=False).requests
    rows.to_csv(log, index=False)
    assert main(["advise", str(log), "--as", "management", "--replications", "3"]) == 0
    printed = capsys.readouterr().out
    assert "LIM-MANAGEMENT" in printed
    assert "pace: " in printed
    assert main(["advise", "everyday", "--as", "public"]) == 2
    assert "--as = public must go with a log" in capsys.readouterr().err
