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
    found = list(_findings(report))
    github, azure, gitlab = FILES
    return {
        github: "\n".join(_github(*one) for one in found),
        azure: "\n".join(_azure(*one) for one in found),
        gitlab: json.dumps([_gitlab(report, *one) for one in found], indent=2),
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
    for one in failures(report.results, report.new):
        if report.counts(one):
            yield one.clause.id, report.says(one), *place_of(report, one)


def _github(code: str, says: str, path: str, line: int) -> str:
    title = _escaped(code, ":,")
    return f"::error file={_escaped(path, ':,')},line={line},title={title}::{_escaped(says)}"


def _azure(code: str, says: str, path: str, line: int) -> str:
    says = _escaped(f"{code}: {says}", percent="%AZP25")
    place = f"sourcepath={_escaped(path, ';]', '%AZP25')};linenumber={line};code={code}"
    return f"##vso[task.logissue type=error;{place}]{says}"


def _gitlab(report: Report, code: str, says: str, path: str, line: int) -> dict[str, object]:
    named = f"{report.target.base_url} {code}"
    return {
        "description": f"{code}: {says}",
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
    open_ = [one for one in ordered if one.verdict is Verdict.INCONCLUSIVE]
    broken = [*(one.says for one in crashes(report.results)), *report.broken]
    notes = [{"level": "error", "message": {"text": report.redactor.text(one)}} for one in broken]
    run = {
        "tool": {
            "driver": {
                "name": "tollgate-conformance",
                "version": version("tollgate"),
                "informationUri": _homepage(),
                "rules": [_rule(one) for one in ordered],
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
        "results": [_result(report, one) for one in (*failed, *open_)],
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
    found: dict[str, Any] = {
        "ruleId": result.clause.id,
        "kind": "fail" if is_failed else "open",
        "level": "error" if is_failed else "none",
        "message": {"text": f"{result.clause.id}: {report.says(result)}"},
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
        found["baselineState"] = "new" if result.clause.id in report.new else "unchanged"
    if result.follows is not None:
        found["properties"] = {"follows": result.follows}
    return found


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
