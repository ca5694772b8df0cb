"""Scenario files as users meet them: defaults, built-in ones, one value changed, the schema."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import simulator
from engine.errors import InputError
from engine.files import Rate, parse_toml
from engine.profile import NodesProfile
from simulator.play.simulation import simulate
from simulator.rows import metrics
from simulator.scenario import (
    METRICS,
    Scenario,
    builtin,
    dump,
    limits_of,
    load,
    loads,
    parse_condition,
    profile_of,
    schema,
    starter,
    value_of,
    with_value,
)
from simulator.scenario.clients import FullJitter
from simulator.scenario.draws import Constant, Exponential, PoissonArrivals
from simulator.study.run_size import expected_requests

S = 1_000_000_000

SMALL = """
# How many get through
# in a minute?
#:schema scenario.schema.json
# Answer: all of
# them.
# And then some.
duration = "1m"   # no part of the question
[[tenants]]
name = "acme"
[[clients]]
name = "web"
think = { kind = "exponential", mean = "2s" }
"""


@pytest.mark.parametrize("name", builtin())
def test_a_builtin_scenario_asks_a_question_and_survives_being_written(name: str) -> None:
    scenario = load(name)

    assert scenario.name == name
    assert scenario.question.endswith("?")
    assert loads(dump(scenario)) == scenario


@pytest.mark.parametrize("name", builtin())
def test_a_builtin_scenario_obeys_the_schema(name: str) -> None:
    text = Path(metrics.__file__).parents[1].joinpath(f"scenario/builtin/{name}.toml").read_text()
    value = parse_toml(text, name).value
    as_json = json.loads(json.dumps(value, default=dt.datetime.isoformat))
    Draft202012Validator(schema()).validate(as_json)


def test_everyday_comes_first_of_at_least_eleven() -> None:
    assert next(iter(builtin())) == "everyday"
    assert len(builtin()) >= 11


def test_everyday_has_all_kinds_of_callers() -> None:
    everyday = load("everyday")
    assert {tenant.kind for tenant in everyday.tenants} == {"test", "production"}
    kinds = {application.kind for application in everyday.applications}
    assert kinds == {"private", "public", "management"}
    assert any(application.legacy_keys for application in everyday.applications)
    assert everyday.duration_ns == 600 * 10**9
    sharing = [group for group in everyday.clients if group.addresses == "office"]
    assert sum(group.count for group in sharing) > 1


def test_the_shipped_schema_is_fresh() -> None:
    shipped = Path(metrics.__file__).parents[1] / "scenario" / "scenario.schema.json"
    assert json.loads(shipped.read_text("utf-8")) == schema(), (
        "run python -m simulator.scenario > simulator/scenario/scenario.schema.json"
    )


def test_the_opening_comment_is_question_and_answer() -> None:
    scenario = loads(SMALL.lstrip())
    assert scenario.question == "How many get through in a minute?"
    assert scenario.answer == "all of them. And then some."
    assert loads(dump(scenario)) == scenario
    assert load(dump(scenario)) == scenario, "a text is loaded as a file is"


def test_what_is_left_out_has_its_default() -> None:
    scenario = loads(SMALL, "runs/tea time.toml")
    (group,) = scenario.clients
    assert scenario.name == "tea-time"
    assert (scenario.warm_up_ns, scenario.limits, scenario.profile) == (0, None, None)
    assert (group.count, group.loop, group.applications) == (1, "closed", ())
    assert group.think == Exponential(mean_ns=2_000_000_000)
    assert [ask.request for ask in group.mix] == ["POST /tokenize"]


def test_the_starter_is_a_scenario() -> None:
    assert loads(starter()).clients[0].count == 50


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("clients[0].count", 3, "count = 3"),
        ("clients.browsers.count", 4, "count = 4"),
        ("clients.browsers.think.mean", "1m30s", 'mean = "1m30s"'),
        ("clients.browsers.mix[1].weight", 0.25, "weight = 0.25"),
        ("clients.browsers.pacing", {"kind": "token-bucket", "rate": "1/1s"}, 'rate = "1/1s"'),
        ('tenants.acme.quotas."Tokenize Limit"', 77, '"Tokenize Limit" = 77'),
        ("duration", "2h", 'duration = "2h"'),
        ("nodes.count", 3, "count = 3"),
        ("nodes.lag", "50ms", 'lag = "50ms"'),
    ],
)
def test_one_value_is_changed_by_its_path(path: str, value: object, shown: str) -> None:
    before = loads(starter())
    after = with_value(before, path, value)
    assert shown not in dump(before)
    assert shown in dump(after)
    assert after.question == before.question


def test_nodes_of_a_scenario_win_over_those_of_its_profile(tmp_path: Path) -> None:
    (tmp_path / "profile.toml").write_text('[nodes]\ncount = 4\nsharing = "none"\n')
    text = 'profile = "profile.toml"\n' + starter()
    assert profile_of(loads(text, folder=tmp_path)).nodes == NodesProfile(count=4, sharing="none")
    own = text + '\n[nodes]\ncount = 2\nlag = "5ms"\n'
    expected = NodesProfile(count=2, sharing="none", lag_ns=5_000_000)
    assert profile_of(loads(own, folder=tmp_path)).nodes == expected


def test_rules_and_choices_can_be_changed_by_their_paths() -> None:
    scenario = with_value(loads(starter()), "rules.LIM-PUBLIC.rate", "100/1m")
    scenario = with_value(scenario, "rules.LIM-IP.off", True)
    scenario = with_value(scenario, "rules.LIM-MANAGEMENT.action", "throttle")
    scenario = with_value(scenario, "choices.limits.algorithm", "gcra")

    limits = limits_of(scenario)
    assert limits["LIM-PUBLIC"].rate == Rate(100, 60 * 10**9)
    assert limits["LIM-PUBLIC"].action == "block"
    assert limits["LIM-MANAGEMENT"].block_ns is None
    assert "LIM-IP" not in [rule.id for rule in limits]
    assert profile_of(scenario).limits.algorithm == "gcra"
    assert profile_of(loads(starter())).limits.algorithm == "sliding-log"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("clients.browser.count", 3, "clients has no element 'browser'; did you mean 'browsers'?"),
        ("clients[7].count", 3, "clients has 1 elements; the last is 0"),
        (
            f"clients[{'7' * 5_000}].count",
            3,
            f"clients has no element '{'7' * 5_000}'; known: browsers",
        ),
        (
            "clients.browsers.cuont",
            3,
            "clients[0].cuont is an unknown key; did you mean 'count'?",
        ),
        ("clients.browsers.count", -1, "clients[0].count = -1 must be at least 0"),
        ("client.x.y", 1, "client is an unknown key; did you mean 'clients'?"),
        ("seed.low", 1, "seed has no parts; there is no seed.low"),
        ("clients..count", 1, "path = 'clients..count' must be such as \"clients.browsers.count\""),
        ("", 1, 'path = "" must be such as "clients.browsers.count"'),
        (
            "rules.LIM-PUBLICK.rate",
            "1/1s",
            "rules.LIM-PUBLICK is no rule of the limit table; did you mean 'LIM-PUBLIC'?",
        ),
    ],
)
def test_a_path_that_leads_nowhere_is_named(path: str, value: object, message: str) -> None:
    with pytest.raises(InputError) as caught:
        with_value(loads(starter()), path, value)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("0.5", 0.5),
        ("true", True),
        ("50/10s", "50/10s"),
        ("10s", "10s"),
        ("a = 1", "a = 1"),
        ("9" * 5_000, "9" * 5_000),
        ("[" * 5_000, "[" * 5_000),
    ],
)
def test_a_command_line_value_is_toml_where_it_is_some(text: str, value: object) -> None:
    assert value_of(text) == value


def _with_files(folder: Path) -> Scenario:
    (folder / "profile.toml").write_text('[limits]\nalgorithm = "gcra"\n')
    (folder / "gold.toml").write_text(
        '[[rule]]\nid = "OWN-GOLD"\ncounter = "key"\nrate = "9/1s"\n', "utf-8"
    )
    text = 'profile = "profile.toml"\nlimit_tables = { gold = "gold.toml" }\n' + starter()
    text = text.replace('"Tokenize Limit" = 10', '"Rate Limit" = "gold"')
    (folder / "scenario.toml").write_text(text, "utf-8")
    return load(folder / "scenario.toml")


def test_included_files_lie_beside_the_scenario(tmp_path: Path) -> None:
    scenario = _with_files(tmp_path)
    assert profile_of(scenario).limits.algorithm == "gcra"
    assert scenario.profile is not None
    assert scenario.profile.where == f"{tmp_path / 'scenario.toml'}:1:11: "
    changed = with_value(scenario, "choices.limits.algorithm", "token-bucket")
    assert profile_of(changed).limits.algorithm == "token-bucket"


@pytest.mark.parametrize("counter", ["ip", "key"])
def test_tables_that_cannot_stand_together_are_told_by_check(tmp_path: Path, counter: str) -> None:
    """D-COUNTED: LIM-IP is in no tenant's table, by whatever it would count there."""
    folder = tmp_path
    _with_files(folder)
    gold = f'[[rule]]\nid = "LIM-IP"\ncounter = "{counter}"\nrate = "9/1s"\n'
    (folder / "gold.toml").write_text(gold, "utf-8")
    where = re.escape(f"{folder / 'scenario.toml'}:2:16: ")
    with pytest.raises(InputError, match=f"^{where}table 'gold': LIM-IP counts every request"):
        load(folder / "scenario.toml")


