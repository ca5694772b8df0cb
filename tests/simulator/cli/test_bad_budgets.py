"""A user's slip in what replications are asked for is one line that says it, and exit code 2.

Precisions that are zero or negative, a condition without a bound where one is needed, and budgets
that contradict each other: on the command line of `run`, `compare` and `capacity`, and in files.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from simulator.cli import main

RUN = ["run", "everyday", "--out", "{tmp}/new"]
COMPARE = ["compare", "{tmp}/a", "{tmp}/b"]
CAPACITY = ["capacity", "everyday", "--vary", "clients.browsers.count", "--between", "5", "50"]
KEEP = ["--keep", "refused_share <= 0.1"]

PRECISION = "must be above 0 and below 0.5, half the width of a share's interval"
COUNT = "must be a whole number from 1 to 100000"
SHARE = "must be a share of the value, from 0 to 1"

CASES = [
    (given, ["--precision", value], f"--precision: '{value}' {PRECISION}")
    for given in (RUN, COMPARE)
    for value in ("0", "-0.5", "nan", "inf", "narrow", "0.5")
]
CASES += [
    (given, ["--most-replications", value], f"--most-replications: '{value}' {COUNT}")
    for given in (RUN, COMPARE, [*CAPACITY, *KEEP])
    for value in ("0", "-1", "2.5")
]
CASES += [
    (
        given,
        ["--most-time", "5m"],
        "most_time = 5m must go with precision; leave it out",
    )
    for given in (RUN, COMPARE)
]
CASES += [
    (
        given,
        ["--most-replications", "5"],
        "most_replications = 5 must go with precision; leave it out",
    )
    for given in (RUN, COMPARE)
]
CASES += [
    (
        given,
        ["--replications", "5", "--most-replications", "3"],
        "most_replications = 3 must be at least replications, 5; take more",
    )
    for given in ([*RUN, "--precision", "0.1"], [*CAPACITY, *KEEP])
]
CASES += [
    (given, ["--most-time", "0s"], "most_time = 0 ns must be above 0; take more")
    for given in (
        [*RUN, "--precision", "0.1"],
        [*COMPARE, "--precision", "0.1"],
        [*CAPACITY, *KEEP],
    )
]
CASES += [
    (
        CAPACITY,
        ["--keep", "refused_share"],
        (
            "condition = 'refused_share' must be a condition such as"
            " \"refused_share{client='browsers'} <= 0.01\""
        ),
    ),
    (
        CAPACITY,
        ["--keep", "refused_share <= few"],
        "condition = 'refused_share <= few' must compare with a number; few is none",
    ),
    *(
        (
            CAPACITY,
            ["--keep", f"refused_share < {bound}"],
            (
                f"condition = 'refused_share < {bound}' must compare with a share from 0 to 1, "
                f"such as 0.01 or 1%; {bound} is none"
            ),
        )
        for bound in ("1.5", "-0.1", "150%")
    ),
    (
        CAPACITY,
        ["--keep", "refused <= -1"],
        "condition = 'refused <= -1' must compare with a number that is at least 0; -1 is below",
    ),
    ([*CAPACITY, *KEEP], ["--tolerance", "-1"], f"--tolerance: '-1' {SHARE}"),
    ([*CAPACITY, *KEEP], ["--tolerance", "nan"], f"--tolerance: 'nan' {SHARE}"),
    (
        [*CAPACITY, *KEEP],
        ["--between", "50", "5"],
        "between = 50 5 must rise; put the lower value first",
    ),
]


@pytest.mark.parametrize(("command", "flags", "said"), CASES)
def test_a_slip_in_a_budget_is_one_line(
    command: list[str],
    flags: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = [word.replace("{tmp}", str(tmp_path)) for word in [*command, *flags]]
    with pytest.raises(SystemExit) as end:
        sys.exit(main(words))
    assert end.value.code == 2
    assert capsys.readouterr().err == f"simulator: {said}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_threshold_without_a_bound_is_told_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "few.toml"
    assert main(["init", str(path)]) == 0
    text = path.read_text("utf-8") + '\n[[thresholds]]\nthat = "refused_share"\n'
    path.write_text(text, "utf-8")
    capsys.readouterr()
    assert main(["run", str(path), "--precision", "0.1", "--out", str(tmp_path / "new")]) == 2
    said = capsys.readouterr().err
    row = text.splitlines().index('that = "refused_share"') + 1
    assert said.count("\n") == 1
    assert f"few.toml:{row}:" in said
    assert 'thresholds[1].that = "refused_share" must be a condition such as' in said
