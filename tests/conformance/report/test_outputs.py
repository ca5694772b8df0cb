"""What a run leaves for others to read: order, JUnit, SARIF, annotations, baselines, progress."""

from __future__ import annotations

import dataclasses
import html
import io
import json
import re
import threading
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

import conformance
from conformance.context.check import Check
from conformance.context.verdicts import Finding, Moment, Verdict, assemble
from conformance.messages.exchange import Exchange, HttpRequest
from conformance.report import Report
from conformance.report.baseline import Baseline
from conformance.report.code_hosts import annotation_files, commands_for, sarif_json
from conformance.report.evidence import status_of
from conformance.report.junit import junit_xml
from conformance.report.page import page
from conformance.report.sections import causes, folds, in_order
from conformance.runner.plan import Dealt, RunPlan, blocked_addresses
from conformance.runner.preflight import Preflight
from conformance.runner.runner import Options, Run
from conformance.target import Target, TargetKey
from conformance.terminal import Terminal, show_report
from conformance.wire.in_process import deploy
from conformance.wire.redaction import Redactor
from engine import InputError, Profile
from engine.clauses import select

SECOND_NS = 1_000_000_000
SENTENCE = "got 200,\nnot 400: ::error::%41"


def _report(tmp_path: Path | None = None, **more: object) -> Report:
    """Return the report of a run that found one of everything."""
    said = [
        Finding("TOK-LEAF", "a", Verdict.FAIL, SENTENCE, (1,), "a 4xx"),
        Finding("TOK-PLAIN", "a", Verdict.FAIL, "no identifier", follows="TOK-LEAF"),
        Finding("TOK-ARRAY", "b", Verdict.PASS, "mirrored"),
        Finding("REC-ID", "c", Verdict.SKIPPED, "no key of role short"),
        Finding("REC-TYPE", "c", Verdict.SKIPPED, "no key of role short"),
        Finding("REC-TENANT", "d", Verdict.INCONCLUSIVE, "too slow"),
        Finding("REC-CREATED", "e", Verdict.ERROR, "the harness failed: KeyError"),
        Finding("TOK-JSON", "f", Verdict.FAIL, "known to fail"),
    ]
    clauses = select(sorted({one.clause for one in said}))
    target = Target(
        base_url="http://localhost",
        keys=(TargetKey(role="public", value="canary-of-a-key", variable="MINE"),),
    )
    command: tuple[str, ...] = ()
    if tmp_path is not None:
        file = tmp_path / "target.toml"
        file.write_text(
            '# a target\nexpected_failures = ["TOK-JSON"]\nbase_url = "http://localhost"\n', "utf-8"
        )
        command = ("python", "-m", "conformance", "run", str(file))
    ask = HttpRequest(method="POST", path="/tokenize", key="public.1", body={"a": "<b>"})
    exchange = Exchange(1, "a", "main", 1, ask, 0, 1_000, 200, {}, b'{"x": "canary-of-a-key"}')
    fields: dict[str, object] = {
        "results": assemble(clauses, said, expected=("TOK-JSON",)),
        "exchanges": {1: exchange},
        "redactor": Redactor(target.key_texts),
        "target": target,
        "profile": Profile(),
        "preflight": dataclasses.asdict(Preflight()),
        "started_at": "2026-01-01T00:00:00+00:00",
        "took_ns": 3 * SECOND_NS,
        "command": command,
        "spans": {
            "a": (0, SECOND_NS),
            "b": (SECOND_NS // 2, 2 * SECOND_NS),
            "c": (0, SECOND_NS // 4),
        },
    }
    return Report(**{**fields, **more})  # type: ignore[arg-type] # reason: fields by name


def _printed(report: Report) -> str:
    stream = io.StringIO()
    show_report(Console(file=stream, highlight=False, soft_wrap=True), report)
    return stream.getvalue()


# --- order --------------------------------------------------------------------------------------


def test_failures_come_first_by_cause_and_the_rest_by_reason() -> None:
    report = _report()
    found = causes(report.results)
    assert [one.result.clause.id for one in found] == ["TOK-LEAF", "TOK-JSON"]
    assert [one.clause.id for one in found[0].followers] == ["TOK-PLAIN"]
    folded = {one.reason: [r.clause.id for r in one.results] for one in folds(report.results)}
    assert folded["no key of role short"] == ["REC-ID", "REC-TYPE"]
    ordered = [one.clause.id for one in in_order(report.results)]
    assert ordered[:2] == ["TOK-LEAF", "TOK-PLAIN"]
    assert ordered[-1] == "TOK-ARRAY"
    assert sorted(ordered) == sorted(one.clause.id for one in report.results)
    for text in (_printed(report), junit_xml(report), page(report), sarif_json(report)):
        assert text.index("TOK-LEAF") < text.index("TOK-PLAIN")
    printed = _printed(report)
    assert printed.index("because of it these fail too: TOK-PLAIN") < printed.index(
        "skipped REC-ID, REC-TYPE"
    )


def test_the_result_line_and_junit_count_the_same_clauses() -> None:
    """JUnit counted one more than the line, which left out what nobody can observe."""
    unjudged = (Verdict.INCONCLUSIVE, Verdict.NOT_OBSERVABLE, Verdict.NOT_APPLICABLE)
    verdicts = [Verdict.PASS, Verdict.SKIPPED, Verdict.SKIPPED, *unjudged, Verdict.INFORMATIONAL]
    clauses = select(["TOK-"])[: len(verdicts)]
    said = [Finding(one.id, "a", is_so, "") for one, is_so in zip(clauses, verdicts, strict=True)]
    report = _report(results=assemble(clauses, said))
    line = "1 inconclusive, 2 skipped, 1 not-observable, 1 not-applicable; no failure"
    assert report.verdict_line.endswith(line)
    suite = ET.fromstring(junit_xml(report))[0]
    assert suite.get("skipped") == "5"


def test_choices_are_printed_as_a_profiles_file_has_them() -> None:
    profile = Profile().replace(limits={"count_refused": True}, outside={"keep_hot_ns": SECOND_NS})
    known = {"limits.algorithm", "limits.count_refused", "outside.keep_hot_ns"}
    report = _report(profile=profile, known=known)
    printed = _printed(report)
    lines = {
        "limits.algorithm": '"sliding-log"',
        "limits.count_refused": "true",
        "outside.keep_hot": '"1s"',
    }
    for choice, value in lines.items():
        assert f"choice: {choice} = {value}\n" in printed
        assert f'{choice}</dt><dd class="mono">{value}</dd>' in html.unescape(page(report))


def test_a_chain_of_causes_and_a_circle_lose_no_clause() -> None:
    fail = Verdict.FAIL
    chain = [
        Finding("TOK-LEAF", "a", fail, "one"),
        Finding("TOK-PLAIN", "a", fail, "two", follows="TOK-LEAF"),
        Finding("TOK-ARRAY", "a", fail, "three", follows="TOK-PLAIN"),
        Finding("REC-ID", "a", fail, "four", follows="REC-TYPE"),
        Finding("REC-TYPE", "a", fail, "five", follows="REC-ID"),
    ]
    results = assemble(select([one.clause for one in chain]), chain)
    named = [r.clause.id for cause in causes(results) for r in (cause.result, *cause.followers)]
    assert sorted(named) == sorted(one.clause for one in chain)


def test_the_headline_names_every_failure() -> None:
    clauses = select(["TOK-"])
    results = assemble(
        clauses, [Finding(one.id, one.id, Verdict.FAIL, f"{one.id} is wrong") for one in clauses]
    )
    line = _report(results=results).verdict_line
    assert all(clause.id in line for clause in clauses)
    assert "…" not in line
    assert _report().verdict_line.startswith(
        "does not conform: TOK-LEAF; TOK-PLAIN follows from it; the harness failed in 1"
    )


def test_the_terminal_cuts_no_sentence_and_marks_a_body_that_it_cuts() -> None:
    stream, long = io.StringIO(), "the requests came too slowly; " * 9 + "add keys"

    async def judge(_: object) -> list[Finding]:
        return []

    failed = Finding("TOK-LEAF", "a", Verdict.FAIL, long, (1,))
    ended = Check("a", ("TOK-LEAF",), "says", "a pass", judge)
    for verdict in Verdict:
        if verdict <= Verdict.NOT_OBSERVABLE:
            Terminal(stream).ended(ended, [dataclasses.replace(failed, verdict=verdict)])
    assert stream.getvalue() == "", "nothing is to be done about it"
    Terminal(stream).ended(ended, [failed])
    assert stream.getvalue() == f"  fail a: {long}\n"
    ask = HttpRequest(method="POST", path="/tokenize", body={})
    exchange = Exchange(1, "a", "main", 1, ask, 0, 1, 200, {}, b"x" * 301)
    said = [failed, *(dataclasses.replace(failed, message=f"another {n}") for n in range(3))]
    report = _report(results=assemble(select(["TOK-LEAF"]), said), exchanges={1: exchange})
    assert f"-> 200 {'x' * 300}…\n" in _printed(report)
    assert "and 1 more finding in the report" in _printed(report)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (("TOK-LEAF",), "does not conform: TOK-LEAF; TOK-PLAIN follows from it"),
        (("TOK-LEAF", "REC-ID"), "TOK-LEAF, REC-ID; TOK-PLAIN follows from these"),
    ],
)
def test_the_last_line_counts_causes(broken: tuple[str, ...], says: str) -> None:
    said = [Finding(one, one, Verdict.FAIL, f"{one} is wrong") for one in broken]
    said.append(Finding("TOK-PLAIN", "a", Verdict.FAIL, "wrong too", follows="TOK-LEAF"))
    results = assemble(select([one.clause for one in said]), said)
    assert says in _report(results=results).verdict_line


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({}, 0),
        ({"unrun": ("schema.floor",)}, 0),
        ({"unrun": ("schema.floor",), "strict": True}, 1),
        ({"strict": True}, 0),
        ({"aborted": "no key got a request accepted"}, 3),
        ({"broken": ("cleaning up: OSError",)}, 4),
        ({"broken": ("its preflight: OSError",), "aborted": "the harness failed"}, 4),
    ],
)
def test_the_exit_code_says_first_what_hinders_a_verdict(more: dict[str, Any], code: int) -> None:
    """Where the harness failed, neither the deployment nor its absence is to blame."""
    passed = assemble(select(["TOK-LEAF"]), [Finding("TOK-LEAF", "a", Verdict.PASS, "mirrored")])
    assert _report(results=passed, **more).exit_code == code