def test_a_resolved_scenario_can_be_put_elsewhere(tmp_path: Path) -> None:
    scenario = _with_files(tmp_path)
    with pytest.raises(InputError, match="must be a file"):
        loads(dump(scenario), folder=tmp_path / "elsewhere")
    assert profile_of(loads(dump(scenario, absolute=True))).limits.algorithm == "gcra"


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ("refused_share <= 0.01", 0.01, True),
        ("refused_share < 1%", 0.01, False),
        ("latency_p99{client='web'} < 1.5s", 1.5e9 - 1, True),
        ("refused{clause=\"LIM-IP\", client='web'} == 0", 1.0, False),
        ("fairness != 1", float("nan"), False),
        ("""refused{path="/it's"} < 1""", 0.0, True),
    ],
)
def test_a_condition_holds_or_not(text: str, value: float, holds: bool) -> None:
    condition = parse_condition(text)
    assert condition.holds(value) is holds
    assert parse_condition(str(condition)) == condition


def test_every_metric_of_a_condition_is_computed() -> None:
    columns = set(metrics.NEEDS)
    assert {metric.column for metric in METRICS.values()} <= columns


SHORT = """
duration = "1m"
tenants = [{ name = "t" }]
applications = [{ name = "a", tenant = "t", kind = "public" }]
proxies = [{ name = "p", tenant = "t", destination = "20ms", request_transform = "1ms" }]
reactors = [{ name = "r", tenant = "t", service = "2s" }]
[[clients]]
name = "c"
application = "a"
think = "2s"
service = "20ms"
[[clients]]
name = "o"
application = "a"
loop = "open"
arrivals = "6.67/1s"
"""


