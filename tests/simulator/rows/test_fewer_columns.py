"""A log may keep fewer columns: what it keeps is the same, what it lacks is done without or said.

The digest is over all columns, so a run compares equal whichever of them its log keeps.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InputError
from simulator import Result, compare, replay, run
from simulator.cli import main
from simulator.rows.metrics import NEEDS
from simulator.rows.parquet import COLUMN_SETS, choose_columns, schema_of
from simulator.rows.record import SCHEMA
from simulator.views.report import write_report

DECISIONS = ["t_ns", "key", "outcome", "rule", "wait_ns"]
SCENARIO = """
duration = "20s"
seed = 5
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
kind = "public"
keys = 2
[[clients]]
name = "browsers"
count = 30
application = "a"
loop = "open"
arrivals = { kind = "poisson", rate = "4/1s" }
[[clients]]
name = "others"
count = 3
application = "a"
think = { kind = "constant", value = "1s" }
"""
LINE = '192.0.2.{ip} - - [01/May/2026:10:00:{second:02d} +0000] "GET /{path} HTTP/1.1" 200 17\n'


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One run, its log with every column and with those of `decisions`."""
    place = tmp_path_factory.mktemp("runs")
    run(SCENARIO, fidelity="limits", out=place / "whole")
    run(SCENARIO, fidelity="limits", out=place / "fewer", columns="decisions")
    return place / "whole", place / "fewer"


@given(st.lists(st.sampled_from(SCHEMA.names), min_size=1))
def test_columns_come_in_the_files_order_whatever_order_they_are_asked_in(asked: list[str]) -> None:
    kept = choose_columns(asked)
    assert kept == choose_columns(" , ".join(reversed(asked)))
    if kept is None:
        assert set(asked) == set(SCHEMA.names)
    else:
        assert set(kept) == set(asked)
        assert schema_of(kept).names == [name for name in SCHEMA.names if name in asked]


def test_words_stand_for_several_columns_and_may_be_joined_with_others() -> None:
    assert choose_columns("all") is None
    assert choose_columns(None) is None
    assert choose_columns("decisions") == tuple(DECISIONS)
    assert choose_columns("status,decisions") == (*DECISIONS, "status")
    assert COLUMN_SETS["all"] == tuple(SCHEMA.names)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("t_ns,outcom", "columns = 'outcom' must be a column of the log; did you mean 'outcome'?"),
        ([], "columns = [] must name a column; leave it out to keep all"),
        (["key", 5], "columns = ['key', 5] must be names of columns, listed or with commas"),
        (5, "columns = 5 must be names of columns, listed or with commas"),
    ],
)
def test_a_column_that_is_none_is_refused(asked: Any, said: str) -> None:
    with pytest.raises(InputError) as raised:
        choose_columns(asked)
    assert str(raised.value) == said


def test_what_is_kept_is_the_same_and_so_is_the_digest(folders: tuple[Path, Path]) -> None:
    whole, fewer = (pq.read_table(folder / "requests.parquet") for folder in folders)
    assert fewer.column_names == DECISIONS
    assert fewer.to_pylist() == whole.select(DECISIONS).to_pylist()
    assert fewer.schema.metadata[b"tollgate.format"] == whole.schema.metadata[b"tollgate.format"]
    one, other = (json.loads((folder / "summary.json").read_text()) for folder in folders)
    assert other.pop("columns") == DECISIONS
    assert one == other
    assert one["totals"]["refused"] > 0


def test_compare_says_that_the_rows_are_the_same(folders: tuple[Path, Path]) -> None:
    found = compare(*folders)
    assert found.same_rows
    assert all(each.a == each.b for each in found.differences)


