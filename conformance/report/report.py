"""The report: everything that a run found, to display, save and compare.

Evidence is shown as curl commands with shell variables for keys; it never contains a key's text.
"""

from __future__ import annotations

import dataclasses
import html
import importlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from conformance.context.choices import known_to_toml
from conformance.context.session import Rest
from conformance.context.verdicts import (
    ClauseResult,
    Finding,
    Moment,
    Verdict,
    is_partial,
    last_line,
    sums,
    to_json,
)
from conformance.messages.exchange import Exchange
from conformance.report.baseline import RESULTS_FILE, Baseline, BaselineComparison
from conformance.report.evidence import SHOWN_EVIDENCE, burst_command, curl, legend, timeline
from conformance.report.sections import causes, in_order
from conformance.target import Target
from conformance.wire.redaction import Redactor
from engine.clauses import CLAUSES
from engine.errors import InputError, did_you_mean
from engine.profile import Profile

if TYPE_CHECKING:
    import pandas as pd

PROFILE_FILE: Final = "profile.discovered.toml"
_WRITERS: Final = {
    "junit": ("junit", "junit_xml", "junit.xml"),
    "html": ("page", "page", "report.html"),
    "sarif": ("code_hosts", "sarif_json", "results.sarif"),
    "annotations": ("code_hosts", "annotation_files", ""),
}
"""Module, function and file of each format except JSON; these modules import this one."""
FORMATS: Final = ("json", *_WRITERS)
"""The formats that a report can be written in."""
DEFAULT_FORMATS: Final = ("json", "junit", "html")
_SHOWN_BODY: Final = 2_000


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
    """What a run found.

    results: one verdict per clause, in the registry's order. exchanges: by number. profile, known:
    the deployment's choices, as told and discovered. notes: contradictory readings, checks that a
    history could not replay, and names that reports write differently. took_ns: how long the run
    took; floor_ns: the shortest duration possible; rest: how much more that is because keys had to
    rest. cleaned: how many created objects were deleted, and how many are left. aborted: why
    nothing was checked. unrun: ids of checks that run over HTTP only, where this run did not.
    broken: where the harness failed outside a check. spans: when each check began and ended, by its
    id. baseline: an earlier run. only_new: whether findings of the baseline do not fail this run.
    """

    results: Sequence[ClauseResult]
    exchanges: Mapping[int, Exchange] = field(repr=False)
    redactor: Redactor = field(repr=False)
    target: Target = field(repr=False)
    profile: Profile = field(repr=False)
    known: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    preflight: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    started_at: str = ""
    took_ns: int = 0
    floor_ns: int = 0
    rest: Rest = field(default_factory=Rest)
    requests: int = 0
    cleaned: tuple[int, int] = (0, 0)
    strict: bool = False
    aborted: str | None = None
    command: tuple[str, ...] = ()
    unrun: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict, repr=False)
    baseline: Baseline | None = None
    only_new: bool = False

    def __repr__(self) -> str:
        line = self.redactor.text(self.verdict_line)
        return f"<Report on {self.target.base_url}, seed {self.seed}: {line}>"

    @property
    def partial(self) -> bool:
        """Whether a specified clause was skipped or inconclusive, or a check was left out."""
        return is_partial(self.results) or bool(self.unrun)

    @property
    def undecided(self) -> bool:
        """Whether a specified clause was not judged, beyond features that are absent."""
        return any(result.is_undecided for result in self.results) or bool(self.unrun)

    @property
    def exit_code(self) -> int:
        """0 fine, 1 a finding, 3 no deployment, 4 the harness failed, 5 not everything was judged.

        An undecided clause is a finding where the run is strict; one of a feature that the
        deployment does not have is not. Without any pass nothing was judged, and what the budget
        left out was not: both return 5.
        """
        if self.broken or any(result.is_crashed for result in self.results):
            return 4
        if self.aborted is not None:
            return 3
        if any(map(self.counts, self.results)) or (self.strict and self.undecided):
            return 1
        is_whole = not any(result.is_cut for result in self.results)
        return 0 if is_whole and any(result.is_as_asked for result in self.results) else 5

    @cached_property
    def comparison(self) -> BaselineComparison | None:
        """What has changed since the baseline; None without one."""
        return None if self.baseline is None else self.baseline.compare(self.results)

    @property
    def new(self) -> tuple[str, ...]:
        """The clauses that fail this run and did not fail the baseline; none without one."""
        return () if self.comparison is None else self.comparison.new

    def counts(self, result: ClauseResult) -> bool:
        """Whether a clause fails the run: it is a finding and, with `only_new`, a new one."""
        if not result.is_finding or not self.only_new or self.comparison is None:
            return result.is_finding
        return result.clause.id in self.new

    def took_by_ns(self, result: ClauseResult) -> int:
        """Return how long the checks of a clause ran; time in parallel counts once."""
        names = {finding.check for finding in result.findings}
        spans = sorted(self.spans[name] for name in names if name in self.spans)
        took_ns, until_ns = 0, 0
        for began_ns, ended_ns in spans:
            took_ns += max(0, ended_ns - max(began_ns, until_ns))
            until_ns = max(until_ns, ended_ns)
        return took_ns

    @property
    def verdict_line(self) -> str:
        """The result of the run in one line."""
        if self.aborted is not None:
            return f"nothing could be judged: {self.aborted}"
        line = last_line(self.results, total=len(CLAUSES), unrun=self.unrun)
        return f"{line}; the harness failed in {'; '.join(self.broken)}" if self.broken else line

    def result(self, clause_id: str) -> ClauseResult:
        """Return the result of one clause; raises `KeyError`."""
        return {result.clause.id: result for result in self.results}[clause_id]

    def message(self, result: ClauseResult) -> str:
        """Return what was seen of a clause in one sentence, and which clause it follows from."""
        text = self.redactor.text(result.message or result.word)
        return text if result.follows is None else f"follows from {result.follows}: {text}"

    def evidence(self, finding: Finding) -> list[dict[str, Any]]:
        """Return the exchanges that show a finding, as curl commands and answers, redacted."""
        numbers = finding.evidence[:SHOWN_EVIDENCE]
        return [self._shown(self.exchanges[n]) for n in numbers if n in self.exchanges]

    def burst(self, finding: Finding) -> str | None:
        """Return the command that repeats the burst of a limit's finding, redacted."""
        command = burst_command(self.target, finding, self.exchanges)
        return None if command is None else self.redactor.text(command)

    def legend(self) -> list[str]:
        """Return what the shell variables in the commands of failures stand for."""
        failed = [
            finding
            for result in self.results
            for finding in result.findings
            if finding.verdict is Verdict.FAIL
        ]
        lines = [evidence["curl"] for finding in failed for evidence in self.evidence(finding)]
        made = {
            exchange.ask.key
            for exchange in self.exchanges.values()
            if exchange.ask.key is not None and exchange.ask.key not in self.target.key_labels
        }
        return legend(self.target, lines, sorted(made))

    def timeline(self, finding: Finding) -> tuple[Moment, ...]:
        """Return the timeline of a finding about a limit; other findings have none."""
        return timeline(finding, self.exchanges)

    def _shown(self, exchange: Exchange) -> dict[str, Any]:
        body = self.redactor.raw(exchange.body)
        text = body[:_SHOWN_BODY].decode(errors="backslashreplace")
        return {
            "number": exchange.number,
            "curl": self.redactor.text(curl(self.target, exchange.ask)),
            "status": exchange.status,
            "error": exchange.error,
            "sent_ns": exchange.sent_ns,
            "received_ns": exchange.received_ns,
            "body": text + ("…" if len(body) > _SHOWN_BODY else ""),
        }

    def plain(self) -> dict[str, Any]:
        """Return the report as JSON: what `results.json` holds."""
        return {
            "format": 1,
            "target": self.target.base_url,
            "seed": self.seed,
            "command": list(self.command),
            "started_at": self.started_at,
            "took_ns": self.took_ns,
            "floor_ns": self.floor_ns,
            "rest_ns": self.rest.more_ns,
            "requests": self.requests,
            "cleaned": {"gone": self.cleaned[0], "left": self.cleaned[1]},
            "preflight": json.loads(self.redactor.text(json.dumps(self.preflight))),
            "aborted": self.aborted,
            "partial": self.partial,
            "unrun": list(self.unrun),
            "broken": list(self.broken),
            "verdict": self.verdict_line,
            "causes": [
                {
                    "clause": cause.result.clause.id,
                    "followers": [result.clause.id for result in cause.followers],
                }
                for cause in causes(self.results, self.new)
            ],
            "baseline": self._baseline(),
            "sums": sums(self.results),
            "exit_code": self.exit_code,
            "notes": list(self.notes),
            "readings": self.readings(),
            "clauses": [self._clause(result) for result in self.results],
        }

    def _baseline(self) -> dict[str, Any] | None:
        if self.baseline is None or self.comparison is None:
            return None
        return {
            "run": self.baseline.path,
            "only_new": self.only_new,
            **dataclasses.asdict(self.comparison),
        }

    def _clause(self, result: ClauseResult) -> dict[str, Any]:
        return {
            "clause": result.clause.id,
            "seed_section": result.clause.seed_section,
            "status": result.clause.status,
            "text": result.clause.text,
            "verdict": result.verdict.word,
            "expected_failure": result.is_expected,
            "is_finding": result.is_finding,
            "follows": result.follows,
            "took_ns": self.took_by_ns(result),
            "masked": result.clause.masked,
            "findings": [
                {
                    "check": finding.check,
                    "verdict": finding.verdict.word,
                    "says": self.redactor.text(finding.message),
                    "accepts": finding.accepts,
                    "reading": None if finding.reading is None else list(finding.reading),
                    "timeline": [to_json(moment) for moment in self.timeline(finding)],
                    "evidence": self.evidence(finding),
                }
                for finding in result.findings
            ],
        }

    def readings(self) -> dict[str, Any]:
        """Return the choices that were told or discovered, as `section.field` → value."""
        choices = {}
        for path in sorted(self.known):
            section, _, name = path.partition(".")
            choices[path] = getattr(getattr(self.profile, section), name)
        return choices

    def save(self, folder: Path, formats: Collection[str] = DEFAULT_FORMATS) -> list[Path]:
        """Write the report in some formats; returns the files.

        results.json is always written, since `judge`, `replay` and `--baseline` read it, and so is
        the discovered profile, with its schema beside it.
        """
        texts = {RESULTS_FILE: json.dumps(self.plain(), indent=2, ensure_ascii=False, default=str)}
        for name, (module, function, file) in _WRITERS.items():
            if name in formats:
                writer = importlib.import_module(f"conformance.report.{module}")
                written = getattr(writer, function)(self)
                texts |= {file: written} if file else written
        texts[PROFILE_FILE] = known_to_toml(self.profile, self.known)
        texts["profile.schema.json"] = json.dumps(Profile.json_schema(), indent=2)
        for name, text in texts.items():
            redacted = self.redactor.text(text).rstrip("\n") + "\n"
            (folder / name).write_text(redacted, "utf-8", newline="\n")
        return [folder / name for name in texts]

    # --- notebooks ------------------------------------------------------------------------------

    @property
    def clauses(self) -> pd.DataFrame:
        """One row per clause: `verdict`, `says`, `status`, `findings`."""
        rows = [
            {
                "clause": result.clause.id,
                "verdict": result.verdict.word,
                "status": result.clause.status,
                "says": self.redactor.text(result.message),
                "findings": len(result.findings),
            }
            for result in self.results
        ]
        return _frame(rows).set_index("clause")

    @property
    def findings(self) -> pd.DataFrame:
        """One row per finding: `clause`, `check`, `verdict`, `says`, `evidence`."""
        rows = [
            {
                "clause": finding.clause,
                "check": finding.check,
                "verdict": finding.verdict.word,
                "says": self.redactor.text(finding.message),
                "evidence": list(finding.evidence),
            }
            for result in self.results
            for finding in result.findings
        ]
        return _frame(rows, ["clause", "check", "verdict", "says", "evidence"])

    @property
    def requests_made(self) -> pd.DataFrame:
        """One row per exchange: sender, request, times and status; no bodies."""
        asked = ("ask.method", "ask.path", "ask.key", "ask.source")
        names = ("number", "check", "lane", *asked, "sent_ns", "received_ns", "status")
        rows = list(map(attrgetter(*names), self.exchanges.values()))
        frame = _frame(rows, [name.removeprefix("ask.") for name in names]).set_index("number")
        return frame.astype({"status": "Int16"})

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(result.clause.id)}</td><td>{html.escape(result.word)}</td>"
            "<td style='text-align:left'>"
            f"{html.escape(self.redactor.text(result.message))}</td></tr>"
            for result in in_order(self.results, self.new)
        )
        return (
            f"<p><b>{html.escape(self.target.base_url)}</b>: "
            f"{html.escape(self.redactor.text(self.verdict_line))}</p>"
            f"<table><thead><tr><th>clause</th><th>verdict</th><th>what was seen</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )


def _frame(rows: list[Any], columns: list[str] | None = None) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415 # reason: only notebooks need frames

    return pd.DataFrame(rows, columns=columns)


def chosen_formats(asked: Iterable[str], name: str = "formats") -> tuple[str, ...]:
    """Return the formats that texts such as `junit,sarif` name; raises `InputError` by name.

    >>> chosen_formats(["junit,sarif"])
    ('junit', 'sarif')
    >>> chosen_formats([])
    ('json', 'junit', 'html')
    """
    names = [part.strip() for listed in asked for part in listed.split(",") if part.strip()]
    for chosen in names:
        if chosen not in FORMATS:
            hint = did_you_mean(chosen, FORMATS, otherwise="")
            raise InputError(f"{name} = {chosen!r} must be some of {', '.join(FORMATS)}{hint}")
    return tuple(names) or DEFAULT_FORMATS


def chosen_baseline(
    baseline: str | Path | None,
    *,
    only_new: bool,
    names: tuple[str, str] = ("baseline", "only_new"),
) -> Baseline | None:
    """Return the earlier run that a run is compared with; raises `InputError`."""
    if baseline is not None:
        return Baseline.of(Path(baseline))
    if only_new:
        raise InputError(f"{names[1]} needs {names[0]}, an earlier run, to tell what is new")
    return None