def test_of_many_exchanges_and_of_a_long_body_the_beginning_is_shown() -> None:
    ask = HttpRequest(method="POST", path="/tokenize", body={})
    exchanges = {
        number: Exchange(number, "a", "main", number, ask, 0, 1, 200, {}, b"x" * (1_998 + number))
        for number in range(1, 8)
    }
    failed = Finding("TOK-LEAF", "a", Verdict.FAIL, "wrong", (9, 1, 2, 3, 4, 5, 6))
    report = _report(results=assemble(select(["TOK-LEAF"]), [failed]), exchanges=exchanges)
    shown = report.evidence(failed)
    assert [one["number"] for one in shown] == [1, 2, 3, 4]
    assert [len(one["body"]) for one in shown] == [1_999, 2_000, 2_001, 2_001]
    assert [one["body"][-1] for one in shown] == ["x", "x", "…", "…"]


# --- JUnit, SARIF, annotations ------------------------------------------------------------------


def test_junit_tells_first_what_fails_a_clause() -> None:
    said = [
        Finding("TOK-LEAF", "a", Verdict.PASS, "mirrored"),
        Finding("TOK-LEAF", "b", Verdict.FAIL, "holds another string"),
    ]
    report = _report(results=assemble(select(["TOK-LEAF"]), said))
    failure = ET.fromstring(junit_xml(report)).find(".//failure")
    assert failure is not None
    lines = str(failure.text).splitlines()[2:]
    assert lines == ["fail: holds another string [b]", "pass: mirrored [a]"]


