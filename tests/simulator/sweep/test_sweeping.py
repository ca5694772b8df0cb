"""Sweeps: what they vary, what they leave on disk, and that nothing stops them for good."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import simulator
from engine.errors import InputError
from simulator.cli import main
from simulator.play.simulation import warm_up
from simulator.scenario import loads
from simulator.study.sweep import (
    Span,
    SweepTask,
    _play_into,
    play_task,
    points_of,
    read_axis,
    tasks_of,
)
from simulator.study.workers import (
    Cluster,
    Lost,
    ProcessWorkers,
    Workers,
    _batch_size,
    play_all,
)
from tests.simulator.workers import InProcess

SCENARIO = """
duration = "20s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
kind = "public"
[[clients]]
name = "c"
count = 3
application = "a"
loop = "open"
arrivals = { kind = "poisson", rate = "20/1s" }
"""


def tasks(count: int) -> list[SweepTask]:
    base = loads(SCENARIO)
    return tasks_of(base, [{"clients.c.count": n + 1} for n in range(count)], 1, 7, "limits")


# --- what is varied ------------------------------------------------------------------------------


def test_a_list_splits_at_commas_outside_brackets() -> None:
    found = read_axis('clients.c.retry={ kind = "fixed", delay = "1s" },{ kind = "none" }')
    assert found == (
        "clients.c.retry",
        [{"kind": "fixed", "delay": "1s"}, {"kind": "none"}],
    )


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("p=1..9", 1, 9),
        ("p=0.5..2", 0.5, 2),
        ("p=10/10s..90/10s", "10/10s", "90/10s"),
        ("p=1s..1m30s", "1s", "1m30s"),
    ],
)
def test_a_range_has_the_form_of_its_ends(text: str, low: Any, high: Any) -> None:
    span = read_axis(text)[1]
    assert isinstance(span, Span)
    assert (span.at(0.0), span.at(1.0)) == (low, high)


def test_a_sample_covers_each_range_evenly_and_goes_by_its_seed() -> None:
    axes = {"x": read_axis("x=0..1000")[1], "y": read_axis("y=0.0..1.0")[1]}
    points = points_of(axes, 20, seed=3)
    assert Counter(min(19, point["x"] // 50) for point in points).most_common(1)[0][1] <= 2
    assert sorted(int(point["y"] * 20) for point in points) == list(range(20))
    assert points == points_of(axes, 20, seed=3)
    assert points != points_of(axes, 20, seed=4)


def test_a_sample_of_few_whole_numbers_has_each_as_often() -> None:
    axes = {"x": read_axis("x=1..3")[1]}
    points = points_of(axes, 30, seed=3)
    assert Counter(point["x"] for point in points) == {1: 10, 2: 10, 3: 10}


@pytest.mark.slow
def test_an_axis_of_seeds_plays_those_seeds(tmp_path: Path) -> None:
    frame = simulator.sweep(loads(SCENARIO), {"seed": [3, 8]}, replications=2, out=tmp_path / "s")
    assert frame["seed"].tolist() == [3, 4, 8, 9]
    alone = [simulator.run(SCENARIO, fidelity="limits", seed=seed) for seed in (3, 4, 8, 9)]
    assert frame["sha256"].tolist() == [each.summary["sha256"] for each in alone]


@pytest.mark.slow
def test_seeds_that_no_row_holds_are_refused_before_anything_is_played(tmp_path: Path) -> None:
    axes = {"seed": [(1 << 63) - 1]}
    with pytest.raises(InputError, match="must leave room for 2 replications below 2"):
        simulator.sweep("management-loop", axes, replications=2, out=tmp_path / "two")
    found = simulator.sweep("management-loop", axes, out=tmp_path / "one")
    assert found["seed"].tolist() == axes["seed"]


def test_what_a_clause_did_not_do_at_a_point_is_0_there(tmp_path: Path) -> None:
    axes: dict[str, list[Any]] = {
        "clients.c.count": [0, 3],
        "rules.LIM-PUBLIC.rate": ["1/1s", "900/1s"],
    }
    frame = simulator.sweep(loads(SCENARIO), axes, out=tmp_path / "s")
    for name in ("blocked_time{clause='LIM-PUBLIC'}", "refused{clause='LIM-PUBLIC'}"):
        found = frame[name].tolist()
        assert found[:2] == [0.0, 0.0]
        assert found[2] > 0.0
        assert found[3] == 0.0


@pytest.mark.parametrize(
    ("axes", "sample", "message"),
    [
        ({"clients.c.count": "1..5"}, None, "is a range; add --sample lhs:N"),
        ({"clients.c.count": "1,5"}, "lhs:3", "must have a range"),
        ({"clients.c.count": "1..5"}, "5", "must be lhs:N"),
        ({"clients.c.count": "5..1"}, "lhs:3", "from the lower to the higher"),
        ({"clients.d.count": "1,5"}, None, "d"),
        ({"rules.LIM-IP.rate": "1/1s..5/2s"}, "lhs:3", "one window"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_played(
    axes: dict[str, str], sample: str | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message) as caught:
        simulator.sweep(loads(SCENARIO), axes, sample=sample, out=tmp_path / "s")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "s").exists()


# --- what is left on disk ------------------------------------------------------------------------


@pytest.mark.slow
def test_every_row_says_its_scenario_and_seed_and_a_sweep_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "s"
    axes: dict[str, Any] = {"clients.c.count": [1, 2], "choices.limits.algorithm": ["gcra"]}
    told: list[tuple[int, int]] = []
    frame = simulator.sweep(
        loads(SCENARIO),
        axes,
        out=out,
        replications=2,
        workers=2,
        progress=lambda done, whole: told.append((done, whole)),
    )
    assert (told[0], told[-1]) == ((0, 4), (4, 4))
    assert list(frame["seed"]) == [7, 8, 7, 8]
    assert list(frame["clients.c.count"]) == [1, 1, 2, 2]
    for row in frame.to_dict("records"):
        alone = simulator.run(row["scenario"], seed=row["seed"], fidelity="limits")
        assert alone.summary["sha256"] == row["sha256"]
        assert alone.summary["totals"]["offered"] == row["offered"]
    whole = pq.read_table(out).to_pandas().sort_values(["point", "replication"])
    assert whole["sha256"].tolist() == frame["sha256"].tolist()
    kept = sorted(out.glob("point=*/run-*.parquet"))
    kept[1].unlink()
    times = {path: path.stat().st_mtime_ns for path in kept if path != kept[1]}
    told.clear()
    again = simulator.sweep(
        loads(SCENARIO),
        axes,
        out=out,
        replications=2,
        workers=1,
        progress=lambda done, whole: told.append((done, whole)),
    )
    assert told == [(3, 4), (4, 4)], "what was done before is told at once"
    assert again.equals(frame)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    with pytest.raises(InputError, match=r"its _sweep\.json is of another"):
        simulator.sweep(loads(SCENARIO), axes, out=out, replications=3)


@pytest.mark.parametrize("column", ["seed", "values"])
@pytest.mark.parametrize("damage", ["cut", "emptied", "changed"])
def test_a_damaged_row_is_one_line_that_names_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str, column: str
) -> None:
    (tmp_path / "s.toml").write_text(SCENARIO)
    folder = tmp_path / "o"
    argv = ["sweep", str(tmp_path / "s.toml"), "--set", "clients.c.count=1,2", "--workers", "1"]
    argv += ["--fidelity", "limits", "--out", str(folder), "--quiet"]
    assert main(argv) == 0
    file = folder / "point=000001" / "run-000000.parquet"
    whole = bytearray(file.read_bytes())
    if damage == "changed":
        index = pq.read_schema(file).names.index(column)
        chunk = pq.read_metadata(file).row_group(0).column(index)
        whole[chunk.dictionary_page_offset + chunk.total_compressed_size - 1] ^= 1
    file.write_bytes({"cut": whole[: len(whole) // 2], "emptied": bytearray()}.get(damage, whole))
    capsys.readouterr()
    assert main(argv) == 2
    assert capsys.readouterr().err == (
        f"simulator: {file} must be a row of a sweep; it is damaged, remove it and sweep again\n"
    )
    file.unlink()
    assert main(argv) == 0


@pytest.mark.parametrize("damage", [b"", b'{"scenario": "cu', b"\xff\xfe"])
def test_a_damaged_description_is_one_line_that_names_its_file(
    tmp_path: Path, damage: bytes
) -> None:
    folder = tmp_path / "o"
    simulator.sweep(loads(SCENARIO), {"clients.c.count": [1]}, out=folder, workers=1)
    description = folder / "_sweep.json"
    description.write_bytes(damage)
    with pytest.raises(InputError) as raised:
        simulator.load_sweep(folder)
    assert str(raised.value) == (
        f"{description} must describe a sweep; it is damaged, sweep again into another folder"
    )


def test_what_a_worker_cannot_write_is_heard(tmp_path: Path) -> None:
    task = tasks(1)[0]
    row = _play_into(tmp_path / "gone", task)
    assert row == play_task(task)
    (tmp_path / "there").mkdir()
    assert _play_into(tmp_path / "there", task) == {**row, "written": True}
    assert list((tmp_path / "there").glob("point=*/run-*.parquet"))


# --- how tasks travel ----------------------------------------------------------------------------


def _quick(task: SweepTask) -> dict[str, Any]:
    return {"point": task.point}


def test_short_tasks_travel_together_and_few_at_the_end() -> None:
    one = tasks(1)[0]
    many = [dataclasses.replace(one, point=number) for number in range(500)]
    workers = InProcess()
    rows = list(play_all(workers, many, _quick))
    assert sorted(rows) == [(number, {"point": number}) for number in range(500)]
    assert workers.sizes[0] == 1
    assert max(workers.sizes) > 20
    assert workers.sizes[-1] == 1


@pytest.mark.parametrize(
    ("each_s", "waiting", "size"),
    [
        (0.1, 1_000, 1),
        (5.0, 1_000, 1),
        (0.01, 1_000, 10),
        (0.01, 12, 3),
        (0.01, 1, 1),
        (0.0, 10, 2),
    ],
)
def test_a_batch_lasts_a_tenth_of_a_second_and_leaves_work_for_others(
    each_s: float, waiting: int, size: int
) -> None:
    assert _batch_size(each_s, waiting, 2) == size


# --- compiled runs -------------------------------------------------------------------------------


def _compiled(count: int, replications: int = 1, duration: str = "20s") -> list[SweepTask]:
    warm_up()  # as `sweep` does, before it hands tasks to processes
    base = loads(SCENARIO.replace("20s", duration))
    points = [{"clients.c.count": n + 1} for n in range(count)]
    return tasks_of(base, points, replications, 7, "compiled")


def test_what_runs_of_a_point_share_moves_nothing() -> None:
    for task in _compiled(2, 3):
        assert task.shares
        assert play_task(task) == play_task(dataclasses.replace(task, shares=False))


def test_a_fault_of_a_run_is_a_row() -> None:
    wrong = dataclasses.replace(_compiled(1)[0], seed=-1)
    row = play_task(wrong)
    assert row["status"] == "failed"
    assert row["error"].startswith("InputError: seed = -1")


# --- workers that die ----------------------------------------------------------------------------


@pytest.fixture(
    scope="module", params=[ProcessWorkers, partial(Cluster, "local")], ids=["pool", "cluster"]
)
def processes(request: pytest.FixtureRequest) -> Iterator[Workers]:
    """Two processes of this machine, and two of a Dask cluster; those that die are replaced."""
    found = request.param(count=2)
    yield found
    found.close()


def _die_once(marker: Path, task: SweepTask) -> dict[str, Any]:
    """Kill the worker at the task of three clients, the first time only."""
    if task.values["clients.c.count"] == 3 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return play_task(task)


@pytest.mark.slow
def test_a_worker_that_dies_costs_nothing_in_the_end(processes: Workers, tmp_path: Path) -> None:
    """What the others play is what is played here."""
    rows = play_all(processes, tasks(4), partial(_die_once, tmp_path / "died"))
    played = dict(rows)
    assert (tmp_path / "died").exists()
    assert [played[place] for place in range(4)] == [play_task(task) for task in tasks(4)]


def _blocked(task: SweepTask) -> dict[str, Any]:
    """Say which signals a worker never hears."""
    return {"point": task.point, "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ())}


@pytest.mark.slow
def test_workers_leave_ctrl_c_to_their_parent(processes: Workers) -> None:
    rows = dict(play_all(processes, tasks(2), _blocked))
    masks = [row["blocked"] for row in rows.values() if isinstance(row, dict)]
    assert len(masks) == 2
    assert all(signal.SIGINT in mask for mask in masks)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def _die_at_70(task: SweepTask) -> dict[str, Any]:
    """Kill the worker at one task of many short ones."""
    if task.point == 70:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"point": task.point, "status": "ok"}


@pytest.mark.slow
def test_a_task_that_kills_its_worker_twice_fails_alone(processes: Workers) -> None:
    many = [dataclasses.replace(tasks(1)[0], point=number) for number in range(200)]
    rows = dict(play_all(processes, many, _die_at_70))
    assert sorted(rows) == list(range(200))
    lost = {place: row.why for place, row in rows.items() if isinstance(row, Lost)}
    assert list(lost) == [70]
    assert lost[70].startswith("its worker died 2 times (")


def _hear_ctrl_c() -> None:
    """Begin as a shell's command does, whatever other tests left to this process."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


