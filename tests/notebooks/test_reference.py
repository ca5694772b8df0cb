"""The reference page: its commands run as written, and a real server answers as it shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.clauses import CLAUSES, DECISIONS
from engine.limits import LimitTable
from engine.model import DEFAULT_QUOTAS
from engine.resources import OPERATIONS
from tests.house._files import ROOT

PAGE = (ROOT / "docs" / "REFERENCE.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def _shape(value: Any) -> Any:
    """Return a JSON value with what differs from run to run left out."""
    if isinstance(value, dict):
        return {name: _shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_shape(inner) for inner in value]
    return type(value).__name__


@pytest.mark.slow
def test_a_real_server_answers_every_command_as_the_page_shows(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["sh", "-eu", "-c", "\necho; echo @@@\n".join(_blocks("sh"))],
        cwd=tmp_path,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    said = [part.strip() for part in ran.stdout.split("@@@")]
    shown = [json.loads(block) for block in _blocks("json")]
    whole, bodies, rest = said[1], said[2 : 2 + len(shown)], said[2 + len(shown) :]
    _, answer = _blocks("http")
    head, _, body = answer.partition("\n\n")
    got_head, _, got_body = whole.partition("\n\n")
    assert _names(got_head) == _names(head)
    assert _shape(json.loads(got_body)) == _shape(json.loads(body))
    assert [_shape(json.loads(one)) for one in bodies] == [_shape(one) for one in shown]
    assert re.match(r"HTTP/1.1 429 .*", rest[0])
    assert re.search(r"^retry-after: [1-6]?[0-9]\r?$", rest[0], re.MULTILINE)
    assert rest[1].split() == ["401", "404", "405"]


def _names(head: str) -> list[str]:
    """Return the first line of an answer and the names of its fields."""
    first, *fields = head.splitlines()
    return [first.strip(), *sorted(field.partition(":")[0] for field in fields if field.strip())]


def test_nothing_is_missing_from_the_tables() -> None:
    listed = [
        *(rule.id for rule in LimitTable.default()),
        *DEFAULT_QUOTAS,
        *(f"| `{one.method} {one.path}` |" for one in OPERATIONS),
    ]
    assert [each for each in listed if each not in PAGE] == []


def test_every_id_of_the_page_resolves() -> None:
    known = {one.id for one in CLAUSES} | {one.id for one in DECISIONS}
    named = set(
        re.findall(r"\b(?:TOK|REC|AUTH|ERR|LIM|QUO|PRX|RCT|ACC|D)-[A-Z0-9]+(?:-[A-Z0-9]+)*\b", PAGE)
    )
    assert named - known == set()
