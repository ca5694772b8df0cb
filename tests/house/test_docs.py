"""The guides: generated parts are fresh, links lead somewhere, and commands exist."""

import re
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

import simulator
from conformance.context.check import all_checks
from conformance.target.roles import ROLES, roles_table
from engine.clauses import CLAUSES, DECISIONS
from engine.http.configuration import ServeConfig
from notebooks.law_pages import law_pages
from notebooks.results_page import PACKAGES, options_of, parsers, results_page
from simulator.logs import FORMATS
from simulator.logs._log_map import TARGETS
from simulator.rows.metrics import NEEDS
from simulator.rows.record import SCHEMA
from simulator.scenario import METRICS
from tests.house._files import files, text

DOCS = Path("docs")


def test_the_roles_of_the_guide_are_those_of_the_code(repository: Path) -> None:
    guide = (repository / DOCS / "conformance.md").read_text(encoding="utf-8")
    assert roles_table() in guide, "replace the table of docs/conformance.md by roles_table()"


def test_a_role_names_every_clause_that_needs_it() -> None:
    """What `check` leaves out for want of a key, the table of roles says of that key."""
    for check in all_checks().values():
        for name in set(check.roles) - {"private_prod"}:  # of which it says "nearly every clause"
            purpose = ROLES[name].purpose
            missing = [
                clause
                for clause in check.clauses
                if clause not in purpose and f"{clause.partition('-')[0]}-*" not in purpose
            ]
            assert missing == [], f"{check.id} needs {name}: {purpose}"


def test_the_documents_of_the_specification_are_fresh(repository: Path) -> None:
    for name, made in law_pages().items():
        written = (repository / DOCS / name).read_text(encoding="utf-8")
        assert written == made, f"docs/{name} is not what its tables say; run `make notebooks`"


def test_no_option_metric_column_or_public_name_is_undocumented(repository: Path) -> None:
    """The page of results is made by `python -m notebooks.results_page > docs/results.md`."""
    page = (repository / DOCS / "results.md").read_text(encoding="utf-8")
    assert page == results_page(), "make the page again"
    named: dict[str, dict[str, str]] = {}
    for section in re.split(r"^##+ ", page.replace("\\|", "|"), flags=re.MULTILINE)[1:]:
        rows = re.findall(r"^\| `([^`]+)` \|(?:.*\|)? (.*?) \|$", section, re.MULTILINE)
        named[section.partition("\n")[0]] = dict(rows)
    needed = {name: {option for option, _ in options_of(parser)} for name, parser in parsers()}
    assert len(needed) > 20
    needed |= {package: set(import_module(package).__all__) for package in PACKAGES}
    needed["Metrics"] = set(NEEDS)
    needed["Columns of requests.parquet"] = set(SCHEMA.names)
    clauses = simulator.run("everyday", fidelity="limits").clauses
    needed["Columns by clause"] = set(clauses.columns)
    needed["serve.toml"] = {field.name for field in fields(ServeConfig)}
    needed["--map"], needed["Log formats"] = {*TARGETS}, {*FORMATS}
    for place, names in needed.items():
        undocumented = {name for name in names if not named[place].get(name, "").strip(" –")}
        assert undocumented == set(), f"{place} of docs/results.md says nothing about them"
    assert [name for name in METRICS if f"`{name}`" not in page] == []


def test_every_decision_that_a_clause_names_is_listed() -> None:
    known = {decision.id for decision in DECISIONS}
    named = {name for clause in CLAUSES for name in clause.decisions}
    assert named - known == set()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_between_documents_lead_somewhere(repository: Path, name: str) -> None:
    page = (repository / name).read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page):
        assert (repository / target).exists(), f"{name} links to {target}"


def test_every_option_that_a_guide_names_exists(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: dict[tuple[str, str], dict[str, str]] = {}
    for guide in sorted((repository / DOCS).glob("*.md")):
        said = guide.read_text(encoding="utf-8").replace("\\\n", " ")
        for package, command, rest in re.findall(
            r"(?:python -m )?\b(engine|simulator|conformance) ([a-z][a-z-]+)((?: [^`\n#|]*)?)", said
        ):
            options = dict.fromkeys(re.findall(r"--[a-z][a-z-]+", rest), guide.name)
            if options:
                asked.setdefault((package, command), {}).update(options)
    assert len(asked) > 10
    for (package, command), named in asked.items():
        with pytest.raises(SystemExit) as ended:
            import_module(f"{package}.cli").main([command, "--help"])
        assert ended.value.code == 0, f"{package} has no {command}"
        shown = capsys.readouterr().out
        missing = {option: guide for option, guide in named.items() if option not in shown}
        assert not missing, f"{package} {command} has no {missing}"


_IDS = re.compile(
    r"(?<![\w-])(?:TOK|REC|AUTH|ERR|LIM|QUO|PRX|RCT|ACC|D)-[A-Z][A-Z0-9]*(?:-[A-Z0-9]+)*(?![\w-])"
)


def test_every_id_in_code_messages_notebooks_and_documents_resolves() -> None:
    """Whoever meets `TOK-ATOMIC` or `D-ORDER` can look it up with `engine clauses`."""
    known = {one.id for one in CLAUSES} | {one.id for one in DECISIONS}
    known |= {"LIM-PUBLICK"}  # a misspelt one, in the example of a message that says so
    lost = [
        f"{path}: {name}"
        for path in files()
        if path.suffix in {".py", ".md", ".toml", ".j2", ".js"} and path.parts[0] != "tests"
        for name in sorted(set(_IDS.findall(text(path))))
        if name not in known
    ]
    assert lost == []
    assert "TOK-ATOMIC" in _IDS.findall("TOK-ATOMIC, and LIM-PUBLIC.ip")
