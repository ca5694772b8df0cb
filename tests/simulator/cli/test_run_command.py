"""The command line: exit codes, one-line complaints, whole folders or none."""

from __future__ import annotations

import errno
import importlib
import io
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import simulator
from engine.errors import InputError
from simulator.cli import main
from simulator.play.simulation import simulate
from simulator.progress import in_notebook, progress_bar, progress_shown
from simulator.scenario import builtin, schema
from simulator.study import runs, sweep
from tests.simulator.workers import InProcess

SMALL = """
duration = "20s"
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
arrivals = { kind = "constant", rate = "5/1s" }
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with a small scenario in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


def test_a_run_prints_its_seed_first_and_its_report_last(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "small.toml", "--seed", "11"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("seed 11, fidelity engine, duration 20s")
    public = next(line.split() for line in lines if line.startswith("LIM-PUBLIC"))
    assert public[1:4] == ["100", "50", "50"]
    assert lines[-2] == "repeat with: python -m simulator run small.toml --seed 11 --force"
    assert lines[-1] == "report: runs/small-11/report.html"
    folder = here / "runs" / "small-11"
    assert {path.name for path in folder.iterdir()} == {
        "report.html",
        "requests.parquet",
        "scenario.resolved.toml",
        "summary.json",
    }
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    again = shlex.split(lines[-2].removeprefix("repeat with: python -m simulator "))
    assert main(again) == 0
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_precision_is_told_with_its_bounds_before_it_is_played(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "small.toml", "--fidelity", "limits", "--precision", "0.2"]
    assert main([*words, "--most-replications", "9", "--most-time", "1m30s"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == (
        "replications until every share is known to ± 0.2, at most 9 in 90 s, seeds from 7"
    )


def test_the_resolved_scenario_repeats_the_run(here: Path) -> None:
    assert main(["run", "small.toml", "--quiet"]) == 0
    resolved = "runs/small-7/scenario.resolved.toml"
    assert main(["run", resolved, "--out", "second", "--quiet"]) == 0
    digests = [
        json.loads((here / folder / "summary.json").read_text())["sha256"]
        for folder in ("runs/small-7", "second")
    ]
    assert digests[0] == digests[1]


def test_quiet_prints_the_reports_path_alone(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "small.toml", "--fidelity", "limits", "--quiet", "--out", "x"]) == 0
    captured = capsys.readouterr()
    assert captured.out == f"{Path('x') / 'report.html'}\n"
    assert captured.err == ""


def test_a_folder_that_is_not_empty_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "full").mkdir()
    (here / "full" / "mine").write_text("")
    assert main(["run", "small.toml", "--out", "full"]) == 2
    assert capsys.readouterr().err == (
        "simulator: --out = full must be an empty folder; add --force to replace it\n"
    )
    assert [path.name for path in (here / "full").iterdir()] == ["mine"]


@pytest.mark.parametrize("out", ["small.toml", "small.toml/below"])
def test_a_folder_that_cannot_be_is_one_line(
    here: Path, out: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "small.toml", "--out", out]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"simulator: --out = {out} must be a folder")
    assert error.count("\n") == 1
    assert [path.name for path in here.iterdir()] == ["small.toml"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "locked").mkdir(mode=0o500)
    assert main(["run", "small.toml", "--out", "locked/run"]) == 2
    assert "must be a folder that can be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["run", "evryday"], "scenario = 'evryday' is neither a file nor a built-in scenario"),
        (["run", "small.toml", "--warm-up", "soon"], "soon"),
        (["run", "small.toml", "--warm-up", "20s"], "must be below the duration"),
        (["check", "nowhere.toml"], "nowhere.toml"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    here: Path, argv: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith("simulator: ")
    assert text in error
    assert error.count("\n") == 1
    assert not (here / "runs").exists()


@pytest.mark.parametrize("argv", [["run", "small.toml", "--seed", "-1"], ["walk"], []])
def test_bad_usage_exits_with_2(here: Path, argv: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2


def test_a_threshold_that_does_not_hold_exits_with_1(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for bound, code in (("0.5", 0), ("0.49", 1)):
        that = f"\n[[thresholds]]\nthat = \"refused_share{{client='c'}} <= {bound}\"\n"
        (here / "judged.toml").write_text(SMALL + that)
        assert main(["run", "judged.toml", "--force"]) == code
        word = "not met" if code else "met"
        expected = f"threshold: refused_share{{client='c'}} <= {bound}: {word} (50 %)"
        assert expected in capsys.readouterr().out.replace(chr(0x202F), " ")


def test_what_the_limits_alone_cannot_play_is_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SMALL + '[choices.limits]\ncounted_statuses = "success"\n'
    (here / "bodies.toml").write_text(text)
    assert main(["run", "bodies.toml", "--fidelity", "limits"]) == 2
    error = capsys.readouterr().err
    assert "runs no bodies" in error
    assert "counted_statuses" in error
    assert main(["run", "bodies.toml", "--fidelity", "engine", "--quiet"]) == 0


def test_an_interrupted_run_leaves_nothing_and_exits_with_130(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simulator.rows.record.Recorder.close", interrupt)
    assert main(["run", "small.toml", "--fidelity", "limits", "--quiet"]) == 130
    assert not (here / "runs").exists()


def test_a_full_disk_is_one_line(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "requests.parquet")

    monkeypatch.setattr("simulator.rows.parquet.FileSink.close", full)
    assert main(["run", "small.toml", "--fidelity", "limits", "--quiet"]) == 2
    assert capsys.readouterr().err == "simulator: requests.parquet: No space left on device\n"
    assert not (here / "runs").exists()


def test_a_fault_found_while_playing_is_one_line(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "times.txt").write_text("1\nnoon\n")
    arrivals = 'arrivals = { kind = "replay", file = "times.txt" }'
    text = SMALL.replace('arrivals = { kind = "constant", rate = "5/1s" }', arrivals)
    (here / "replayed.toml").write_text(text)
    assert main(["run", "replayed.toml", "--quiet"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "times.txt:2:1: time must be like" in error
    assert not (here / "runs").exists()


def test_init_writes_a_scenario_that_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "mine.toml"]) == 0
    named = (here / "mine.toml").read_text().partition("#:schema ")[2].partition("\n")[0]
    assert json.loads((here / named).read_text()) == schema()
    assert main(["check", "mine.toml"]) == 0
    assert main(["run", "mine.toml", "--fidelity", "limits", "--quiet"]) in {0, 1}
    assert main(["init", "mine.toml"]) == 2
    assert "must not exist yet" in capsys.readouterr().err


def test_scenarios_lists_every_built_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenarios"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{name} " in f"\n{shown}" for name in builtin())


def test_check_says_what_a_scenario_holds(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "small.toml"]) == 0
    assert capsys.readouterr().out == (
        "small.toml: fine; scenario 'small', 20s, 1 tenant, 1 key, 1 client in 1 group, "
        "14 limit rules, about 100 requests\n"
    )


def test_check_warns_of_what_cannot_be_meant(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More tokens than the quota, and paths and methods that no endpoint has; others are fine."""
    mix = """mix = [
  { request = "POST /tokenise" },
  { request = "PUT /tokens/{id}" },
  { request = "GET /tokens/{id}?x=1" },
  { request = "POST /tokenize", tokens = 5 },
  { request = "POST /tokenize", tokens = 2, tokens_max = 6 },
  { request = "POST /detokenize", tokens = 4 },
]
"""
    quotas = 'name = "t"\nquotas = { "Detokenize Limit" = 3 }'
    (here / "odd.toml").write_text(SMALL.replace('name = "t"', quotas, 1) + mix)
    assert main(["check", "odd.toml"]) == 0
    said = capsys.readouterr().err.replace("simulator: warning: ", "")
    refused = "the engine refuses them, and the limits alone do not; send fewer, or raise quotas."
    assert said == (
        "odd.toml:16:15: request = 'POST /tokenise' must be of an endpoint; the service answers it"
        " 404; did you mean 'POST /tokenize'?\n"
        "odd.toml:17:15: request = 'PUT /tokens/{id}' must be of an endpoint; the service answers"
        " it 405; did you mean 'PATCH /tokens/{id}'?\n"
        "odd.toml:20:58: 6 tokens in a request are more than 5, the Tokenize Limit of tenant 't': "
        f'{refused}"Tokenize Limit"\n'
        "odd.toml:21:44: 4 tokens in a request are more than 3, the Detokenize Limit of tenant 't':"
        f' {refused}"Detokenize Limit"\n'
    )