def test_junit_has_real_times_and_each_text_once() -> None:
    root = ET.fromstring(junit_xml(_report()))
    cases = {str(case.get("name")): case for case in root.iter("testcase")}
    assert cases["TOK-LEAF"].get("time") == "1.000"
    assert cases["TOK-ARRAY"].get("time") == "1.500"
    failure = cases["TOK-LEAF"].find("failure")
    assert failure is not None
    assert "expected: a 4xx" in str(failure.text)
    assert cases["TOK-LEAF"].find("system-out") is None
    assert cases["TOK-ARRAY"].findtext("system-out") is not None
    followed = cases["TOK-PLAIN"].find("failure")
    assert followed is not None
    assert str(followed.get("message")).startswith("follows from TOK-LEAF: ")
    assert cases["REC-CREATED"].find("error") is not None
    assert cases["TOK-JSON"].find("skipped") is not None


def test_what_no_xml_may_hold_leaves_junit_readable() -> None:
    """A deployment may answer with any byte; a build server must still read the file."""
    odd = "\x00\x08\x0b\x1f\ufffe\ud800"
    said = [Finding("TOK-LEAF", "a", Verdict.FAIL, f"got {odd}\t\U0001f511", (1,))]
    ask = HttpRequest(method="POST", path="/tokenize", body={"a": odd[:-1]})
    exchange = Exchange(1, "a", "main", 1, ask, 0, 1, 200, {}, odd[:-1].encode())
    report = _report(results=assemble(select(["TOK-LEAF"]), said), exchanges={1: exchange})
    failure = ET.fromstring(junit_xml(report)).find(".//failure")
    assert failure is not None
    assert failure.get("message") == "got " + 6 * "\N{REPLACEMENT CHARACTER}" + "\t\U0001f511"
    assert "-> 200 " + 5 * "\N{REPLACEMENT CHARACTER}" in str(failure.text)