def test_a_text_is_short_for_a_constant() -> None:
    found = loads(SHORT)
    long = SHORT.replace('"20ms"', '{ kind = "constant", value = "20ms" }')
    long = long.replace('"2s"', '{ kind = "constant", value = "2s" }')
    long = long.replace('"1ms"', '{ kind = "constant", value = "1ms" }')
    long = long.replace('"6.67/1s"', '{ kind = "constant", rate = "667/100s" }')
    assert loads(long) == found == loads(dump(found))
    Draft202012Validator(schema()).validate(parse_toml(SHORT, "s.toml").value)
    assert with_value(found, "clients.c.think", "3s").clients[0].think == Constant(value_ns=3 * S)
    with pytest.raises(InputError, match="duration"):
        loads(SHORT.replace('think = "2s"', 'think = "soon"'))


def test_mean_rates_take_decimals_and_limits_do_not() -> None:
    found = loads(SHORT.replace('"6.67/1s"', '{ kind = "poisson", rate = "0.5/1m" }'))
    assert found.clients[1].arrivals == PoissonArrivals(rate=Rate(5, 600 * S))
    for text in ('"6.6666666666666666666667/1s"', '"0.0/1s"', '"6,5/1s"'):
        with pytest.raises(InputError):
            loads(SHORT.replace('"6.67/1s"', text))
    with pytest.raises(InputError, match="whole requests"):
        loads(SHORT + '[rules.LIM-PUBLIC]\nrate = "6.5/1s"\n')


