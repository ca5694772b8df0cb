"""The wheel holds the whole product: its commands run far from the checkout."""

import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

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
