"""How far a run is: a bar where somebody looks, plain lines where a log is kept, nothing else."""

from __future__ import annotations

import importlib
import io
import sys
import time
from functools import partial

import pytest

from simulator.progress import in_notebook, progress_bar, progress_shown

S = 1_000_000_000


def test_plain_lines_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with progress_bar(10 * S) as tell:
        assert tell is not None
        for clock[0], now_s in ((1, 1), (6, 4), (7, 5), (14, 7)):
            tell(now_s * S)
    assert capsys.readouterr().err == (
        "simulating: 40 %, about 10 s left\nsimulating: 70 %, about 7 s left\n"
    )


def test_what_was_done_before_says_nothing_of_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A sweep that goes on at 900 of 1,000 has no pace yet; 10 runs in 10 s are one."""
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with progress_shown() as tell:
        assert tell is not None
        for clock[0], done in ((0, 900), (10, 910), (20, 1_000)):
            tell("sweeping", done, 1_000, partial("{} of 1000".format, done))
    assert capsys.readouterr().err == (
        "sweeping: 910 of 1000, about 2 min left\nsweeping: 1000 of 1000\n"
    )


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