def test_a_cap_may_be_its_base() -> None:
    """Then every retry waits the same; only a cap below base is refused (tests/fixtures/bad)."""
    retry = 'retry = { kind = "full-jitter", base = "2s", cap = "2s" }'
    found = loads(SHORT.replace('think = "2s"', f'think = "2s"\n{retry}')).clients[0].retry
    assert isinstance(found, FullJitter)
    assert found.cap_ns == found.base_ns == 2 * S


@pytest.mark.parametrize(
    ("lines", "passes"),
    [
        ("", False),
        ('service = "20ms"', False),
        ('service = "20ms"\nretry = { kind = "fixed", delay = "1s" }', True),
        ('service = "0s"\nretry = { kind = "fixed", delay = "1s" }', False),
        ('service = "20ms"\nretry = { kind = "fixed", delay = "1s", on = [408] }', False),
        ('service = "20ms"\nretry = { kind = "fixed", delay = "1s", attempts = 1 }', False),
        ('pacing = { kind = "token-bucket", rate = "1/1s" }', True),
    ],
)
def test_a_loop_need_not_think_where_time_passes_otherwise(lines: str, *, passes: bool) -> None:
    """Refusals are answered at once, so that a service time alone lets a loop spin."""
    text = SHORT.partition("[[clients]]")[0] + (
        f'[[clients]]\nname = "c"\napplication = "a"\nthink = "0s"\n{lines}\n'
    )
    if not passes:
        with pytest.raises(InputError, match="its time stands still"):
            loads(text)
        return
    result = simulate(loads(text), fidelity="limits")
    assert 0 < result.summary["totals"]["offered"] < 10_000


# --- how many requests are expected --------------------------------------------------------------


HEAD = """
duration = "100s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
kind = "public"
[[clients]]
name = "c"
application = "a"
count = 3
"""
STEPS = '[{ at = "20s", rate = "1/1s" }, { at = "60s", rate = "2/1s" }]'
HOURS = ", ".join(["0"] * 23 + ["24"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{ kind = "constant", rate = "5/1s" }', 3 * 500),
        ('{ kind = "poisson", rate = "3/10s" }', 3 * 30),
        (f'{{ kind = "steps", steps = {STEPS} }}', 3 * (40 + 80)),
        ('{ kind = "ramp", from = "0/1s", to = "10/1s", over = "50s" }', 3 * (250 + 500)),
        ('{ kind = "ramp", from = "0/1s", to = "4/1s", over = "200s" }', 3 * 100),
        (f'{{ kind = "daily", rate = "1/1s", day = "48s", hours = [{HOURS}] }}', 3 * 2 * 48),
        ('{ kind = "on-off", on_rate = "10/1s", on = "1s", off = "4s" }', 3 * 200),
    ],
)
def test_an_open_loop_asks_as_often_as_its_rate_says(text: str, expected: int) -> None:
    assert expected_requests(loads(f'{HEAD}loop = "open"\narrivals = {text}\n')) == expected


def test_a_group_asks_between_its_start_and_its_stop() -> None:
    arrivals = 'loop = "open"\narrivals = { kind = "constant", rate = "5/1s" }\n'
    assert expected_requests(loads(f'{HEAD}{arrivals}start = "10s"\nstop = "30s"\n')) == 300


