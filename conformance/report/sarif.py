"""SARIF 2.1.0: what code scanning reads. A rule a clause, a result a clause that needs a look.

A failure is an `error`, one that the target expects is suppressed, what could not be judged is a
`note`. A fault of the harness is no result: it is a notification of the tool. Locations are lines
of the target file, since the deployment's code is not at hand.
"""

from __future__ import annotations

import json
from typing import Any, Final

from conformance.report.places import place_of
from conformance.report.report import Report
from conformance.report.sections import causes, crashes, folds, in_order
from conformance.runner.results import ClauseResult
from conformance.runner.verdicts import Verdict

__all__ = ["sarif_json"]

_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_json(report: Report) -> str:
    """Return the report as the text of a SARIF file."""
    failed = [one for cause in causes(report.results) for one in (cause.result, *cause.followers)]
    open_ = [
        one
        for fold in folds(report.results)
        if fold.verdict is Verdict.INCONCLUSIVE
        for one in fold.results
    ]
    notes = [
        {"level": "error", "message": {"text": _text(report, one.says)}}
        for one in crashes(report.results)
    ] + [{"level": "error", "message": {"text": _text(report, one)}} for one in report.broken]
    run = {
        "tool": {
            "driver": {
                "name": "tollgate-conformance",
                "rules": [_rule(one) for one in in_order(report.results)],
            }
        },
        "invocations": [
            {
                "executionSuccessful": not notes and report.aborted is None,
                "exitCode": report.exit_code,
                "exitCodeDescription": _text(report, report.verdict_line),
                "startTimeUtc": report.started_at.replace("+00:00", "Z"),
                "toolExecutionNotifications": notes,
            }
        ],
        "results": [_result(report, one) for one in (*failed, *open_)],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(result: ClauseResult) -> dict[str, Any]:
    clause = result.clause
    return {
        "id": clause.id,
        "shortDescription": {"text": clause.text},
        "properties": {"seed_section": clause.seed_section, "status": clause.status},
    }


def _result(report: Report, result: ClauseResult) -> dict[str, Any]:
    is_failed = result.verdict is not Verdict.INCONCLUSIVE
    path, line = place_of(report, result)
    found: dict[str, Any] = {
        "ruleId": result.clause.id,
        "kind": "fail" if is_failed else "open",
        "level": "error" if is_failed else "none",
        "message": {"text": _text(report, f"{result.clause.id}: {result.says}")},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": path},
                    "region": {"startLine": line},
                }
            }
        ],
        "partialFingerprints": {"clause/v1": f"{report.target.base_url} {result.clause.id}"},
    }
    if result.is_expected and is_failed and not result.is_finding:
        found["suppressions"] = [{"kind": "external", "justification": "expected_failures"}]
    if report.comparison is not None and is_failed:
        is_new = result.clause.id in report.comparison.new
        found["baselineState"] = "new" if is_new else "unchanged"
    if result.follows is not None:
        found["properties"] = {"follows": result.follows}
    return found


def _text(report: Report, text: str) -> str:
    return report.redactor.text(text)
