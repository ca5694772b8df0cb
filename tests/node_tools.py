"""Tools of the Node ecosystem, at pinned versions: linters, generators and mocks of OpenAPI, taplo.

npm installs them once, into the virtual environment's folder, when a test first asks for one or by
`python -m tests.node_tools`, which the gate runs beside its checks.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

__all__ = ["install", "needs_node", "node_tools", "run_tool"]

_VERSIONS: Final = (
    "@hey-api/openapi-ts@0.80.16",
    "@redocly/cli@1.34.5",
    "@stoplight/prism-cli@5.14.2",
    "@stoplight/spectral-cli@6.16.3",
    "@taplo/cli@0.7.0",
    "dockerfilelint@1.8.0",
    "dredd@14.1.0",
    "typescript@5.9.3",
)
"""The newest versions that run on the Node 18 of Debian 12."""

needs_node: Final = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


def install() -> tuple[Path, str]:
    """Install the tools that are missing; return their folder and what npm failed with."""
    name = hashlib.sha256(" ".join(_VERSIONS).encode()).hexdigest()[:12]
    folder = Path(sys.prefix, f"node-{name}")
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests of several processes want them at once
        if not (folder / "done").exists():
            (folder / "package.json").write_text('{"private": true}\n', encoding="utf-8")
            command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund"]
            done = subprocess.run(
                [*command, "--no-save", *_VERSIONS],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                return folder, done.stderr[-300:]
            (folder / "done").touch()
    return folder, ""


def node_tools() -> Path:
    """Return the folder of the tools' commands, installed when they are missing."""
    folder, error = install()
    if error:
        pytest.skip(f"npm cannot install the tools: {error}")
    return folder / "node_modules" / ".bin"


def run_tool(name: str, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a tool and return what it printed."""
    command = [str(node_tools() / name), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


if __name__ == "__main__" and shutil.which("npm") is not None:
    install()