def test_a_clauses_time_counts_what_ran_side_by_side_once() -> None:
    said = [Finding("TOK-LEAF", name, Verdict.PASS, "fine") for name in ("a", "b", "c")]
    report = _report(results=assemble(select(["TOK-LEAF"]), said))
    assert report.took_by_ns(report.results[0]) == 2 * SECOND_NS


def test_sarif_tells_failures_from_faults_of_the_harness(tmp_path: Path) -> None:
    run = json.loads(sarif_json(_report(tmp_path)))["runs"][0]
    results = {one["ruleId"]: one for one in run["results"]}
    assert list(results) == ["TOK-LEAF", "TOK-PLAIN", "TOK-JSON", "REC-TENANT"]
    assert results["TOK-LEAF"]["level"] == "error"
    assert results["TOK-PLAIN"]["properties"] == {"follows": "TOK-LEAF"}
    assert results["TOK-PLAIN"]["message"]["text"].startswith("TOK-PLAIN: follows from TOK-LEAF: ")
    assert results["REC-TENANT"]["kind"] == "open"
    assert results["TOK-JSON"]["suppressions"][0]["kind"] == "external"
    places = {
        name: one["locations"][0]["physicalLocation"]["region"]["startLine"]
        for name, one in results.items()
    }
    assert (places["TOK-LEAF"], places["TOK-JSON"]) == (3, 2)
    invocation = run["invocations"][0]
    assert invocation["exitCode"] == 4
    assert not invocation["executionSuccessful"]
    assert "KeyError" in invocation["toolExecutionNotifications"][0]["message"]["text"]
    driver = run["tool"]["driver"]
    assert driver["version"] == conformance.__version__
    assert driver["informationUri"].startswith("https://")
    rules = [one["id"] for one in driver["rules"]]
    assert set(results) <= set(rules)


def test_annotations_are_one_command_a_finding_whatever_a_sentence_holds(tmp_path: Path) -> None:
    report = _report(tmp_path)
    github, azure, gitlab = annotation_files(report).values()
    lines = github.splitlines()
    assert len(lines) == 2, "an expected failure annotates nothing"
    assert lines[0] == (
        "::error file=target.toml,line=3,title=TOK-LEAF::got 200,%0Anot 400: ::error::%2541"
    )
    assert "follows from TOK-LEAF" in lines[1]
    assert azure.splitlines()[0] == (
        "##vso[task.logissue type=error;sourcepath=target.toml;linenumber=3;code=TOK-LEAF]"
        "TOK-LEAF: got 200,%0Anot 400: ::error::%AZP2541"
    )
    quality = json.loads(gitlab)
    assert [one["check_name"] for one in quality] == ["TOK-LEAF", "TOK-PLAIN"]
    assert len({one["fingerprint"] for one in quality}) == 2
    assert commands_for(report, {"GITHUB_ACTIONS": "true"}) == github
    assert commands_for(report, {"TF_BUILD": "True"}) == azure
    assert commands_for(report, {"GITLAB_CI": "true"}) is None


