"""The commands, the reports' files and the pytest plugin, against a real server on loopback."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import conformance
from conformance.cli import main
from engine.clauses import CLAUSES
from engine.errors import InputError
from tests.engine.http.live import Live, open_limits

SELECT = "TOK-JSON,REC-FPEXPR,QUO-RATE"
QUICK = "RCT-CODE"
"""A clause that needs few requests."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The target file of a demo that is served while these tests run, under wide limits.

    Under the default ones each run would wait until the keys of the one before have rested.
    """
    folder = tmp_path_factory.mktemp("demo")
    file, limits = folder / "target.toml", open_limits(folder)
    words = ["--demo", "--demo-keys", "2", "--write-target", str(file), "--limits", str(limits)]
    live = Live(*words)
    try:
        yield file
    finally:
        live.client.close()
        live.process.terminate()
        live.process.communicate(timeout=20)


@pytest.mark.slow
def test_a_run_prints_a_plan_a_table_and_the_command_that_repeats_it(
    target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = ["run", str(target), "--select", SELECT, "--no-limits", "--seed", "9"]
    assert main([*words, "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("plan: ")
    assert any("not judged here: QUO-RATE: " in line for line in lines)
    assert "pass (2) TOK-JSON, REC-FPEXPR" in lines
    assert any(re.match("not-observable QUO-RATE: ", line) for line in lines)
    assert lines[-1] == f"python -m conformance {' '.join(words)} --out {out} --force"
    assert main([*words, "--out", str(out)]) == 2
    assert "must be empty" in capsys.readouterr().err
    assert main(["judge", str(out)]) == 0
    assert not [line for line in capsys.readouterr().out.splitlines() if ": was " in line]
    assert main(["replay", str(out), "TOK-"]) == 0
    assert capsys.readouterr().out == f"nothing of TOK- failed in {out}\n"
    _check_files(out)


def test_a_run_that_reaches_nobody_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "target.toml", tmp_path / "out"
    file.write_text('base_url = "http://127.0.0.1:9"\n', "utf-8")
    for _ in range(2):
        assert main(["run", str(file), "--out", str(out)]) == 3
        assert capsys.readouterr().err.endswith("cannot connect: connection refused\n")
    assert not out.exists()


def test_a_replay_says_where_it_must_be_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {"clause": "TOK-JSON", "verdict": "fail", "findings": []}
    command = ["python", "-m", "conformance", "run", "nowhere.toml"]
    results = {"format": 1, "seed": 1, "clauses": [failed], "command": command}
    (tmp_path / "results.json").write_text(json.dumps(results), "utf-8")
    assert main(["replay", str(tmp_path), "TOK-"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("conformance: nowhere.toml must be the run's target file; ")
    assert "--target FILE" in said


def _shell(*words: str, code: str = "") -> int:
    """Return the exit code of a command as a shell sees it; code: run before it."""
    start = f"import sys; {code}from conformance.cli import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run([sys.executable, "-c", start, *words], capture_output=True, check=False)
    return done.returncode


@pytest.mark.slow
def test_a_shell_sees_each_exit_code(target: Path, tmp_path: Path) -> None:
    """0 passed, 1 findings, 2 usage or target, 3 nobody to judge, 4 the harness failed."""
    out = ("--out", str(tmp_path / "out"), "--force", "--no-limits", "--quiet")
    assert _shell("run", str(target), "--select", "RCT-CODE", *out) == 0
    partial = ("run", str(target), "--select", "RCT-CODE,LIM-SEARCH", *out)
    assert _shell(*partial) == 0
    assert _shell(*partial, "--strict") == 1
    assert _shell("run", str(target), "--select", "LIM-SEARCH", *out) == 5, "nothing has passed"
    expecting = tmp_path / "expecting.toml"
    text = target.read_text("utf-8")
    expecting.write_text(f'expected_failures = ["RCT-CODE"]\n{text}', "utf-8")
    assert _shell("run", str(expecting), "--select", "RCT-CODE", *out) == 1
    assert _shell("run", str(target), "--select", "RCT-CDE", *out) == 2
    assert _shell("run", str(tmp_path / "none.toml"), *out) == 2
    nobody = tmp_path / "nobody.toml"
    nobody.write_text('base_url = "http://127.0.0.1:9"\n', "utf-8")
    assert _shell("run", str(nobody), *out) == 3
    broken = "from conformance.context.context import CheckContext; CheckContext.passes = None; "
    assert _shell("run", str(target), "--select", "RCT-CODE", *out, code=broken) == 4


def _check_files(out: Path) -> None:
    results = json.loads((out / "results.json").read_text("utf-8"))
    clauses = [one["clause"] for one in results["clauses"]]
    assert sorted(clauses) == sorted(SELECT.split(","))
    cases = ET.parse(out / "junit.xml").getroot().findall("testsuite/testcase")
    names = [str(case.get("name")) for case in cases]
    assert sorted(names) == sorted(clauses), "a case a clause"
    assert names[-2:] == ["TOK-JSON", "REC-FPEXPR"], "what passed comes last"
    assert all(float(str(case.get("time"))) > 0 for case in cases[-2:])
    skipped = [case.get("name") for case in cases if case.find("skipped") is not None]
    assert skipped == ["QUO-RATE"]
    page = (out / "report.html").read_text("utf-8")
    assert "default-src 'none'" in page
    assert not re.search(r"src=|href=.[^#]|<script", page)
    assert all(clause in page for clause in clauses)


def test_a_notebooks_running_loop_is_no_hindrance(target: Path) -> None:
    async def cell() -> conformance.Report:
        return conformance.run(target, select=[QUICK], no_limits=True, seed=2)

    report = asyncio.run(cell())
    assert report.clauses.loc[QUICK, "verdict"] == "pass"
    assert QUICK in report._repr_html_()
    assert re.fullmatch(
        r"<Report on http://\S+, seed 2: no failure: 1 passed of 1 selected clause; .*>",
        repr(report),
    )
    assert len(report.requests_made) == report.requests


def test_a_program_names_formats_and_a_baseline(target: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    asked: dict[str, Any] = {"select": [QUICK], "no_limits": True, "seed": 2}
    conformance.run(target, out=first, formats=["sarif"], **asked)
    assert (first / "results.sarif").exists()
    assert not (first / "junit.xml").exists()
    then = json.loads((first / "results.json").read_text("utf-8"))
    then["clauses"][0] |= {"is_finding": True}
    (first / "results.json").write_text(json.dumps(then), "utf-8")
    report = conformance.run(target, out=second, formats="junit", baseline=first, **asked)
    assert report.comparison is not None
    assert report.comparison.mended == (QUICK,)
    assert (second / "junit.xml").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"formats": ["junt"], "out": "x"}, "formats = 'junt' must be some of json, junit, "),
        ({"formats": ["junit"]}, "formats needs out, "),
        ({"only_new": True}, "only_new needs baseline, "),
        ({"baseline": "nowhere"}, "nowhere/results.json: no such file or directory; "),
    ],
)
def test_a_bad_argument_of_a_program_sends_nothing(given: dict[str, Any], says: str) -> None:
    target = conformance.Target(base_url="http://127.0.0.1:9")
    with pytest.raises(InputError) as error:
        conformance.run(target, **given)
    assert str(error.value).startswith(says)
    assert not Path("x").exists()


def test_list_and_explain_name_what_checks_a_clause(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == [clause.id for clause in CLAUSES]
    assert main(["explain", "TOK-ATOMIC", "LIM-"]) == 0
    explained = capsys.readouterr().out
    assert "the whole request fails and no token is created" in explained
    assert "accepted: " in explained
    assert main(["explain", "TOK-ATOMIK"]) == 2
    assert "did you mean 'TOK-ATOMIC'?" in capsys.readouterr().err


@pytest.mark.slow
def test_init_writes_a_target_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    assert main(["init", str(file)]) == 0
    assert f"wrote {file}, and its schema beside it; fill" in capsys.readouterr().out
    assert main(["init", str(file)]) == 2
    assert "is there already" in capsys.readouterr().err


def _pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments]
    if "conformance.pytest_plugin" not in _entry_points():
        words += ["-p", "conformance.pytest_plugin"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def _entry_points() -> set[str]:
    from importlib.metadata import entry_points  # noqa: PLC0415 # reason: only asked here

    return {point.value for point in entry_points(group="pytest11")}


@pytest.mark.slow
def test_pytest_has_a_test_a_clause(target: Path, tmp_path: Path) -> None:
    words = ["--pyargs", "conformance", "--target", str(target), "--target-no-limits"]
    found = _pytest(tmp_path, *words, "-k", "TOK-JSON or QUO-RATE or REC-FPEXPR", "-rA")
    assert found.returncode == 0, found.stdout
    assert "2 passed, 1 skipped" in found.stdout
    assert "no answer says which one is in force" in found.stdout


@pytest.mark.slow
def test_pytest_takes_formats_and_a_baseline(target: Path, tmp_path: Path) -> None:
    words = ["--pyargs", "conformance", "--target", str(target), "--target-no-limits"]
    words += ["-k", QUICK, "--target-out", "one", "--target-format", "sarif"]
    found = _pytest(tmp_path, *words)
    assert found.returncode == 0, found.stdout
    assert (tmp_path / "one" / "results.sarif").exists()
    again = ["--target-out", "two", "--target-baseline", "one", "--target-only-new"]
    found = _pytest(tmp_path, *words, *again)
    assert found.returncode == 0, found.stdout
    compared = json.loads((tmp_path / "two" / "results.json").read_text("utf-8"))["baseline"]
    assert (compared["run"], compared["only_new"]) == ("one", True)
    bad = _pytest(tmp_path, *words[:-1], "sarf")
    assert "--target-format = 'sarf' must be some of" in bad.stdout + bad.stderr


@pytest.mark.slow
def test_without_a_target_the_plugin_does_nothing(tmp_path: Path) -> None:
    assert "no tests ran" in _pytest(tmp_path, "--pyargs", "conformance").stdout
    (tmp_path / "bad.toml").write_text('base_url = "nowhere"\n', "utf-8")
    found = _pytest(tmp_path, "--pyargs", "conformance", "--target", "bad.toml")
    assert "bad.toml:1:12: base_url" in found.stdout + found.stderr
    assert found.returncode != 0
