"""Reports of a run: terminal, JUnit, JSON, HTML, SARIF, annotations and data frames."""

from conformance.report.report import Report

__all__ = ["Report"]