def test_no_output_shows_a_key_and_every_curl_line_names_the_targets_variable() -> None:
    report = _report()
    texts = [_printed(report), junit_xml(report), page(report), sarif_json(report)]
    texts += [*annotation_files(report).values(), json.dumps(report.plain(), default=str)]
    assert not [text for text in texts if "canary" in text]
    assert "SVC-API-KEY: $MINE" in texts[0]


# --- baseline -----------------------------------------------------------------------------------


def _saved(folder: Path, report: Report) -> Path:
    folder.mkdir()
    report.save(folder)
    return folder


def test_a_baseline_tells_new_mended_and_unchanged(tmp_path: Path) -> None:
    then = [
        Finding("TOK-LEAF", "a", Verdict.FAIL, "wrong"),
        Finding("TOK-ARRAY", "a", Verdict.FAIL, "wrong"),
        Finding("REC-ID", "a", Verdict.FAIL, "wrong"),
    ]
    ids = [one.clause.id for one in _report().results]
    old = _report(results=assemble(select(ids), then))
    folder = _saved(tmp_path / "old", old)
    for path in (folder, folder / "results.json"):
        baseline = Baseline.of(path)
        comparison = baseline.compare(_report().results)
        assert comparison.unchanged == ("TOK-LEAF",)
        assert comparison.new == ("TOK-PLAIN",)
        assert comparison.mended == ("TOK-ARRAY",)
        assert comparison.unseen == ("REC-ID",), "skipped is not mended"
    report = _report(baseline=baseline)
    assert (
        "1 new (TOK-PLAIN), 1 fixed (TOK-ARRAY), 1 unchanged (TOK-LEAF), 1 not judged now (REC-ID)"
    ) in _printed(report)
    assert report.plain()["baseline"]["new"] == ("TOK-PLAIN",)
    states = {
        one["ruleId"]: one.get("baselineState")
        for one in json.loads(sarif_json(report))["runs"][0]["results"]
    }
    assert (states["TOK-LEAF"], states["TOK-PLAIN"]) == ("unchanged", "new")
    assert states["REC-TENANT"] is None, "what is open is no result to compare"


def test_only_new_findings_count_where_that_is_asked_for(tmp_path: Path) -> None:
    said = [
        Finding("TOK-LEAF", "a", Verdict.FAIL, "wrong"),
        Finding("TOK-ARRAY", "a", Verdict.PASS, "fine"),
    ]
    results = assemble(select(["TOK-LEAF", "TOK-ARRAY"]), said)
    baseline = Baseline.of(_saved(tmp_path / "old", _report(results=results)))
    assert _report(results=results, baseline=baseline).exit_code == 1
    known = _report(results=results, baseline=baseline, only_new=True)
    assert known.exit_code == 0
    case = ET.fromstring(junit_xml(known)).find(".//testcase[@name='TOK-LEAF']")
    assert case is not None
    assert case.find("failure") is None
    assert case.find("skipped") is not None
    assert not annotation_files(known)["annotations.github.txt"]
    more = assemble(
        select(["TOK-LEAF", "TOK-ARRAY"]),
        [said[0], dataclasses.replace(said[1], verdict=Verdict.FAIL)],
    )
    assert _report(results=more, baseline=baseline, only_new=True).exit_code == 1


