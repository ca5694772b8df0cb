"""The command `selftest`: what is caught, what survives, and what it says of it."""

from __future__ import annotations

import dataclasses

import pytest

from conformance.cli import main
from conformance.context.verdicts import Finding, Verdict
from conformance.faults import all_faults, selftest
from conformance.faults.registry import Fault
from conformance.faults.trial import judged, try_fault, try_over_http

CHOSEN = "array-reversed,naive-timestamp"


def _finding(clause: str, verdict: Verdict) -> Finding:
    return Finding(clause, "some.check", verdict, "says why")


@pytest.mark.slow
def test_names_who_killed_what(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "try_good", lambda: judged(None, []))
    assert main(["selftest", "--select", CHOSEN, "--processes", "1"]) == 0
    said = capsys.readouterr().out
    assert said.count("model.sequences") >= 2
    assert "\nfine: 2 of 2 known-bad deployments caught, the good one passes" in said


@pytest.mark.slow
def test_a_survivor_fails_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    harmless = Fault("harmless", "TOK-ARRAY", "Nothing is wrong.")
    monkeypatch.setitem(all_faults(), "harmless", harmless)
    monkeypatch.setattr(selftest, "try_good", lambda: judged(None, []))
    assert main(["selftest", "--select", "harmless", "--processes", "1"]) == 1
    said = capsys.readouterr().out
    assert "harmless survives (TOK-ARRAY)" in said
    assert "\nNOT fine: 0 of 1 known-bad deployments caught, the good one passes" in said


def test_a_report_that_names_another_clause_first_fails_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    caught = judged(all_faults()["array-reversed"], [_finding("TOK-ARRAY", Verdict.FAIL)])
    misled = dataclasses.replace(caught, causes=("TOK-PLAIN", "TOK-ARRAY"))
    monkeypatch.setattr(selftest, "try_good", lambda: judged(None, []))
    monkeypatch.setattr(selftest, "try_fault", lambda *_, **__: misled)
    assert main(["selftest", "--select", "array-reversed", "--processes", "1"]) == 1
    said = capsys.readouterr().out
    assert "array-reversed is caught, and the report names TOK-PLAIN before TOK-ARRAY" in said


@pytest.mark.slow
def test_a_check_that_catches_nothing_fails_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = all_faults()
    wanted = {name: known[name] for name in CHOSEN.split(",")}
    monkeypatch.setattr(selftest, "all_faults", lambda: wanted)
    monkeypatch.setattr(selftest, "try_good", lambda: judged(None, []))
    assert main(["selftest", "--processes", "1"]) == 1
    said = capsys.readouterr().out
    assert "quotas.tokenize catches none of them" in said
    assert "model.sequences catches" not in said
    assert "schema.floor catches" not in said, "it runs over HTTP alone"


def test_a_false_alarm_about_the_good_one_fails_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = judged(None, [_finding("TOK-LEAF", Verdict.FAIL)])
    monkeypatch.setattr(selftest, "try_good", lambda: found)
    assert main(["selftest", "--select", "array-reversed", "--processes", "1"]) == 1
    assert "the good deployment fails TOK-LEAF by some.check" in capsys.readouterr().out


@pytest.mark.parametrize("verdict", [Verdict.ERROR, Verdict.INCONCLUSIVE, Verdict.SKIPPED])
def test_nothing_but_a_failure_kills(verdict: Verdict) -> None:
    fault = all_faults()["array-reversed"]
    assert not judged(fault, [_finding("TOK-ARRAY", verdict)]).is_killed


def test_a_failure_of_another_clause_kills_nothing() -> None:
    fault = all_faults()["array-reversed"]
    assert not judged(fault, [_finding("TOK-PLAIN", Verdict.FAIL)]).is_killed


def test_an_unknown_fault_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", "--select", "array-reverse"]) == 2
    assert "did you mean 'array-reversed'" in capsys.readouterr().err


def test_a_known_bad_server_is_caught_over_http() -> None:
    trial = try_over_http(all_faults()["naive-timestamp"], generated=False)
    assert "model.sequences" in trial.killers


SAMPLE = sorted(all_faults())[4::24]
"""Every twenty-fourth known-bad deployment; `python -m conformance selftest` tries them all."""


@pytest.mark.slow
@pytest.mark.parametrize("fault_id", SAMPLE)
def test_a_known_bad_deployment_is_caught(fault_id: str) -> None:
    trial = try_fault(fault_id)
    assert trial.is_killed, trial.message


@pytest.mark.slow
def test_processes_share_the_trials(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "try_good", lambda: judged(None, []))
    monkeypatch.setattr(selftest, "_FEW", 1)  # two are enough to share
    assert main(["selftest", "--select", CHOSEN, "--processes", "2"]) == 0
    assert "\nfine: " in capsys.readouterr().out


@pytest.mark.slow
def test_the_whole_matrix_shows_what_else_fails_and_what_is_caught_over_http(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selftest, "try_good", lambda: judged(None, []))
    assert main(["selftest", "--full", "--select", "naive-timestamp", "--processes", "1"]) == 0
    said = capsys.readouterr().out
    assert "kill matrix" in said
    assert "●" in said
    assert "over HTTP" in said
    assert "schema.floor" in said
    assert "2 of 2 known-bad deployments caught" in said


@pytest.mark.parametrize("fault_id", ["throttle-blocks", "window-110-LIM-CREATE", "block-missing"])
def test_one_run_that_is_told_nothing_catches_a_rate_that_is_off(fault_id: str) -> None:
    trial = try_fault(fault_id)
    assert trial.is_killed, trial.message
    assert trial.runs == 1


@pytest.mark.slow
@pytest.mark.parametrize("fault_id", ["forbidden-while-blocked", "forbidden-after-first"])
def test_403_for_what_a_block_refuses_fails_the_clause_about_429(fault_id: str) -> None:
    assert "limits.LIM-PUBLIC" in try_fault(fault_id).killers


def test_a_fault_that_a_first_run_passes_is_not_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second run is for what was left open: LIM-LEGACY is passed here, which no run mends."""
    calm = Fault("calm", "LIM-LEGACY", "Nothing is wrong.")
    monkeypatch.setitem(all_faults(), "calm", calm)
    trial = try_fault("calm")
    assert (trial.is_killed, trial.runs) == (False, 1)
