"""The guides: generated parts are fresh, links lead somewhere, and commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.target.roles import roles_table
from engine.clauses import CLAUSES
from engine.decisions import DECISIONS
from notebooks.law_pages import law_pages

DOCS = Path("docs")


def test_the_roles_of_the_guide_are_those_of_the_code(repository: Path) -> None:
    guide = (repository / DOCS / "conformance.md").read_text(encoding="utf-8")
    assert roles_table() in guide, "replace the table of docs/conformance.md by roles_table()"


def test_the_documents_of_the_specification_are_fresh(repository: Path) -> None:
    for name, text in law_pages().items():
        written = (repository / DOCS / name).read_text(encoding="utf-8")
        assert written == text, f"docs/{name} is not what its tables say; run `make notebooks`"


def test_every_decision_that_a_clause_names_is_listed() -> None:
    known = {decision.id for decision in DECISIONS}
    named = {name for clause in CLAUSES for name in clause.decisions}
    assert named - known == set()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_between_documents_lead_somewhere(repository: Path, name: str) -> None:
    text = (repository / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert (repository / target).exists(), f"{name} links to {target}"


@pytest.mark.slow
def test_every_option_that_a_guide_names_exists(repository: Path) -> None:
    for guide in sorted((repository / DOCS).glob("*.md")):
        text = guide.read_text(encoding="utf-8").replace("\\\n", " ")
        for package, command, rest in re.findall(
            r"(?:python -m )?\b(engine|simulator|conformance) ([a-z][a-z-]+)((?: [^`\n#|]*)?)", text
        ):
            options = set(re.findall(r"--[a-z][a-z-]+", rest))
            if not options:
                continue
            shown = subprocess.run(
                [sys.executable, "-m", package, command, "--help"],
                cwd=repository,
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            missing = {option for option in options if option not in shown}
            assert not missing, f"{guide.name}: {package} {command} has no {missing}"