def test_new_findings_come_before_those_of_the_baseline(tmp_path: Path) -> None:
    clauses = select(["TOK-PLAIN", "TOK-LEAF"])
    known = Finding("TOK-PLAIN", "a", Verdict.FAIL, "wrong before")
    fresh = Finding("TOK-LEAF", "a", Verdict.FAIL, "wrong now")
    old = _report(results=assemble(clauses, [known]))
    baseline = Baseline.of(_saved(tmp_path / "old", old))
    now = _report(results=assemble(clauses, [known, fresh]), baseline=baseline, only_new=True)
    told, cases = page(now), junit_xml(now)
    for text in (
        _printed(now),
        told[told.index("<main") :],
        cases[cases.index("<testcase") :],
        sarif_json(now),
    ):
        assert text.index("wrong now") < text.index("wrong before")


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"format": 1, "clauses": [3]}'])
def test_what_is_no_run_is_no_baseline(tmp_path: Path, text: str) -> None:
    (tmp_path / "results.json").write_text(text, "utf-8")
    with pytest.raises(InputError, match="must be the results of a run; run it again"):
        Baseline.of(tmp_path)
    with pytest.raises(InputError, match="no such file or directory; give the folder of a run"):
        Baseline.of(tmp_path / "nowhere")


# --- timelines ----------------------------------------------------------------------------------

