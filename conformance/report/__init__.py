"""Reports of a run: terminal, JUnit, JSON, one HTML page, and frames for notebooks."""

from conformance.report.report import Report

__all__ = ["Report"]