@pytest.mark.slow
@pytest.mark.parametrize(("fidelity", "duration"), [("limits", "400s"), ("compiled", "6000s")])
def test_ctrl_c_stops_cleanly_and_the_same_command_goes_on(
    fidelity: str, duration: str, tmp_path: Path
) -> None:
    (tmp_path / "s.toml").write_text(SCENARIO.replace("20s", duration), "utf-8")
    command = [sys.executable, "-m", "simulator", "sweep", str(tmp_path / "s.toml")]
    command += ["--set", "seed=1,2,3,4,5,6,7,8", "--fidelity", fidelity]
    command += ["--workers", "1", "--out", str(tmp_path / "o")]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    first = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=_hear_ctrl_c,  # noqa: PLW1509 # reason: the child sets signals alone
    )
    deadline_s = time.monotonic() + 60
    while not list((tmp_path / "o").glob("point=*/run-*")) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    first.send_signal(signal.SIGINT)
    _, told = first.communicate(timeout=30)
    assert first.returncode == 130
    assert b"Traceback" not in told
    done = len(list((tmp_path / "o").glob("point=*/run-*.parquet")))
    assert 0 < done < 8
    again = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert again.returncode == 0, again.stderr
    assert len(simulator.load_sweep(tmp_path / "o")) == 8


def test_a_place_is_set_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["sweep", "everyday", "--set", "seed=1", "--set", "seed=2", "--out", str(tmp_path / "s")]
    assert main(argv) == 2
    assert capsys.readouterr().err == (
        "simulator: --set = 'seed' must stand once; list all its values there\n"
    )
