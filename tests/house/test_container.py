"""The Dockerfile and the compose file of the demo, without an image: what they name exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped] # reason: it has no types

from engine.cli import _parser
from engine.http.pages import PAGE_PATHS
from tests.node_tools import needs_node, run_tool


def test_what_the_dockerfile_copies_is_there_and_what_it_starts_is_a_command(
    repository: Path,
) -> None:
    text = (repository / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    ignored = (repository / ".dockerignore").read_text("utf-8").split()
    for names in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for name in names.split():
            assert (repository / name).exists(), name
            assert f"!{name.rstrip('/')}" in ignored, name
    (entry,) = re.findall(r'^ENTRYPOINT \["\S+/tollgate-engine", (.+)\]$', text, re.MULTILINE)
    compose = yaml.safe_load((repository / "compose.yaml").read_text("utf-8"))
    (service,) = compose["services"].values()
    words = [word.strip(',"') for word in shlex.split(entry)]
    args = _parser().parse_args([*words, *service["command"]])
    assert (args.host, args.demo) == ("0.0.0.0", True)
    assert service["ports"] == [f"127.0.0.1:{args.port}:{args.port}"]
    assert f"EXPOSE {args.port}" in text
    (health,) = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", text)
    assert health[0] == str(args.port)
    assert health[1] in PAGE_PATHS
    assert text.index("USER tollgate") < text.index("ENTRYPOINT"), "not as root"


@pytest.mark.slow
@needs_node
def test_a_linter_of_dockerfiles_has_nothing_to_say(repository: Path, tmp_path: Path) -> None:
    assert run_tool("dockerfilelint", repository / "Dockerfile", cwd=tmp_path).returncode == 0
    (tmp_path / "Dockerfile").write_text("FROM python\nRUN sudo apt-get install x\n", "utf-8")
    assert run_tool("dockerfilelint", "Dockerfile", cwd=tmp_path).returncode != 0
