"""The wheel holds the whole product: its commands run far from the checkout."""

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import urllib.request
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house._files import PACKAGES, files

pytestmark = pytest.mark.slow


def _run(command: Sequence[str | Path], cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    ran = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, f"{command}\n{ran.stdout}\n{ran.stderr}"
    return ran.stdout


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution as a publisher does."""
    out = tmp_path_factory.mktemp("dist")
    _run([sys.executable, "-m", "build", "--no-isolation", "--outdir", out, repository], out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def scripts(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of commands of a fresh environment with the wheel and nothing of the checkout.

    The dependencies are this environment's, on the path after the wheel. A folder named in a
    `.pth` file has its own `.pth` files left unread: the editable install stays out of sight.
    """
    home = tmp_path_factory.mktemp("wheel") / "venv"
    _run([sys.executable, "-m", "venv", "--without-pip", home], home.parent)
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps"]
    _run([*install, "--python", python, wheel], home.parent)
    site = Path(
        _run([python, "-c", "import sysconfig as s; print(s.get_path('purelib'))"], home)[:-1]
    )
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return home / "bin"


def test_every_file_of_the_packages_is_in_the_wheel(wheel: Path) -> None:
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {str(path) for path in files() if path.parts[0] in PACKAGES} - held == set()
    assert not {name for name in held if name.startswith(("tests/", "notebooks/"))}


def test_the_packages_come_from_the_wheel(scripts: Path, tmp_path: Path) -> None:
    code = "import engine, simulator, conformance as c; print(engine.__file__, c.__file__)"
    for place in _run([scripts / "python", "-c", code], tmp_path).split():
        assert Path(place).is_relative_to(scripts.parent)


def test_every_command_explains_itself(scripts: Path, repository: Path, tmp_path: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text(encoding="utf-8"))
    commands = project["project"]["scripts"]
    assert commands
    for command in commands:
        assert "usage" in _run([scripts / command, "--help"], tmp_path).lower()


def test_the_engine_prints_its_limit_table(scripts: Path, tmp_path: Path) -> None:
    assert "LIM-PRIVATE" in _run([scripts / "tollgate-engine", "limits"], tmp_path)


def test_the_simulator_runs_the_built_in_scenario(scripts: Path, tmp_path: Path) -> None:
    _run([scripts / "tollgate-simulator", "run", "everyday", "--out", "out"], tmp_path)
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    assert (tmp_path / "out" / "requests.parquet").is_file()


def _closure(name: str, found: dict[str, metadata.Distribution]) -> None:
    """Collect a distribution and what it needs without extras."""
    for text in metadata.requires(name) or []:
        need = Requirement(text)
        key = canonicalize_name(need.name)
        if key not in found and (need.marker is None or need.marker.evaluate({"extra": ""})):
            found[key] = metadata.distribution(need.name)
            _closure(need.name, found)


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The commands of a fresh environment with the wheel and what it needs, without any extra.

    What it needs is linked from this environment, so nothing is downloaded.
    """
    home = tmp_path_factory.mktemp("bare") / "venv"
    _run([sys.executable, "-m", "venv", "--without-pip", home], home.parent)
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "uv", "pip", "install", "--offline", "--no-deps"]
    _run([*install, "--python", python, wheel], home.parent)
    code = "import sysconfig as s; print(s.get_path('purelib'))"
    site = Path(_run([python, "-c", code], home)[:-1])
    needed: dict[str, metadata.Distribution] = {}
    _closure("tollgate", needed)
    here = Path(sysconfig.get_path("purelib"))
    for distribution in needed.values():
        for top in {file.parts[0] for file in distribution.files or [] if file.parts[0] != ".."}:
            if top != "__pycache__" and not (site / top).exists():
                (site / top).symlink_to(here / top)
    return home / "bin"


def test_the_base_install_stays_small(wheel: Path) -> None:
    """What `pip install tollgate` brings, as this environment has it: packages and megabytes."""
    needed: dict[str, metadata.Distribution] = {}
    _closure("tollgate", needed)
    assert len(needed) + 1 <= 45, sorted(needed)
    sizes_mb = {
        name: sum(
            Path(str(distribution.locate_file(file))).stat().st_size
            for file in distribution.files or []
            if Path(str(distribution.locate_file(file))).is_file()
        )
        / 1e6
        for name, distribution in needed.items()
    }
    with zipfile.ZipFile(wheel) as archive:
        sizes_mb["tollgate"] = sum(entry.file_size for entry in archive.infolist()) / 1e6
    assert sum(sizes_mb.values()) <= 480, sorted(sizes_mb.items(), key=lambda item: -item[1])[:8]


EXTRAS = "needs hypothesis, pytest, schemathesis; install tollgate[conformance]"
BARE: list[tuple[str, int, str]] = [
    ("tollgate-engine limits", 0, "LIM-PRIVATE"),
    ("tollgate-engine clauses TOK-ATOMIC", 0, "obeyed:\n    engine/tokens/types.py:"),
    ("tollgate-engine clauses TOK-ATOMIC --tests", 0, "    tests/engine/"),
    ("tollgate-engine clauses TOK-ATOMIC", 0, "    notebooks/"),
    ("tollgate-engine profile", 0, "[tokens]"),
    ("tollgate-engine serve --demo", 2, "install tollgate[server]"),
    ("tollgate-engine openapi --kind floor", 0, '"openapi": "3.1.0"'),
    ("tollgate-simulator scenarios", 0, "everyday"),
    ("tollgate-simulator check everyday", 0, "fine"),
    ("tollgate-simulator init own.toml", 0, "wrote own.toml"),
    ("tollgate-simulator run everyday --fidelity limits --quiet --out run", 0, ""),
    (
        "tollgate-simulator sweep everyday --set seed=1,2 --scheduler tcp://127.0.0.1:1 --out s",
        2,
        "install tollgate[dask]",
    ),
    ("tollgate-conformance init target.toml", 0, "target.toml"),
    ("tollgate-conformance list", 2, EXTRAS),
    ("tollgate-conformance explain TOK-ATOMIC", 2, EXTRAS),
    ("tollgate-conformance check target.toml", 2, EXTRAS),
    ("tollgate-conformance run target.toml --out out", 2, EXTRAS),
    ("tollgate-conformance replay out TOK-", 2, EXTRAS),
    ("tollgate-conformance judge out", 2, EXTRAS),
    ("tollgate-conformance selftest", 2, EXTRAS),
]


def test_without_extras_a_command_runs_or_names_its_extra(bare: Path, tmp_path: Path) -> None:
    for line, code, text in BARE:
        command, *arguments = line.split()
        ran = subprocess.run(
            [bare / command, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (ran.returncode, text in ran.stdout + ran.stderr) == (code, True), (line, ran)
        if code:
            assert len(ran.stderr.splitlines()) == 1, ran.stderr
    made = {path.name for path in tmp_path.iterdir()}
    by_init = {"own.toml", "scenario.schema.json", "target.toml", "target.schema.json"}
    assert made == {*by_init, "run"}, "what was refused changed nothing"


def test_the_demo_serves_its_documentation(scripts: Path, tmp_path: Path) -> None:
    options = ["--demo", "--demo-keys", "1", "--port", "0"]
    command = [str(scripts / "tollgate-engine"), "serve", *options]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = json.loads(server.stdout.readline())["url"]
            with urllib.request.urlopen(f"{url}/docs/swagger-ui-bundle.js") as answer:
                assert len(answer.read()) > 1_000_000
        finally:
            server.terminate()
        server.communicate()
    assert server.returncode == 0