STORY = (
    Moment(at_ns=SECOND_NS, until_ns=SECOND_NS * 3 // 2, status=200, count=50, key="public.1"),
    Moment(at_ns=2 * SECOND_NS, status=429, key="public.1", source="127.0.0.2", message="refused"),
    Moment(at_ns=12 * SECOND_NS, status=None, key="public.1", message="no answer"),
)


def test_a_timeline_is_told_and_drawn() -> None:
    said = [Finding("LIM-PUBLIC", "p", Verdict.FAIL, "blocked too long", timeline=STORY)]
    report = _report(results=assemble(select(["LIM-PUBLIC"]), said))
    printed = _printed(report)
    assert "+0.000 s to +0.500 s  50 x 200  public.1" in printed
    assert "+1.000 s  429  public.1 from 127.0.0.2  refused" in printed
    for count, left in ((14, None), (15, "… 1 more"), (40, "… 26 more")):
        long = dataclasses.replace(said[0], timeline=STORY[:1] * count)
        lines = _printed(_report(results=assemble(select(["LIM-PUBLIC"]), [long]))).splitlines()
        told = [line.strip() for line in lines if "50 x 200" in line or " more" in line]
        assert len(told) == min(count, 14) + (left is not None)
        assert left is None or told[7] == left
    drawn = page(report)
    assert "<svg" in drawn
    assert "+0.000 s, first to last 0.500 s" in drawn
    assert report.plain()["clauses"][0]["findings"][0]["timeline"][1]["status"] == 429


def test_a_limits_timeline_follows_from_the_exchanges_of_its_check() -> None:
    def asked(number: int, at_ns: int, status: int, source: str = "127.0.0.2") -> Exchange:
        ask = HttpRequest(method="POST", path="/tokenize", key="public.1", source=source)
        return Exchange(number, "limits.a", "l", number, ask, at_ns, at_ns + 1, status)

    sent = [asked(n, n * SECOND_NS // 100, 200 if n <= 50 else 429) for n in range(1, 56)]
    sent += [asked(60, 8 * SECOND_NS, 200, "127.0.0.3"), asked(61, 12 * SECOND_NS, 429)]
    exchanges = {one.number: one for one in sent}
    failed = Finding("LIM-PUBLIC", "limits.a", Verdict.FAIL, "still refused after 12 s", (61,))
    report = _report(results=assemble(select(["LIM-PUBLIC"]), [failed]), exchanges=exchanges)
    told = [
        (one.count, one.status, one.source, one.message)
        for one in report.timeline(report.results[0].findings[0])
    ]
    assert told == [
        (50, 200, "127.0.0.2", ""),
        (1, 429, "127.0.0.2", "POST /tokenize, the first refused"),
        (4, 429, "127.0.0.2", ""),
        (1, 200, "127.0.0.3", ""),
        (1, 429, "127.0.0.2", "POST /tokenize, shown below"),
    ]
    first = report.timeline(report.results[0].findings[0])[0]
    assert (first.at_ns, first.until_ns) == (SECOND_NS // 100, SECOND_NS // 2)
    other = dataclasses.replace(failed, check="schema.floor")
    assert report.timeline(other) == ()
    many = {
        n: asked(n, n * SECOND_NS, 200 if n % 3 else 429, f"127.0.0.{n % 4}")
        for n in range(1, 2_000)
    }
    crowded = _report(results=report.results, exchanges=many)
    assert len(crowded.timeline(failed)) <= 60


def test_series_are_put_together_where_a_timeline_has_more_than_sixty_entries() -> None:
    """Twice as long a pause ends a series then."""
    ask = HttpRequest(method="GET", path="/tokens", key="public.1")
    failed = Finding("LIM-PUBLIC", "limits.a", Verdict.FAIL, "wrong")
    for asked, counts in ((60, [1] * 60), (61, [*[2] * 30, 1])):
        times_ms = [number * 3 // 2 * 500 for number in range(asked)]
        sent = {
            number: Exchange(number, "limits.a", "l", number, ask, at_ms * 1_000_000, 1 << 40, 200)
            for number, at_ms in enumerate(times_ms)
        }
        report = _report(results=assemble(select(["LIM-PUBLIC"]), [failed]), exchanges=sent)
        told = report.timeline(failed)
        assert [one.count for one in told] == counts
        assert all((one.until_ns is None) == (one.count == 1) for one in told)


def test_each_sender_has_a_series_of_its_own() -> None:
    """A request without a key of its own is sent by its proxy's key or through its host."""
    asks: tuple[dict[str, Any], ...] = (
        {"key": "public.1", "source": "127.0.0.2"},
        {"key": "public.1", "source": "127.0.0.3"},
        {"proxy_key": "proxy.1"},
        {"host": "route.example"},
        {},
    )
    sent = {}
    for at, more in enumerate(asks * 2):
        ask = HttpRequest(method="GET", path="/tokens", **more)
        sent[at] = Exchange(at, "limits.a", "l", at, ask, at, at + 1, 200)
    failed = Finding("LIM-PUBLIC", "limits.a", Verdict.FAIL, "wrong")
    report = _report(results=assemble(select(["LIM-PUBLIC"]), [failed]), exchanges=sent)
    told = report.timeline(failed)
    assert [(one.key, one.source) for one in told] == [
        ("public.1", "127.0.0.2"),
        ("public.1", "127.0.0.3"),
        ("proxy.1", None),
        ("route.example", None),
        (None, None),
    ]
    assert {status_of(one) for one in told} == {"2 x 200"}


def test_a_pause_ends_a_burst_and_what_is_not_shown_below_decides_too() -> None:
    ask = HttpRequest(method="GET", path="/tokens", key="public.1")
    times_ms = [*range(0, 60, 10), 450, 851, 861, *range(2_000, 2_060, 10)]
    sent = {
        number: Exchange(number, "limits.a", "l", number, ask, at_ms * 1_000_000, 1 << 40, 200)
        for number, at_ms in enumerate(times_ms)
    }
    failed = Finding("LIM-PUBLIC", "limits.a", Verdict.FAIL, "wrong", tuple(range(9, 15)))
    report = _report(results=assemble(select(["LIM-PUBLIC"]), [failed]), exchanges=sent)
    told = [(one.count, one.message.partition(", ")[2]) for one in report.timeline(failed)]
    assert told == [(7, ""), (2, ""), *[(1, "shown below")] * 5, (1, "also decides")]


# --- before and while a run goes ----------------------------------------------------------------


def test_who_will_be_shut_out_is_said_before_the_run() -> None:
    for more, says in (
        ({}, " is refused; so is everybody else behind the same address"),
        (
            {"sources": ()},
            "for 30 s afterwards every request from this machine's own address is refused",
        ),
        ({"sources": (), "forwarded": "X-Forwarded-For"}, "the addresses that X-Forwarded-For"),
    ):
        made = deploy(**more)
        run = Run(made.target, Options(seed=1), transport=made.transport)
        lines = blocked_addresses(run.plan(), made.target)
        assert len(lines) == 1
        line = lines[0].replace("\u202f", " ")
        assert says in line
        assert line.startswith(
            "the probe of LIM-IP exceeds 2000/10s: for 30 s afterwards every request from "
        )
    made = deploy()
    calm = Run(made.target, Options(seed=1, no_limits=True), transport=made.transport)
    assert blocked_addresses(calm.plan(), made.target) == []


def test_a_log_hears_that_a_long_wait_goes_on() -> None:
    async def judge(_: object) -> list[Finding]:
        return []

    def check(name: str, takes_s: int) -> Check:
        takes_ns = takes_s * SECOND_NS
        return Check(f"limits.{name}", ("LIM-IP",), "says", "a pass", judge, takes_ns=takes_ns)

    def heard(says: str) -> bool:
        deadline = time.monotonic() + 20
        while not re.search(says, stream.getvalue()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return re.search(says, stream.getvalue()) is not None

    stream = io.StringIO()
    terminal = Terminal(stream, beat_s=0.01)
    slow, *others = check("slow", 60), check("middle", 20), check("quick", 2)
    plan = RunPlan(tuple(select(["TOK-LEAF"])), rounds=[[Dealt(slow, {}, ())]])
    made = deploy()
    session = Run(made.target, Options(seed=1), transport=made.transport).session
    terminal.planned(plan, session)
    assert stream.getvalue() == "", "nothing is said of a plan that meets nobody"
    terminal.flown(Preflight(accepted=["public"]))
    terminal.began(slow)
    begin = r"… \d+\ss elapsed, at least 1\smin planned: 0 of 1 checks done"
    assert heard(begin + r"; running: limits\.slow\n")
    for one in others:
        terminal.began(one)
    assert heard(r"; running: limits\.slow, limits\.middle and 1 more\n")
    session.note_rest("limits.slow", 31 * SECOND_NS)
    assert heard(
        r" at least 1\smin 31\ss planned \(31\ss of it for further measurements\): 0 of 1 "
    )
    now_ns = session.transport.now_ns
    with (
        session.waiting("limits.quick", now_ns + SECOND_NS, ""),
        session.waiting("limits.slow", now_ns + 41 * SECOND_NS, "its block is over"),
    ):
        says = r"done; limits\.slow waits 41 s until its block is over; running: limits\.middle, "
        assert heard(says + r"limits\.quick\n")
    with session.waiting("limits.middle", now_ns + SECOND_NS + 1, ""):
        assert heard(r"done; limits\.middle waits 2 s; running: limits\.slow, limits\.quick\n")
    terminal.ended(slow, [Finding("LIM-IP", slow.id, Verdict.SKIPPED, "too few keys")])
    assert heard(r"… \d+\ss elapsed: 1 of 1 checks done; running: limits\.middle, limits\.quick\n")
    terminal.close()
    assert "target http://in-process.example · seed 1" in stream.getvalue()
    assert "waits 1 s" not in stream.getvalue(), "not worth a word"


def test_a_terminal_shows_a_bar_and_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is drawn anew while a wait goes on, and is gone at the end."""

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    async def judge(_: object) -> list[Finding]:
        return []

    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Screen()
    terminal = Terminal(stream)
    slow = Check("limits.slow", ("LIM-IP",), "says", "a pass", judge)
    made = deploy()
    session = Run(made.target, Options(seed=1), transport=made.transport).session
    dealt = [Dealt(slow, {}, ()), Dealt(slow, {}, ())]
    terminal.planned(RunPlan(tuple(select(["TOK-LEAF"])), rounds=[dealt]), session)
    terminal.flown(Preflight(accepted=["public"]))
    terminal.began(slow)
    until_ns = session.transport.now_ns + 41 * SECOND_NS
    deadline = time.monotonic() + 20
    with session.waiting("limits.slow", until_ns, "its block is over"):
        says = "0 of 2 checks done; limits.slow waits 41 s until its block is over"
        while says not in stream.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert says in stream.getvalue()
    terminal.ended(slow, [Finding("LIM-IP", slow.id, Verdict.PASS, "limited")])
    while "1/2 checks" not in stream.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    terminal.close()
    assert "0/2 checks" in stream.getvalue()
    assert "1/2 checks" in stream.getvalue()
    assert not [one for one in threading.enumerate() if one.name == "progress"]
    shown = stream.getvalue()
    terminal.close()
    assert stream.getvalue() == shown
