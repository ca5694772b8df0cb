"""Annotations: the findings of a run as the common code hosts show them beside the code.

- GitHub and Gitea read *workflow commands* from the log of a step: `::error file=…::…`.
- Azure DevOps reads *logging commands* from the log: `##vso[task.logissue …]…`.
- GitLab reads a *code quality report*, a file that the job names as an artifact.

The files of all three are written; where the run is a step of one of the first two, its commands
are printed as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Final

from conformance.report.places import place_of
from conformance.report.report import Report
from conformance.report.sections import causes
from conformance.runner.results import ClauseResult

__all__ = ["FILES", "annotation_files", "commands_for"]

FILES: Final = ("annotations.github.txt", "annotations.azure.txt", "gl-code-quality-report.json")
"""What the files are called, in the order of `annotation_files`."""


def annotation_files(report: Report) -> dict[str, str]:
    """Return name → text of the files of every host."""
    found = list(_findings(report))
    github, azure, gitlab = FILES
    return {
        github: "\n".join(_github(report, one, says) for one, says in found),
        azure: "\n".join(_azure(report, one, says) for one, says in found),
        gitlab: json.dumps([_gitlab(report, one, says) for one, says in found], indent=2),
    }


def commands_for(report: Report, environment: Mapping[str, str]) -> str | None:
    """Return what is to be printed where the run is a step of a host; None elsewhere."""
    if environment.get("GITHUB_ACTIONS") == "true" or environment.get("GITEA_ACTIONS") == "true":
        return annotation_files(report)[FILES[0]] or None
    if environment.get("TF_BUILD", "").lower() == "true":
        return annotation_files(report)[FILES[1]] or None
    return None


def _findings(report: Report) -> Iterator[tuple[ClauseResult, str]]:
    """Yield each clause that fails the run, with its sentence; causes first."""
    for cause in causes(report.results):
        for one in (cause.result, *cause.followers):
            if not one.is_finding or not report.counts(one):
                continue
            says = report.redactor.text(one.says or one.word)
            if one is not cause.result:
                says = f"follows from {cause.result.clause.id}: {says}"
            yield one, says


def _github(report: Report, result: ClauseResult, says: str) -> str:
    path, line = place_of(report, result)
    title = _escaped(result.clause.id, ":,")
    return f"::error file={_escaped(path, ':,')},line={line},title={title}::{_escaped(says)}"


def _azure(report: Report, result: ClauseResult, says: str) -> str:
    path, line = place_of(report, result)
    code = result.clause.id
    says = _escaped(f"{code}: {says}", percent="%AZP25")
    place = f"sourcepath={_escaped(path, ';]', '%AZP25')};linenumber={line};code={code}"
    return f"##vso[task.logissue type=error;{place}]{says}"


def _gitlab(report: Report, result: ClauseResult, says: str) -> dict[str, object]:
    path, line = place_of(report, result)
    named = f"{report.target.base_url} {result.clause.id}"
    return {
        "description": f"{result.clause.id}: {says}",
        "check_name": result.clause.id,
        "fingerprint": hashlib.sha256(named.encode()).hexdigest(),
        "severity": "major",
        "location": {"path": path, "lines": {"begin": line}},
    }


def _escaped(text: str, also: str = "", percent: str = "%25") -> str:
    """Return a text as a command takes it: no line of a deployment's becomes a command."""
    text = text.replace("%", percent)
    for sign in ("\r", "\n", *also):
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text
