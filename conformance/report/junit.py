"""JUnit: one test case per clause, as build servers read it.

A failed clause is a `failure`, a fault of the harness an `error`. A clause without a verdict is
`skipped`; so is an expected failure, and one that the baseline has where only new ones count.
Failures come first, in the text of a case too. The evidence appears once: in the failure or the
error, else in `system-out`. The time of a case is how long the checks of its clause ran. Many
checks run in parallel, so the cases' times add up to more than the suite's.
"""

from __future__ import annotations

import re
from typing import Final
from xml.etree import ElementTree as ET

from conformance.context.verdicts import ClauseResult
from conformance.report.report import Report
from conformance.report.sections import in_order

_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SECOND_NS: Final = 1_000_000_000


def junit_xml(report: Report) -> str:
    """Return the report as the text of a JUnit file."""
    cases = [_case(report, result) for result in in_order(report.results, report.new)]
    counts = {
        tag: str(sum(case.find(tag) is not None for case in cases))
        for tag in ("failure", "error", "skipped")
    }
    seconds = f"{report.took_ns / _SECOND_NS:.3f}"
    suite = ET.Element(
        "testsuite",
        name="tollgate.conformance",
        tests=str(len(cases)),
        failures=counts["failure"],
        errors=counts["error"],
        skipped=counts["skipped"],
        time=seconds,
        timestamp=report.started_at,
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("target", report.target.base_url),
        ("seed", str(report.seed)),
        ("verdict", report.verdict_line),
    ):
        ET.SubElement(properties, "property", name=name, value=_clean(report, value))
    suite.extend(cases)
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode")


def _case(report: Report, result: ClauseResult) -> ET.Element:
    clause = result.clause
    prefix = clause.id.partition("-")[0]
    case = ET.Element(
        "testcase",
        name=clause.id,
        classname=f"tollgate.conformance.{prefix}",
        time=f"{report.took_by_ns(result) / _SECOND_NS:.3f}",
    )
    message = _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", report.message(result))
    text = _clean(report, _text(report, result))
    if result.is_crashed or report.counts(result):
        tag = "error" if result.is_crashed else "failure"
        ET.SubElement(case, tag, message=message, type=result.word).text = text
        return case
    if result.is_finding:
        ET.SubElement(case, "skipped", message=f"{result.word}, as in the baseline: {message}")
    elif result.is_unjudged or result.is_failed:
        ET.SubElement(case, "skipped", message=f"{result.word}: {message}")
    ET.SubElement(case, "system-out").text = text
    return case


def _text(report: Report, result: ClauseResult) -> str:
    lines = [f"{result.clause.id} ({result.clause.seed_section}): {result.clause.text}", ""]
    for finding in sorted(result.findings, key=lambda finding: finding.verdict, reverse=True):
        lines.append(f"{finding.verdict.word}: {finding.message} [{finding.check}]")
        if finding.accepts:
            lines.append(f"  expected: {finding.accepts}")
        for evidence in report.evidence(finding):
            lines.append(f"  #{evidence['number']} {evidence['curl']}")
            answer = evidence["error"] or f"{evidence['status']} {evidence['body']}"
            lines.append(f"  -> {answer}")
    return "\n".join(lines)


def _clean(report: Report, text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", report.redactor.text(text))
