"""What the functions of a notebook make of arguments that are none: one line, never a traceback."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pytest

import simulator
from engine.errors import InputError
from simulator.arguments import (
    FLAG,
    ArgumentRule,
    add_flags,
    count_of,
    given,
    option,
    optional,
    options,
    read_options,
    repeated,
    takes,
    takes_options,
    whole,
)
from simulator.options import RunOptions
from simulator.rows import Result
from simulator.study.capacity import Trial
from simulator.study.explorer import Explorer
from simulator.views.charts import Plots

SIM: Final[Any] = simulator
"""Types are what a cell does not check."""

SMALL: Final = """
duration = "5s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
kind = "public"
[[clients]]
name = "c"
application = "a"
loop = "open"
arrivals = { kind = "poisson", rate = "2/1s" }
"""
LOG: Final = pd.DataFrame({"t_ns": [0, 1], "ip": ["192.0.2.1", "192.0.2.2"], "request": "GET /x"})
KEEP: Final[dict[str, Any]] = {
    "vary": "clients.c.count",
    "between": (1, 2),
    "keep": "refused_share <= 1",
    "fidelity": "limits",
}
FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **{
        name: getattr(simulator, name)
        for name in simulator.__all__
        if inspect.isfunction(getattr(simulator, name))
    },
    "Result.load": Result.load,
    "Result.metrics": Result.metrics,
    "Result.save": Result.save,
    "Explorer.play": Explorer.play,
    "Plots.timeline": Plots.timeline,
    "Plots.shut_out": Plots.shut_out,
}
WRONG: Final[tuple[Any, ...]] = (
    *(object(), 1.5, float("nan"), float("inf"), -1, True, None, "x", b"x", ..., complex(1, 2)),
    *([], [object()], [[[]]], {1: object()}, (1, 2, 3), set(), print, int, 10**400),
    *(pd.DataFrame({"key": ["secret"]}), np.zeros(3), np.array("secret"), np.float64("nan")),
    *("y" * 5000, "zero\0byte", "\ud800", "two\nlines", Path("nowhere"), Path("zero\0byte")),
)


def rules_of(function: Callable[..., Any]) -> dict[str, ArgumentRule]:
    """Return the rules that a public function's arguments are read by."""
    known = inspect.getclosurevars(function).nonlocals
    rules: dict[str, ArgumentRule] = known["rules"] if "rules" in known else rules_of(known["make"])
    return rules


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_parameter_of_each_public_function_has_a_rule(name: str) -> None:
    function = FUNCTIONS[name]
    parameters = [each for each in inspect.signature(function).parameters if each != "self"]
    assert list(rules_of(function)) == parameters


@pytest.mark.parametrize("name", FUNCTIONS)
def test_whatever_an_argument_is_its_fault_is_one_line_without_a_secret(name: str) -> None:
    """A frame, a dict or an array may hold keys, and a message goes to a log."""
    for parameter, rule in rules_of(FUNCTIONS[name]).items():
        for value in WRONG:
            try:
                rule.read(parameter, value)
            except InputError as fault:
                said = str(fault)
                assert said.startswith(f"{parameter} = ")
                assert " must " in said
                assert "\n" not in said
                assert "secret" not in said
                assert len(said) < 300


