"""The suite inside pytest: `pytest --pyargs conformance --target target.toml`, one test per clause.

The plugin is installed with the distribution and does nothing without `--target`. With it, the
package `conformance` collects one item per clause. The first selected item (after `-k` and the
like) runs the suite for all selected items. Each item then reports the verdict of its clause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conformance.context.verdicts import ClauseResult
    from conformance.report import Report


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--target` and its companion options."""
    group = parser.getgroup("tollgate", "conformance of a live deployment")
    group.addoption("--target", metavar="FILE", help="target.toml of the deployment under test")
    group.addoption(
        "--target-no-limits", action="store_true", help="leave the probes of limits out"
    )
    group.addoption(
        "--target-strict", action="store_true", help="skipped and inconclusive clauses fail too"
    )
    group.addoption("--target-seed", type=int, metavar="N", help="seed of every generated value")
    group.addoption("--target-out", metavar="DIR", help="folder for the reports and the history")
    group.addoption(
        "--target-format",
        metavar="LIST",
        action="append",
        default=[],
        help="what --target-out gets: junit,sarif,annotations,json,html; default junit,json,html",
    )
    group.addoption(
        "--target-baseline", metavar="RUN", help="an earlier run: say what has changed since"
    )
    group.addoption(
        "--target-only-new", action="store_true", help="findings that the baseline has fail no test"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse `-n`: every worker would run the suite against the deployment."""
    if config.getoption("--target") is None:
        return
    if getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("--target runs the suite once; leave -n out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse `--target` where pytest collects no clause: nothing would be judged, in green."""
    if config.getoption("--target") is None or config.getoption("collectonly"):
        return
    if not any(isinstance(item, ClauseItem) for item in items):
        raise pytest.UsageError(
            f"--target = {config.getoption('--target')} judges nothing: pytest collects no clause; "
            "add --pyargs conformance"
        )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Exit with the run's code where no test failed and yet not everything was judged."""
    for item in getattr(session, "items", ()):
        if isinstance(item, ClauseItem) and session.exitstatus == 0:
            session.exitstatus = item.exit_code


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the clauses when pytest collects this file."""
    target = parent.config.getoption("--target")
    if target is None or file_path != Path(__file__):
        return None
    clauses: Clauses = Clauses.from_parent(parent, path=file_path)
    return clauses


class Clauses(pytest.File):
    """All clauses against one target; runs the suite once, when the first item asks."""

    _report: Report | None = None
    _error: str | None = None

    def collect(self) -> Iterator[pytest.Item]:
        """Yield one item per clause."""
        from conformance.target import Target  # noqa: PLC0415 # reason: inert without --target
        from engine.clauses import CLAUSES  # noqa: PLC0415 # reason: inert without --target
        from engine.errors import InputError  # noqa: PLC0415 # reason: inert without --target

        option = self.config.getoption
        try:
            self.target = Target.from_toml(option("--target"))
            _check_outputs(option)
        except InputError as error:
            raise pytest.UsageError(str(error)) from None
        for clause in CLAUSES:
            item: ClauseItem = ClauseItem.from_parent(self, name=clause.id)
            yield item

    @property
    def exit_code(self) -> int:
        """The run's exit code; 0 before the suite has run."""
        return 0 if self._report is None else self._report.exit_code

    def report(self) -> Report:
        """Return the run's report; the first call runs the suite."""
        if self._error is not None:
            pytest.fail(self._error, pytrace=False)
        if self._report is None:
            self._report = self._run()
        return self._report

    def _run(self) -> Report:
        import conformance  # noqa: PLC0415 # reason: inert without --target

        option = self.config.getoption
        asked = [item.name for item in self.session.items if item.parent is self]
        try:
            return conformance.run(
                self.target,
                select=asked,
                no_limits=option("--target-no-limits"),
                strict=option("--target-strict"),
                seed=option("--target-seed"),
                out=option("--target-out"),
                formats=option("--target-format"),
                baseline=option("--target-baseline"),
                only_new=option("--target-only-new"),
            )
        except conformance.Unreachable as error:
            self._error = str(error)
            pytest.fail(self._error, pytrace=False)


def _check_outputs(option: Callable[[str], Any]) -> None:
    """Raise `InputError` for an unknown format, an unreadable baseline or a missing option."""
    from conformance.report.report import (  # noqa: PLC0415 # reason: inert without --target
        chosen_baseline,
        chosen_formats,
    )
    from engine.errors import InputError  # noqa: PLC0415 # reason: inert without --target

    chosen_formats(option("--target-format"), "--target-format")
    names = ("--target-baseline", "--target-only-new")
    chosen_baseline(option(names[0]), only_new=option(names[1]), names=names)
    if option("--target-format") and option("--target-out") is None:
        raise InputError("--target-format needs --target-out, the folder of the files")


class ClauseItem(pytest.Item):
    """One clause."""

    @property
    def exit_code(self) -> int:
        """The exit code of the run that it belongs to; 0 where the suite did not run."""
        assert isinstance(self.parent, Clauses), "a clause stands among the clauses"
        return self.parent.exit_code

    def runtest(self) -> None:
        """Report the clause's verdict as pytest's outcome."""
        from conformance.context.verdicts import Verdict  # noqa: PLC0415 # reason: inert without --target

        assert isinstance(self.parent, Clauses), "a clause stands among the clauses"
        report = self.parent.report()
        result = report.result(self.name)
        text = report.redactor.text(f"{result.word}: {result.message}")
        self.user_properties += [("verdict", result.word), ("seed", report.seed)]
        self.add_report_section("call", "clause", _evidence(report, result))
        unsaid = result.verdict in {Verdict.SKIPPED, Verdict.INCONCLUSIVE}
        if report.counts(result) or result.is_crashed or report.aborted is not None:
            pytest.fail(text, pytrace=False)
        elif result.is_finding:
            pytest.xfail(f"as in the baseline: {text}")
        elif result.verdict is Verdict.FAIL:
            pytest.xfail(text)
        elif unsaid and self.config.getoption("--target-strict"):
            pytest.fail(text, pytrace=False)
        elif result.verdict not in {Verdict.PASS, Verdict.INFORMATIONAL}:
            pytest.skip(text)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> str:  # noqa: ANN401, ARG002 # reason: pytest's signature
        """Return the finding's sentence; a traceback would show the plugin, not the deployment."""
        return str(excinfo.value)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Return the clause's name for pytest's lines."""
        return self.path, 0, self.name


def _evidence(report: Report, result: ClauseResult) -> str:
    lines = [result.clause.text]
    for finding in result.findings:
        lines.append(f"{finding.verdict.word}: {report.redactor.text(finding.message)}")
        for evidence in report.evidence(finding):
            lines += [f"  {evidence['curl']}", f"  -> {evidence['error'] or evidence['status']}"]
    return "\n".join(lines)
