"""The registry of clauses, and the index that says where each one lives."""

import re
from pathlib import Path

import pytest

from engine.clauses import CLAUSES, clause, load_index, scan, select
from engine.cli import main
from engine.errors import InputError

ROOT = Path(__file__).parents[2]


def test_the_registry_holds_every_clause_once() -> None:
    ids = [c.id for c in CLAUSES]
    assert len(ids) == len(set(ids)) == 69
    assert {c.status for c in CLAUSES} <= {"specified", "mixed", "assumed"}


def test_an_unknown_clause_names_the_nearest_one() -> None:
    with pytest.raises(InputError) as error:
        clause("LIM-PUBLICK")
    assert str(error.value) == ("clause = 'LIM-PUBLICK' does not exist; did you mean 'LIM-PUBLIC'?")


def test_clauses_are_selected_by_id_and_by_prefix_in_registry_order() -> None:
    chosen = [c.id for c in select(["LIM-IP", "PRX-"])]
    assert chosen == ["LIM-IP", "PRX-TIMEOUT"]
    with pytest.raises(InputError):
        select(["PRY-"])


def test_one_line_of_the_engine_obeys_each_clause() -> None:
    for clause_id, places in load_index().items():
        assert len(places["obeyed"]) == 1, clause_id
        name, _, number = places["obeyed"][0].partition(":")
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        line = lines[int(number) - 1]
        assert line.strip()[0] not in '#"', f"{name}:{number} must be code"
        assert clause_id in line or clause_id in lines[int(number) - 2]


def test_an_id_in_a_doctest_is_no_place(tmp_path: Path) -> None:
    made = tmp_path / "engine" / "made.py"
    made.parent.mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").touch()
    code = (
        'def limit():\n    """As TOK-LIMIT says.\n\n    >>> limit("TOK-LEAF")\n'
        "    'TOK-DEDUP'\n\n"
        '    And TOK-JSON.\n    """\n    return 1  # obeys TOK-PLAIN, TOK-ARRAY\n'
    )
    made.write_text(code, encoding="utf-8")
    index = scan(tmp_path)
    named = {clause_id for clause_id, places in index.items() if places["code"]}
    assert named == {"TOK-LIMIT", "TOK-JSON", "TOK-PLAIN", "TOK-ARRAY"}
    assert index["TOK-LIMIT"]["code"] == ["engine/made.py::limit"]
    obeyed = {clause_id: places["obeyed"] for clause_id, places in index.items()}
    assert obeyed["TOK-PLAIN"] == obeyed["TOK-ARRAY"] == ["engine/made.py:9"]
    assert obeyed["TOK-LIMIT"] == []


def test_what_is_no_checkout_is_not_scanned(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no checkout of Tollgate"):
        scan(tmp_path)


def test_every_clause_has_a_place_in_code_and_tests() -> None:
    index = load_index()
    for kind in ("code", "tests"):
        assert [c.id for c in CLAUSES if not index[c.id][kind]] == []


def test_the_command_prints_a_clause_with_its_places(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clauses", "TOK-ATOMIC"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("TOK-ATOMIC  (section 4.1, specified)")
    kinds = re.findall(r"^  (\w+):", printed, re.MULTILINE)
    assert kinds[-5:] == ["checks", "chapters", "obeyed", "code", "tests"]
    assert "tests/" not in printed
    assert main(["clauses", "TOK-ATOMIC", "--tests"]) == 0
    assert "    tests/engine/" in capsys.readouterr().out


def test_the_command_names_an_unknown_clause_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["clauses", "TOK-ATOMICK"]) == 2
    assert capsys.readouterr().err == (
        "engine: clause = 'TOK-ATOMICK' does not exist; did you mean 'TOK-ATOMIC'?\n"
    )
