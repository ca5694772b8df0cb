"""How far a run is: a bar where somebody looks, plain lines where a log is kept, nothing else."""

from __future__ import annotations

import importlib
import io
import sys
import time

import pytest

from simulator.progress import in_notebook, progress_bar

S = 1_000_000_000


def test_plain_lines_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 6.0, 6.0, 7.0, 12.0, 12.0, 99.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    with progress_bar(10 * S) as tell:
        assert tell is not None
        for now_s in (1, 4, 5, 7):
            tell(now_s * S)
    assert capsys.readouterr().err == "simulating: 40%\nsimulating: 70%\n"


def test_a_terminal_gets_a_bar_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_bar(10 * S) as tell:
        assert tell is not None
        tell(5 * S)
    assert "simulating" in terminal.getvalue()


def test_quiet_shows_nothing() -> None:
    with progress_bar(10 * S, quiet=True) as tell:
        assert tell is None


def test_a_program_that_only_imports_ipykernel_is_no_notebook() -> None:
    importlib.import_module("ipykernel")
    assert not in_notebook()
