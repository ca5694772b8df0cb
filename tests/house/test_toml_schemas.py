"""Every TOML file that a command writes names a JSON Schema that exists, and is valid under it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

import conformance.cli
import engine.cli
import simulator.cli
from tests.engine.http.live import Live
from tests.node_tools import needs_node, run_tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
_HEAD = re.compile(r"^#:schema (\S+)$", re.MULTILINE)
_LOG = Path(__file__).resolve().parents[2] / "examples" / "access.log"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what the commands write."""
    folder = tmp_path_factory.mktemp("written")
    with contextlib.chdir(folder):
        assert simulator.cli.main(["init", "scenario.toml"]) == 0
        assert simulator.cli.main(["fit", str(_LOG), "--out", "fitted.toml"]) == 0
        run = ["run", "everyday", "--fidelity", "limits", "--quiet", "--out", "run"]
        assert simulator.cli.main(run) == 0
        assert conformance.cli.main(["init", "target.toml"]) == 0
        for name, words in (("profile", ["profile"]), ("limits", ["limits", "--toml"])):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                assert engine.cli.main(words) == 0
            Path(f"{name}.toml").write_text(printed.getvalue(), "utf-8")
        options = ["--demo", "--demo-keys", "1", "--write-target", "demo.toml"]
        with Live(*options) as live:
            init = ["init", "asked/target.toml", "--url", live.url]
            Path("asked").mkdir()
            assert conformance.cli.main(init) == 0
    return folder


def _files(folder: Path) -> list[Path]:
    files = sorted(folder.rglob("*.toml"))
    assert len(files) >= 8, files
    return files


def test_each_file_names_a_schema_that_exists(written: Path) -> None:
    for file in _files(written):
        match = _HEAD.search(file.read_text("utf-8"))
        assert match is not None, file
        place = urlsplit(match[1])
        schema = Path(url2pathname(place.path)) if place.scheme else file.parent / match[1]
        assert schema.is_file(), f"{file} names {schema}"


@needs_node
def test_taplo_finds_each_file_valid_under_its_schema(written: Path) -> None:
    files = [file.relative_to(written) for file in _files(written)]
    checked = run_tool("taplo", "lint", *files, cwd=written)
    assert checked.returncode == 0, checked.stderr
    broken = written / "run" / "broken.toml"
    text = (written / "limits.toml").read_text("utf-8").replace("counter =", "count =", 1)
    broken.write_text(text, "utf-8")
    assert run_tool("taplo", "lint", "run/broken.toml", cwd=written).returncode != 0