def test_compare_of_two_runs_leaves_out_what_one_log_does_not_tell(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    run(SCENARIO, fidelity="limits", seed=6, out=tmp_path / "other")
    told = {each.metric for each in compare(folders[1], tmp_path / "other").differences}
    assert {"offered", "refused_share", "wait_p50", "first_refusal"} <= told
    assert not told & {"latency_p50", "fairness", "goodput_per_s"}


def test_compare_says_in_a_line_what_it_cannot_do_without(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(SCENARIO, fidelity="limits", seed=6, out=tmp_path / "other", columns="key,outcome")
    assert main(["compare", str(folders[0]), str(tmp_path / "other")]) == 2
    assert capsys.readouterr().err == (
        f"simulator: {tmp_path / 'other'}, to be compared, must have the column t_ns; the log keeps"
        " key, outcome alone: run again with --columns that name more\n"
    )


def test_a_metric_is_none_where_a_column_of_it_lacks(folders: tuple[Path, Path]) -> None:
    whole, fewer = (Result.load(folder).metrics("key") for folder in folders)
    for metric, needed in NEEDS.items():
        if set(needed) <= set(DECISIONS):
            assert fewer[metric].equals(whole[metric])
            assert whole[metric].notna().any()
        else:
            assert fewer[metric].isna().all()


@pytest.mark.parametrize("needed", sorted(set(NEEDS.values())), ids=",".join)
def test_each_metric_needs_what_it_says_and_no_more(
    needed: tuple[str, ...], folders: tuple[Path, Path], tmp_path: Path
) -> None:
    whole = Result.load(folders[0])
    kept = Result.load(whole.save(tmp_path / "kept", columns=needed))
    for metric in (name for name, columns in NEEDS.items() if columns == needed):
        assert kept.metrics()[metric].equals(whole.metrics()[metric])


@pytest.mark.parametrize(
    ("dimension", "column"),
    [("group", "client"), ("ip", "ip"), ("tenant", "tenant"), ("path", "path")],
)
def test_a_dimension_that_the_log_lacks_is_refused(
    folders: tuple[Path, Path], dimension: str, column: str
) -> None:
    result = Result.load(folders[1])
    said = f"by = '{dimension}' must have the column {column}; the log keeps {', '.join(DECISIONS)}"
    with pytest.raises(InputError, match=said):
        result.metrics(dimension)
    with pytest.raises(InputError, match=said):
        result.metrics("key", where={dimension: "x"})


def test_a_result_says_which_columns_it_has(folders: tuple[Path, Path]) -> None:
    whole, fewer = (Result.load(folder) for folder in folders)
    assert whole.columns == tuple(SCHEMA.names)
    assert fewer.columns == tuple(DECISIONS)
    assert list(fewer.requests) == DECISIONS


def test_plots_do_what_they_can_and_name_what_lacks(folders: tuple[Path, Path]) -> None:
    plots = Result.load(folders[1]).plots
    assert plots.timeline().to_dict()["data"]
    assert plots.waits().to_dict()["data"]
    with pytest.raises(InputError, match=r"plots\.latencies must have the column latency_ns"):
        plots.latencies()
    with pytest.raises(InputError, match=r"plots\.shut_out must have the column ip"):
        plots.shut_out()


def test_the_report_leaves_out_what_the_log_does_not_tell_and_says_so(
    folders: tuple[Path, Path],
) -> None:
    whole, fewer = ((folder / "report.html").read_text() for folder in folders)
    note = "It keeps t_ns, key, outcome, rule, wait_ns, without retries and goodput,"
    assert note in fewer
    assert note not in whole
    for there, lacks in (('id="when"', 'id="blocks"'), ('id="groups"', 'id="attempts"')):
        assert there in whole
        assert there in fewer
        assert lacks in whole
        assert lacks not in fewer
    again = write_report(folders[1]).read_text()
    assert again == fewer


@pytest.mark.slow
@pytest.mark.parametrize("columns", [[name] for name in SCHEMA.names])
def test_every_column_alone_makes_a_folder_that_is_whole(
    columns: list[str], folders: tuple[Path, Path], tmp_path: Path
) -> None:
    saved = Result.load(folders[0]).save(tmp_path / "saved", columns=columns)
    assert Result.load(saved).summary["columns"] == columns
    assert pq.read_schema(saved / "requests.parquet").names == columns
    Result.load(saved).save(tmp_path / "again")
    for name in ("requests.parquet", "summary.json", "report.html"):
        assert (saved / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_a_warm_up_needs_the_time(tmp_path: Path) -> None:
    run(SCENARIO, fidelity="limits", out=tmp_path / "one", columns="outcome,client", warm_up="1s")
    with pytest.raises(InputError, match="metrics must have the column t_ns; the log keeps"):
        Result.load(tmp_path / "one").metrics()
    assert 'id="when"' not in (tmp_path / "one" / "report.html").read_text()


def test_a_result_saves_no_column_that_it_lacks(folders: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="columns = key,ip must have the column ip; the log keeps"):
        Result.load(folders[1]).save(tmp_path / "out", columns="ip,key")
    assert not (tmp_path / "out").exists()


def test_in_memory_are_all_columns() -> None:
    with pytest.raises(InputError, match="columns = 'key' must go with out, a folder"):
        run(SCENARIO, columns="key")


def test_thresholds_must_find_their_columns_before_the_run_begins(tmp_path: Path) -> None:
    asked = SCENARIO + "[[thresholds]]\nthat = \"latency_p99{client='others'} < 1s\"\n"
    with pytest.raises(InputError) as raised:
        run(asked, fidelity="limits", out=tmp_path / "out", columns="decisions")
    assert str(raised.value).startswith(
        "columns, for the threshold latency_p99{client='others'} < 1s, must have the columns"
        " client, latency_ns; the log keeps t_ns, key, outcome, rule, wait_ns alone"
    )
    assert not (tmp_path / "out").exists()
    kept = "client,outcome,latency_ns"
    result = run(asked, fidelity="limits", out=tmp_path / "out", columns=kept)
    whole = run(asked, fidelity="limits")
    assert result.summary["thresholds"] == whole.summary["thresholds"]


def test_thresholds_need_the_time_where_there_is_a_warm_up(tmp_path: Path) -> None:
    asked = 'warm_up = "1s"\n' + SCENARIO + '[[thresholds]]\nthat = "refused_share < 1"\n'
    with pytest.raises(InputError, match="must have the column t_ns; the log keeps outcome alone"):
        run(asked, fidelity="limits", out=tmp_path / "out", columns="outcome")
    result = run(asked, warm_up="0s", fidelity="limits", out=tmp_path / "out", columns="outcome")
    assert [line["holds"] for line in result.summary["thresholds"]] == [True]


def test_the_command_keeps_the_columns_and_repeats_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "s.toml").write_text(SCENARIO)
    words = ["run", str(tmp_path / "s.toml"), "--fidelity", "compiled", "--out"]
    assert main([*words, str(tmp_path / "out"), "--columns", "outcome,t_ns"]) == 0
    assert "--columns outcome,t_ns --force" in capsys.readouterr().out
    assert pq.read_schema(tmp_path / "out" / "requests.parquet").names == ["t_ns", "outcome"]
    assert main([*words, str(tmp_path / "no"), "--columns", "keys"]) == 2
    assert "columns = 'keys' must be a column of the log" in capsys.readouterr().err
    assert main([*words, str(tmp_path / "no"), "--columns", "key", "--replications", "2"]) == 2
    assert "columns = key must be left out with replications" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_a_replay_keeps_columns_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "access.log"
    log.write_text(
        "".join(LINE.format(ip=1 + n % 2, second=n // 30, path=n % 3) for n in range(900))
    )
    whole = replay(log, out=tmp_path / "whole")
    assert whole.summary["totals"]["refused"] > 0
    words = ["replay", str(log), "--out", str(tmp_path / "fewer"), "--columns", "decisions"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "--columns decisions" in printed
    assert "By limit clause" in printed
    fewer = Result.load(tmp_path / "fewer")
    assert fewer.summary["sha256"] == whole.summary["sha256"]
    assert fewer.requests.equals(whole.requests[DECISIONS])
    assert "the groups of clients" not in (tmp_path / "fewer" / "report.html").read_text()
    with pytest.raises(InputError, match="columns = 'key' must go with out"):
        replay(log, columns="key")
