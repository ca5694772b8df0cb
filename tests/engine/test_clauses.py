"""The registry of clauses, and the index that says where each one lives."""

import json
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


def test_the_committed_index_is_fresh() -> None:
    committed = json.loads((ROOT / "engine" / "clause_index.json").read_text(encoding="utf-8"))
    assert committed == scan(ROOT), "run `python -m engine clauses --refresh`"


@pytest.mark.parametrize("kind", ["code", "tests"])
def test_every_clause_has_a_place(kind: str) -> None:
    index = load_index()
    assert [c.id for c in CLAUSES if not index[c.id][kind]] == []


def test_the_command_prints_a_clause_with_its_places(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["clauses", "TOK-ATOMIC"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("TOK-ATOMIC  (section 4.1, specified)")
    assert "code:" in printed
    assert "engine/" in printed
    assert "tests/" in printed


def test_the_command_names_an_unknown_clause_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["clauses", "TOK-ATOMICK"]) == 2
    assert capsys.readouterr().err == (
        "engine: clause = 'TOK-ATOMICK' does not exist; did you mean 'TOK-ATOMIC'?\n"
    )
