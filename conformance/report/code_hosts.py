"""Findings as code hosts and scanners read them: annotations of four hosts, and SARIF.

- GitHub and Gitea read *workflow commands* from the log of a step: `::error file=…::…`.
- Azure DevOps reads *logging commands* from the log: `##vso[task.logissue …]…`.
- GitLab reads a *code quality report*, a file that the job names as an artifact.
- Code scanning reads SARIF 2.1.0: one rule for each clause, one result for each failed or
  inconclusive clause. A failure has the level `error` and is suppressed where the target expects
  it. An inconclusive clause has the kind `open` and the level `none`. A fault of the harness is a
  tool notification, not a result.

Where the run is a CI step of GitHub, Gitea or Azure, the commands are printed as well. Locations
are lines of the target file, because the deployment's code is not available.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import metadata, version
from pathlib import Path
from typing import Any, Final

from conformance.context.verdicts import ClauseResult, Verdict
from conformance.report.report import Report
from conformance.report.sections import crashes, failures, in_order

FILES: Final = ("annotations.github.txt", "annotations.azure.txt", "gl-code-quality-report.json")
"""The names of the files, in the order of `annotation_files`."""


def annotation_files(report: Report) -> dict[str, str]:
    """Return name → text of the files of every host."""
    findings = list(_findings(report))
    github, azure, gitlab = FILES
    return {
        github: "\n".join(_github(*finding) for finding in findings),
        azure: "\n".join(_azure(*finding) for finding in findings),
        gitlab: json.dumps([_gitlab(report, *finding) for finding in findings], indent=2),
    }


def commands_for(report: Report, environment: Mapping[str, str]) -> str | None:
    """Return the commands to print where the run is a CI step of a host; None elsewhere."""
    if environment.get("GITHUB_ACTIONS") == "true" or environment.get("GITEA_ACTIONS") == "true":
        return annotation_files(report)[FILES[0]] or None
    if environment.get("TF_BUILD", "").lower() == "true":
        return annotation_files(report)[FILES[1]] or None
    return None


def _findings(report: Report) -> Iterator[tuple[str, str, str, int]]:
    """Yield the id, the sentence and the place of each clause that fails the run; causes first."""
    for result in failures(report.results, report.new):
        if report.counts(result):
            yield result.clause.id, report.message(result), *place_of(report, result)


def _github(code: str, message: str, path: str, line: int) -> str:
    title = _escaped(code, ":,")
    return f"::error file={_escaped(path, ':,')},line={line},title={title}::{_escaped(message)}"


def _azure(code: str, message: str, path: str, line: int) -> str:
    message = _escaped(f"{code}: {message}", percent="%AZP25")
    place = f"sourcepath={_escaped(path, ';]', '%AZP25')};linenumber={line};code={code}"
    return f"##vso[task.logissue type=error;{place}]{message}"


def _gitlab(report: Report, code: str, message: str, path: str, line: int) -> dict[str, object]:
    named = f"{report.target.base_url} {code}"
    return {
        "description": f"{code}: {message}",
        "check_name": code,
        "fingerprint": hashlib.sha256(named.encode()).hexdigest(),
        "severity": "major",
        "location": {"path": path, "lines": {"begin": line}},
    }


def _escaped(text: str, also: str = "", percent: str = "%25") -> str:
    """Return a text escaped for a command, so that no text of a deployment becomes a command."""
    text = text.replace("%", percent)
    for sign in ("\r", "\n", *also):
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


_SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_json(report: Report) -> str:
    """Return the report as the text of a SARIF file."""
    ordered = in_order(report.results, report.new)
    failed = failures(report.results, report.new)
    open_ = [result for result in ordered if result.verdict is Verdict.INCONCLUSIVE]
    broken = [*(result.message for result in crashes(report.results)), *report.broken]
    notes = [
        {"level": "error", "message": {"text": report.redactor.text(reason)}} for reason in broken
    ]
    run = {
        "tool": {
            "driver": {
                "name": "tollgate-conformance",
                "version": version("tollgate"),
                "informationUri": _homepage(),
                "rules": [_rule(result) for result in ordered],
            }
        },
        "invocations": [
            {
                "executionSuccessful": not notes and report.aborted is None,
                "exitCode": report.exit_code,
                "exitCodeDescription": report.redactor.text(report.verdict_line),
                "startTimeUtc": report.started_at.replace("+00:00", "Z"),
                "toolExecutionNotifications": notes,
            }
        ],
        "results": [_result(report, result) for result in (*failed, *open_)],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _homepage() -> str:
    """Return the homepage of the distribution's metadata."""
    listed = metadata("tollgate").get_all("Project-URL", [])
    homepage: str = next(url for url in listed if url.startswith("Homepage"))
    return homepage.partition(", ")[2]


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
    entry: dict[str, Any] = {
        "ruleId": result.clause.id,
        "kind": "fail" if is_failed else "open",
        "level": "error" if is_failed else "none",
        "message": {"text": f"{result.clause.id}: {report.message(result)}"},
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
        entry["suppressions"] = [{"kind": "external", "justification": "expected_failures"}]
    if report.comparison is not None and is_failed:
        entry["baselineState"] = "new" if result.clause.id in report.new else "unchanged"
    if result.follows is not None:
        entry["properties"] = {"follows": result.follows}
    return entry


def place_of(report: Report, result: ClauseResult) -> tuple[str, int]:
    """Return the target file's path, relative where possible, and a line, counted from 1.

    It is the line that names the clause in `expected_failures`, else that of `base_url`.
    """
    words = report.command
    path = Path(words[4]) if len(words) > 4 else Path("target.toml")
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, ValueError):
        lines = []
    wanted = [r"\s*base_url\b"]
    if result.is_expected:
        wanted.insert(0, rf'.*"{re.escape(result.clause.id)}"')
    for pattern in wanted:
        for number, line in enumerate(lines, 1):
            if re.match(pattern, line):
                return _relative(path), number
    return _relative(path), 1


def _relative(path: Path) -> str:
    try:
        path = path.resolve().relative_to(Path.cwd())
    except ValueError:
        path = Path(path.name)
    return path.as_posix()