SCENARIO_RULE: Final = "must be a Scenario, a file's path, the name of a built-in one, or TOML text"
SEED_RULE: Final = "must be a whole number from 0 to 2^63 - 1; leave it out for the scenario's"
RUN_RULE: Final = "must be a Result, or the path of a run's folder"


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: SIM.run(5), f"scenario = 5 {SCENARIO_RULE}"),
        (lambda: SIM.run(b"x"), f"scenario = bytes {SCENARIO_RULE}"),
        (lambda: SIM.run("a\0b"), f"scenario = 'a\\x00b' {SCENARIO_RULE}"),
        (lambda: SIM.explore({"duration": "1s"}), f"scenario = dict {SCENARIO_RULE}"),
        (lambda: SIM.run(SMALL, seed="x"), f"seed = 'x' {SEED_RULE}"),
        (lambda: SIM.run(SMALL, seed=True), f"seed = True {SEED_RULE}"),
        (
            lambda: SIM.run(SMALL, warm_up=1.5),
            (
                'warm_up = 1.5 must be a whole number of nanoseconds, or a text such as "1m"; leave'
                " it out for the scenario's"
            ),
        ),
        (
            lambda: SIM.run(SMALL, warm_up="5"),
            "warm_up = '5' must name a unit; write \"5s\" for seconds",
        ),
        (
            lambda: SIM.run(SMALL, replications="3"),
            "replications = '3' must be a whole number from 1 up",
        ),
        (
            lambda: SIM.run(SMALL, replications=0),
            "replications = 0 must be a whole number from 1 up",
        ),
        (lambda: SIM.run(SMALL, check="no"), "check = 'no' must be True or False"),
        (
            lambda: SIM.run(SMALL, out=5),
            "out = 5 must be a folder's path; leave it out for rows in memory",
        ),
        (
            lambda: SIM.run(SMALL, columns=LOG),
            "columns = DataFrame must be names of columns, listed or with commas",
        ),
        (
            lambda: SIM.run(SMALL, fidelity="limit"),
            "fidelity = 'limit' must be one of engine, limits, compiled; did you mean 'limits'?",
        ),
        (
            lambda: SIM.run(SMALL, fidelty="limits"),
            "run takes no parameter 'fidelty'; did you mean 'fidelity'?",
        ),
        (
            SIM.run,
            (
                "run: missing a required argument: 'scenario'; its parameters are scenario, seed,"
                " limits, profile, most_replications, most_time, precision, check, out, columns,"
                " force, fidelity, replications, warm_up, progress"
            ),
        ),
        (
            lambda: SIM.replay(7),
            "source = 7 must be a log's path, or a frame that Arrow can read",
        ),
        (
            lambda: SIM.replay("log\0"),
            "source = 'log\\x00' must be a log's path, or a frame that Arrow can read",
        ),
        (
            lambda: SIM.replay(pd.DataFrame()),
            (
                "frame: time, address, method, path must be a field of the log; the fields are:"
                ' none; name it in a map (--map FILE with: time = "…"; address = "…"; method = "…";'
                " path = \"…\"; see docs/simulator.md#map), --assume 'address=192.0.2.1', --assume"
                " 'path=POST /tokenize', or name the time with --time-column"
            ),
        ),
        (
            lambda: SIM.replay(LOG, speed=10**400),
            "speed = int must be a decimal number above 0 and below 10^12, such as 1000 or 0.5",
        ),
        (lambda: SIM.replay(LOG, progress=1), "progress = 1 must be a function"),
        (lambda: SIM.replay(LOG, time_column=["t"]), "time_column = ['t'] must be a text"),
        (
            lambda: SIM.sweep(SMALL, {"clients.c.count": [1]}, out="s", set=3),
            (
                "sweep takes no parameter 'set'; known: scenario, axes, seed, limits, profile,"
                " fidelity, sample, replications, scheduler, workers, out, progress"
            ),
        ),
        (
            lambda: SIM.sweep(SMALL, {"clients.c.count": []}, out="s"),
            (
                "axes = dict must be paths in the scenario, each with a list of values that is not"
                ' empty, or with a text such as "10/10s..100/10s"'
            ),
        ),
        (
            lambda: SIM.sweep(SMALL, {"clients.c.count": [1]}, out="s", workers=0),
            "workers = 0 must be a whole number from 1 up; leave it out for all cores",
        ),
        (lambda: SIM.load_sweep(3), "folder = 3 must be a folder's path"),
        (
            lambda: SIM.capacity(SMALL, **{**KEEP, "between": 5}),
            (
                "between = 5 must be the lowest and the highest value, such as (10, 500) or"
                ' ("1/1s", "90/1s")'
            ),
        ),
        (
            lambda: SIM.capacity(SMALL, **{**KEEP, "keep": 0.01}),
            "keep = 0.01 must be a condition such as 'refused_share <= 0.01'",
        ),
        (
            lambda: SIM.capacity(SMALL, **KEEP, tolerance=float("nan")),
            "tolerance = nan must be a share of the value, from 0 to 1",
        ),
        (lambda: SIM.compare(1, 2), f"a = 1 {RUN_RULE}"),
        (
            lambda: SIM.compare("nowhere", "nowhere"),
            "folder = nowhere must be a run's folder; it has no readable summary.json",
        ),
        (
            lambda: SIM.explore("nope"),
            (
                "scenario = 'nope' is neither a file nor a built-in scenario; known: everyday,"
                " bulk-import, checkout, cold-starts, launch-day, legacy-migration,"
                " management-loop, month-end, retry-storm, several-nodes, shared-office,"
                " slow-destination"
            ),
        ),
        (lambda: SIM.coverage("limits.toml"), "table = 'limits.toml' must be a LimitTable"),
    ],
)
def test_an_argument_that_is_none_is_named_with_its_value_and_rule(
    ask: Callable[[], Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        ask()
    assert str(caught.value) == said
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def result() -> Result:
    found: Result = SIM.run(SMALL, fidelity="limits")
    return found


def test_metrics_say_what_they_cannot_be_asked(result: Any) -> None:
    """A number where rows have a text would match no row, and look like an answer."""
    for asked, said in (
        ({"by": 5}, "by = 5 must be a dimension, or a list of them"),
        ({"by": ["key", 5]}, "by = ['key', 5] must be a dimension, or a list of them"),
        ({"where": {"client": "0"}}, "where['client'] = '0' must be a whole number from 0 up"),
        ({"where": {"key": 1}}, "where['key'] = 1 must be a text, as the rows have it"),
        (
            {"where": ["key"]},
            (
                "where = ['key'] must be dimensions with the value of each, such as"
                ' {"key": "key-0001"}'
            ),
        ),
        (
            {"bin": "10s"},
            "bin = 10000000000 ns must go with by = 'time'; add that, or leave it out",
        ),
    ):
        with pytest.raises(InputError) as caught:
            result.metrics(**asked)
        assert str(caught.value) == said
    assert result.metrics(where={"client": np.int64(0)})["offered"].sum() > 0


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    """What an analyst takes from a frame is played and written like a plain number."""
    seeds = np.arange(3, 5)
    found = SIM.sweep(
        SMALL,
        {"seed": seeds, "clients.c.count": pd.Series([1])},
        out=tmp_path / "s",
        replications=np.int64(1),
        fidelity="limits",
        workers=np.int64(1),
    )
    assert found["seed"].tolist() == [3, 4]
    one = SIM.run(SMALL, fidelity="limits", seed=seeds[0], check=np.bool_(True))
    assert (one.summary["seed"], one.summary["sha256"]) == (3, found["sha256"][0])


def test_a_function_with_a_parameter_without_a_rule_is_refused_where_it_is_written() -> None:
    with pytest.raises(AssertionError, match="must have a rule a parameter, in order"):

        @takes(count=whole(1))
        def _forgets(count: int, *, check: bool) -> None: ...

    @takes(count=whole(1), check=FLAG)
    def remembers(count: int, *, check: bool = True) -> tuple[int, bool]:
        """What it is."""
        return count, check

    assert remembers(2) == (2, True)
    assert (remembers.__name__, remembers.__doc__) == ("remembers", "What it is.")


# --- what would be left aside in silence ---------------------------------------------------------

LINE_MAP: Final = 'line = \'(?P<t_ns>[0-9]+) (?P<ip>.*)\'\ntime = "t_ns"\naddress = "ip"\n'
KIND_MAP: Final = 'time = "t_ns"\naddress = "ip"\ntenant_kind = { value = "test" }\n'
FORMAT_MAP: Final = 'format = "csv"\ntime = "t_ns"\naddress = "ip"\n'


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (
            lambda: SIM.replay(LOG, format="csv"),
            "format = 'csv' must be left out; the log is a frame",
        ),
        (
            lambda: SIM.replay(LOG, map="format.toml"),
            "format.toml: format must be left out; the log is a frame, its columns are the fields",
        ),
        (
            lambda: SIM.replay(LOG, map="line.toml"),
            "line.toml: line must be left out; the log is a frame, its columns are the fields",
        ),
        (
            lambda: SIM.replay(LOG, map="kind.toml", tenant="production"),
            "tenant = 'production' must be left out; the map says tenant_kind",
        ),
        (
            lambda: SIM.replay(LOG, force=True),
            "force = True must go with out, a folder; without one nothing is replaced",
        ),
        (
            lambda: SIM.run(SMALL, force=True),
            "force = True must go with out, a folder; without one nothing is replaced",
        ),
        (
            lambda: SIM.sweep(SMALL, {"seed": [1, 2]}, out="s", seed=7),
            "seed = 7 must be left out; the axis seed says each point's",
        ),
        (
            lambda: SIM.sweep(
                SMALL, {"seed": [1]}, out="s", scheduler="tcp://127.0.0.1:1", workers=2,
                fidelity="limits",
            ),
            "--workers = 2 must be left out; tcp://127.0.0.1:1 has the workers that it has",
        ),
        (
            lambda: SIM.capacity(SMALL, **{**KEEP, "vary": "seed"}),
            "vary = 'seed' must be something else; every value is tried under the same seeds",
        ),
        (
            lambda: SIM.capacity(SMALL, **KEEP, replications=5, most_replications=2),
            "most_replications = 2 must be at least replications, 5; take more",
        ),
    ],
)  # fmt: skip
def test_what_could_have_no_effect_is_refused_in_a_line(
    ask: Callable[[], Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An argument that is silently left aside looks as though it had been heeded."""
    monkeypatch.chdir(tmp_path)
    for name, text in (("line", LINE_MAP), ("kind", KIND_MAP), ("format", FORMAT_MAP)):
        Path(f"{name}.toml").write_text(text)
    with pytest.raises(InputError) as caught:
        ask()
    assert str(caught.value) == said


def test_capacity_ends_where_values_lie_nearer_than_they_are_written() -> None:
    """A tolerance of 0 asked for ever finer values, of which six digits were played for ever."""
    text = SMALL.replace('kind = "poisson"', 'kind = "constant"')
    tried: list[str] = []

    def told(trial: Trial) -> None:
        assert trial.value not in tried
        tried.append(trial.value)

    found = SIM.capacity(
        text,
        vary="duration",
        between=("1.0s", "4.0s"),
        keep="offered <= 3",
        replications=1,
        tolerance=0,
        on_trial=told,
    )
    assert (found.keeps, found.breaks) == ("1.5s", "1.50001s")


# --- options -------------------------------------------------------------------------------------


@options
class MoreOptions(RunOptions):
    """One more option than a run has: one place."""

    _: KW_ONLY
    patience: int | None = option(
        optional(whole(2)),
        "how often to ask again (never)",
        default=None,
        type=count_of,
        metavar="N",
    )


@takes_options(MoreOptions)
def ask(options: MoreOptions) -> MoreOptions:
    """Return what was told: the second place, where an option has its effect.

    {options}

    Raises nothing of its own.
    """
    return options


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_flags(parser, MoreOptions, warm_up="another line")
    return parser.parse_args(["everyday", *words])


def test_a_new_option_is_one_field_and_its_effect() -> None:
    parameter = inspect.signature(ask).parameters["patience"]
    assert (parameter.kind, parameter.default) == (parameter.KEYWORD_ONLY, None)
    assert "\n    patience: how often to ask again (never).\n" in (ask.__doc__ or "")
    assert ask("everyday", patience=3).patience == 3
    with pytest.raises(InputError, match=r"^patience = 1 must be a whole number from 2 up$"):
        ask("everyday", patience=1)
    args = parsed("--patience", "3", "--no-check", "--warm-up", "5s", "--out", "x", "--force")
    assert ask(**given(args, MoreOptions)) == ask(
        "everyday", patience=3, check=False, warm_up=5 * 10**9, out="x", force=True
    )
    assert repeated(args, MoreOptions) == [
        *("everyday", "--no-check", "--out", "x", "--force", "--warm-up", "5s", "--patience", "3")
    ]


def test_a_command_may_say_of_an_option_what_holds_there_alone() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, MoreOptions, warm_up="another line, 5 %")
    said = parser.format_help()
    assert "another line, 5 %" in said
    assert "how often to ask again (never)" in said


def test_options_cannot_be_changed_and_read_texts_as_units() -> None:
    found = read_options(RunOptions)("everyday", warm_up="2s")
    assert (found.warm_up_ns, found.played.name) == (2 * 10**9, "everyday")
    assert RunOptions("everyday", warm_up="2s").warm_up_ns == 2 * 10**9
    with pytest.raises(FrozenInstanceError):
        found.seed = 3  # type: ignore[misc] # reason: what must not be possible
