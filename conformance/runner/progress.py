"""Progress callbacks; silent by default."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from conformance.runner.plan import Plan
from conformance.runner.preflight import Preflight
from conformance.runner.registry import Check
from conformance.runner.session import Session
from conformance.runner.verdicts import Finding
from conformance.target import Target

__all__ = ["Progress", "Silence"]


class Progress(Protocol):
    """Callbacks while a run goes."""

    def planned(self, plan: Plan, target: Target, seed: int) -> None:
        """Hear what will run."""

    def flown(self, preflight: Preflight) -> None:
        """Hear what the preflight found."""

    def watch(self, session: Session) -> None:
        """Hear where to look what the checks of a run wait for."""

    def began(self, check: Check) -> None:
        """Hear that a check begins."""

    def ended(self, check: Check, findings: Sequence[Finding]) -> None:
        """Hear what a check found."""

    def cleaned(self, gone: int, left: int) -> None:
        """Hear how many created things are gone, and left."""


class Silence:
    """Progress that tells nobody."""

    def planned(self, plan: Plan, target: Target, seed: int) -> None:
        """Say nothing."""

    def flown(self, preflight: Preflight) -> None:
        """Say nothing."""

    def watch(self, session: Session) -> None:
        """Say nothing."""

    def began(self, check: Check) -> None:
        """Say nothing."""

    def ended(self, check: Check, findings: Sequence[Finding]) -> None:
        """Say nothing."""

    def cleaned(self, gone: int, left: int) -> None:
        """Say nothing."""