def test_a_file_of_arrivals_is_counted_as_far_as_it_is_played(tmp_path: Path) -> None:
    (tmp_path / "times.txt").write_text("0\n1\n99\n100\n101\n")
    arrivals = 'loop = "open"\narrivals = { kind = "replay", file = "times.txt" }\n'
    assert expected_requests(loads(HEAD + arrivals, folder=tmp_path)) == 3 * 3


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ('think = "9s"\nservice = "1s"', 3 * 10),
        ('think = "9s"\nservice = "1s"\nconcurrency = 4', 3 * 40),
        ('think = { kind = "exponential", mean = "10s" }', 3 * 10),
        ('think = { kind = "uniform", low = "5s", high = "15s" }', 3 * 10),
        ('think = { kind = "discrete", values = ["5s", "20s"], weights = [2, 1] }', 3 * 10),
        ('think = { kind = "lognormal", median = "10s", sigma = 0 }', 3 * 10),
        ('think = { kind = "pareto", least = "5s", alpha = 2 }', 3 * 10),
        ('think = { kind = "pareto", least = "5s", alpha = 1 }', 3 * 10),
        ('pacing = { kind = "token-bucket", rate = "1/2s" }', 3 * 51),
    ],
)
def test_a_closed_loop_asks_once_a_turn(more: str, expected: int) -> None:
    assert expected_requests(loads(f"{HEAD}{more}\n")) == expected


@pytest.mark.parametrize("name", ["everyday", "management-loop", "retry-storm"])
def test_runs_begin_about_as_many_requests_as_expected(name: str) -> None:
    asked = simulator.run(name, fidelity="limits").summary["totals"]["requests"]
    assert expected_requests(load(name)) == pytest.approx(asked, rel=0.1)


# --- bad files -----------------------------------------------------------------------------------


FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "bad"
FILES = sorted(FOLDER.glob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_bad_scenario_is_one_line_with_its_place(file: Path) -> None:
    first = file.read_text("utf-8").splitlines()[0]
    expected = first.removeprefix("#! ").replace("FOLDER", str(FOLDER))

    with pytest.raises(InputError) as caught:
        load(file)

    assert str(caught.value) == f"{file}{expected}"
    assert "\n" not in str(caught.value)


def test_there_is_a_fixture_for_every_kind_of_fault() -> None:
    names = {file.stem for file in FILES}
    assert names >= {
        "syntax-error",
        "unknown-key",
        "unknown-clause",
        "negative-rate",
        "wrong-type",
        "bad-duration",
        "unknown-application",
    }


def test_two_fixtures_never_show_the_same_message() -> None:
    first_lines = [file.read_text("utf-8").splitlines()[0] for file in FILES]
    assert len(set(first_lines)) == len(first_lines)


def test_an_unknown_scenario_is_named_with_the_nearest_one() -> None:
    with pytest.raises(InputError) as caught:
        load("everyda")
    assert str(caught.value) == (
        "scenario = 'everyda' is neither a file nor a built-in scenario; did you mean 'everyday'?"
    )


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputError, match=r"^nowhere/x\.toml: no such file$"):
        load("nowhere/x.toml")


def test_a_fault_of_an_included_limit_table_stands_at_its_own_place(tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text('[[rule]]\nid = "LIM-PUBLIC"\nrate = 5\ncounter = "ip"\n')
    (tmp_path / "scenario.toml").write_text('limits = "limits.toml"\n' + starter())

    with pytest.raises(InputError) as caught:
        load(tmp_path / "scenario.toml")

    assert str(caught.value) == (
        f"{tmp_path / 'limits.toml'}:3:8: rule[0].rate = 5 must name a window; "
        'write "5/1s" for requests a second'
    )


PIECES = st.sampled_from(
    [
        *(
            "",
            " ",
            "=",
            "[",
            "]",
            "[[",
            "{",
            "}",
            '"',
            "\n",
            "#",
            "-1",
            "1e400",
            "nan",
            "true",
            "0x",
        ),
        *("clients", "count", "kind = 3", '"zipf"', "2026-01-01", '"0s"', '"9/0s"', "[]", "{}"),
        *("\x00", "é"),
    ]
)


def fault_of(text: str) -> str | None:
    try:
        loads(text, "x.toml")
    except InputError as error:
        return str(error)
    return None


@given(data=st.data())
def test_no_text_ends_in_anything_but_a_scenario_or_one_line(data: st.DataObject) -> None:
    text = starter()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(PIECES) + text[stop:]
    fault = fault_of(text)
    assert fault is None or (fault.startswith("x.toml:") and "\n" not in fault)
