"""Bad scenario files: one fixture a message, its exact text in the fixture's first line.

The first line of each file is `#! ` and what stands after the file's name in the message; FOLDER
stands for the folder of the fixtures.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InputError
from simulator.scenario import load, loads, starter

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "bad"
FILES = sorted(FOLDER.glob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_bad_scenario_is_one_line_with_its_place(file: Path) -> None:
    first = file.read_text("utf-8").splitlines()[0]
    expected = first.removeprefix("#! ").replace("FOLDER", str(FOLDER))

    with pytest.raises(InputError) as caught:
        load(file)

    assert str(caught.value) == f"{file}{expected}"
    assert "\n" not in str(caught.value)


def test_there_is_a_fixture_for_every_kind_of_fault() -> None:
    names = {file.stem for file in FILES}
    assert names >= {
        "syntax-error",
        "unknown-key",
        "unknown-clause",
        "negative-rate",
        "wrong-type",
        "bad-duration",
        "unknown-application",
    }


def test_two_fixtures_never_show_the_same_message() -> None:
    first_lines = [file.read_text("utf-8").splitlines()[0] for file in FILES]
    assert len(set(first_lines)) == len(first_lines)


def test_an_unknown_scenario_is_named_with_the_nearest_one() -> None:
    with pytest.raises(InputError) as caught:
        load("everyda")
    assert str(caught.value) == (
        "scenario = 'everyda' is neither a file nor a built-in scenario; did you mean 'everyday'?"
    )


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputError, match=r"^nowhere/x\.toml: no such file$"):
        load("nowhere/x.toml")


def test_a_fault_of_an_included_limit_table_stands_at_its_own_place(tmp_path: Path) -> None:
    (tmp_path / "limits.toml").write_text('[[rule]]\nid = "LIM-PUBLIC"\nrate = 5\ncounter = "ip"\n')
    (tmp_path / "scenario.toml").write_text('limits = "limits.toml"\n' + starter())

    with pytest.raises(InputError) as caught:
        load(tmp_path / "scenario.toml")

    assert str(caught.value) == (
        f"{tmp_path / 'limits.toml'}:3:8: rule[0].rate = 5 must name a window; "
        'write "5/1s" for requests a second'
    )


PIECES = st.sampled_from(
    [
        *(
            "",
            " ",
            "=",
            "[",
            "]",
            "[[",
            "{",
            "}",
            '"',
            "\n",
            "#",
            "-1",
            "1e400",
            "nan",
            "true",
            "0x",
        ),
        *("clients", "count", "kind = 3", '"zipf"', "2026-01-01", '"0s"', '"9/0s"', "[]", "{}"),
        *("\x00", "é"),
    ]
)


def fault_of(text: str) -> str | None:
    try:
        loads(text, "x.toml")
    except InputError as error:
        return str(error)
    return None


@given(data=st.data())
def test_no_text_ends_in_anything_but_a_scenario_or_one_line(data: st.DataObject) -> None:
    text = starter()
    for _ in range(data.draw(st.integers(1, 3))):
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(PIECES) + text[stop:]
    fault = fault_of(text)
    assert fault is None or (fault.startswith("x.toml:") and "\n" not in fault)