def test_check_and_run_warn_of_a_run_that_is_larger_than_meant(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rate is of each client: a busy one and many clients multiply."""
    text = SMALL.replace("5/1s", "400/1s").replace('name = "c"', 'name = "c"\ncount = 30_000')
    (here / "huge.toml").write_text(text)
    assert main(["check", "huge.toml"]) == 0
    said = capsys.readouterr()
    assert said.out.endswith("about 240,000,000 requests\n")
    assert said.err == (
        "simulator: warning: huge.toml:14:40: duration asks for about 240,000,000 requests, more"
        " than 100,000,000; most are of clients.c, 30,000 clients, and a rate is of each client:"
        " lower its rate or count, or shorten the duration\n"
    )

    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simulator.study.runs.simulate", stop)
    assert main(["run", "huge.toml", "--fidelity", "limits"]) == 130
    said = capsys.readouterr()
    assert "about 240,000,000 requests" in said.out
    assert said.err.startswith("simulator: warning: duration asks for about 240,000,000 requests")


def test_interrupted_replications_print_what_is_known(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played: list[object] = []

    def stop_at_the_fourth(*args: Any, **options: Any) -> Any:
        if len(played) == 3:
            raise KeyboardInterrupt
        played.append(args)
        return simulate(*args, **options)

    monkeypatch.setattr("simulator.study.runs.simulate", stop_at_the_fourth)
    monkeypatch.setattr("simulator.study.workers.cores", lambda: 1)  # else slow runs leave here
    flags = ["--fidelity", "limits", "--seed", "20"]
    assert main(["run", "small.toml", "--replications", "9", *flags]) == 130
    said = capsys.readouterr()
    assert "3 replications, 95 % intervals of the mean" in said.out
    assert "refused share" in said.out
    assert "interrupted: 3 runs are done (seeds 21 to 23); no folder is written" in said.err
    assert not (here / "runs").exists()
    played.clear()
    (here / "random.toml").write_text(SMALL.replace("constant", "poisson"), "utf-8")
    assert main(["run", "random.toml", "--precision", "1e-9", *flags]) == 130
    assert "3 replications, 95 % intervals of the mean" in capsys.readouterr().out


def test_the_module_runs(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "simulator", "run", "small.toml", "--fidelity", "limits"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[3])},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("report: runs/small-7/")
    assert done.stderr == ""


@pytest.mark.parametrize("seed", [-1, 1 << 64, 1.5, "7"])
def test_a_seed_that_is_none_is_refused_everywhere(
    seed: Any, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = "must be a whole number from 0 to 2\\^63 - 1"
    with pytest.raises(InputError, match=rule):
        simulator.run(SMALL, seed=seed, replications=2)
    with pytest.raises(InputError, match=rule):
        simulator.sweep(SMALL, {"clients.c.count": [1]}, seed=seed, out=here / "s")
    keep = {"vary": "clients.c.count", "between": (1, 2), "keep": "refused == 0"}
    with pytest.raises(InputError, match=rule):
        simulator.capacity(SMALL, seed=seed, **keep)  # type: ignore[arg-type] # reason: flags of several types
    with pytest.raises(SystemExit):
        main(["sweep", "small.toml", "--set", "clients.c.count=1", "--seed", "-1"])
    assert "2^63 - 1" in capsys.readouterr().err
    assert not (here / "s").exists()


def test_a_warm_up_below_0_is_refused() -> None:
    with pytest.raises(InputError, match="warm_up = -5 ns must be at least 0"):
        simulator.run(SMALL, warm_up=-5)


def test_what_is_no_scenario_is_one_line_that_says_what_may_be_given() -> None:
    given: Any = {"duration": "1s"}
    rule = "scenario = dict must be a Scenario, a file's path, the name of a built-in one, or TOML"
    with pytest.raises(InputError, match=rule):
        simulator.run(given)


def test_a_sweep_says_which_runs_failed_and_goes_on(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_replication(pickled: bytes, seed: int, **how: Any) -> runs.Replication:
        if seed == 8:
            raise RuntimeError("no room left")
        return runs.run_replication(pickled, seed, **how)

    monkeypatch.setattr(sweep, "run_replication", run_replication)
    monkeypatch.setattr(sweep, "workers_of", InProcess)
    asked = ["sweep", "small.toml", "--set", "clients.c.count=1,2", "--fidelity", "compiled"]
    assert main([*asked, "--seed", "7", "--replications", "2", "--out", "s"]) == 1
    told = capsys.readouterr()
    again = "clients.c.count=1,2 --fidelity compiled --seed 7 --replications 2 --out s"
    assert (
        f"repeat with: python -m simulator sweep small.toml --set {again}" in told.out.splitlines()
    )
    assert [line for line in told.err.splitlines() if "failed" in line] == [
        "failed: point 0, run 1: RuntimeError: no room left",
        "failed: point 1, run 1: RuntimeError: no room left",
    ]
    assert set(simulator.load_sweep(here / "s")["status"]) == {"ok", "failed"}


# --- progress ------------------------------------------------------------------------------------


S = 1_000_000_000


def test_plain_lines_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with progress_bar(10 * S) as tell:
        assert tell is not None
        for clock[0], now_s in ((1, 1), (6, 4), (7, 5), (14, 7)):
            tell(now_s * S)
    assert capsys.readouterr().err == (
        "simulating: 40 %, about 10 s left\nsimulating: 70 %, about 7 s left\n"
    )


def test_what_was_done_before_says_nothing_of_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sweep that goes on at 900 of 1,000 has no pace yet; 10 runs in 10 s are one."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with progress_shown("{} of {}".format) as tell:
        assert tell is not None
        for clock[0], done in ((0, 900), (10, 910), (20, 1_000)):
            tell("sweeping", done, 1_000)
    assert capsys.readouterr().err == (
        "sweeping: 910 of 1000, about 2 min left\nsweeping: 1000 of 1000\n"
    )


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar(10 * S) as tell:
        assert tell is not None
        tell(5 * S)
    assert "simulating" in terminal.getvalue()


def test_quiet_shows_nothing() -> None:
    with progress_bar(10 * S, quiet=True) as tell:
        assert tell is None


def test_a_program_that_only_imports_ipykernel_is_no_notebook() -> None:
    importlib.import_module("ipykernel")
    assert not in_notebook()


# --- bad budgets ---------------------------------------------------------------------------------


RUN = ["run", "everyday", "--out", "{tmp}/new"]
COMPARE = ["compare", "{tmp}/a", "{tmp}/b"]
CAPACITY = ["capacity", "everyday", "--vary", "clients.browsers.count", "--between", "5", "50"]
KEEP = ["--keep", "refused_share <= 0.1"]

PRECISION = "must be above 0 and below 0.5, half the width of a share's interval"
COUNT = "must be a whole number from 1 to 100000"
SHARE = "must be a share of the value, from 0 to 1"

CASES = [
    (given, ["--precision", value], f"--precision: '{value}' {PRECISION}")
    for given in (RUN, COMPARE)
    for value in ("0", "-0.5", "nan", "inf", "narrow", "0.5")
]
CASES += [
    (given, ["--most-replications", value], f"--most-replications: '{value}' {COUNT}")
    for given in (RUN, COMPARE, [*CAPACITY, *KEEP])
    for value in ("0", "-1", "2.5")
]
CASES += [
    (
        given,
        ["--most-time", "5m"],
        "most_time = 5m must go with precision; leave it out",
    )
    for given in (RUN, COMPARE)
]
CASES += [
    (
        given,
        ["--most-replications", "5"],
        "most_replications = 5 must go with precision; leave it out",
    )
    for given in (RUN, COMPARE)
]
CASES += [
    (
        given,
        ["--replications", "5", "--most-replications", "3"],
        "most_replications = 3 must be at least replications, 5; take more",
    )
    for given in ([*RUN, "--precision", "0.1"], [*CAPACITY, *KEEP])
]
CASES += [
    (given, ["--most-time", "0s"], "most_time = 0 ns must be above 0; take more")
    for given in (
        [*RUN, "--precision", "0.1"],
        [*COMPARE, "--precision", "0.1"],
        [*CAPACITY, *KEEP],
    )
]
CASES += [
    (
        CAPACITY,
        ["--keep", "refused_share"],
        (
            "condition = 'refused_share' must be a condition such as"
            " \"refused_share{client='browsers'} <= 0.01\""
        ),
    ),
    (
        CAPACITY,
        ["--keep", "refused_share <= few"],
        "condition = 'refused_share <= few' must compare with a number; few is none",
    ),
    *(
        (
            CAPACITY,
            ["--keep", f"refused_share < {bound}"],
            (
                f"condition = 'refused_share < {bound}' must compare with a share from 0 to 1, "
                f"such as 0.01 or 1%; {bound} is none"
            ),
        )
        for bound in ("1.5", "-0.1", "150%")
    ),
    (
        CAPACITY,
        ["--keep", "refused <= -1"],
        "condition = 'refused <= -1' must compare with a number that is at least 0; -1 is below",
    ),
    ([*CAPACITY, *KEEP], ["--tolerance", "-1"], f"--tolerance: '-1' {SHARE}"),
    ([*CAPACITY, *KEEP], ["--tolerance", "nan"], f"--tolerance: 'nan' {SHARE}"),
    (
        [*CAPACITY, *KEEP],
        ["--between", "50", "5"],
        "between = 50 5 must rise; put the lower value first",
    ),
]


@pytest.mark.parametrize(("command", "flags", "said"), CASES)
def test_a_slip_in_a_budget_is_one_line(
    command: list[str],
    flags: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [word.replace("{tmp}", str(tmp_path)) for word in [*command, *flags]]
    with pytest.raises(SystemExit) as end:
        sys.exit(main(words))
    assert end.value.code == 2
    assert capsys.readouterr().err == f"simulator: {said}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_threshold_without_a_bound_is_told_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "few.toml"
    assert main(["init", str(path)]) == 0
    text = path.read_text("utf-8") + '\n[[thresholds]]\nthat = "refused_share"\n'
    path.write_text(text, "utf-8")
    capsys.readouterr()
    assert main(["run", str(path), "--precision", "0.1", "--out", str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    row = text.splitlines().index('that = "refused_share"') + 1
    assert said.count("\n") == 1
    assert f"few.toml:{row}:" in said
    assert 'thresholds[1].that = "refused_share" must be a condition such as' in said
