"""JupyterLab, started as a user does and ended again; its settings are the test's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.children import WITH_US

__all__ = ["Lab", "started"]

START_TIMEOUT_S = 120
END_TIMEOUT_S = 30
_SETTINGS = {
    "docmanager-extension/plugin": {"autosave": False},
    "apputils-extension/notification": {"fetchNews": "false"},
    # Cells out of sight are drawn too, so that what they show can be found.
    "notebook-extension/tracker": {"windowingMode": "none"},
}


class Lab:
    """A running JupyterLab: where it is, and what opens it."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.root: str = found["url"].replace("localhost", "127.0.0.1")
        self.token: str = found["token"]
        self.folder = Path(found["root_dir"])

    def url(self, path: str) -> str:
        """Return the address of a page, with the token."""
        return f"{self.root}{path}?token={self.token}"


@contextmanager
def started(command: Sequence[str], cwd: Path, home: Path) -> Iterator[Lab]:
    """Run a command that starts JupyterLab; ends it and all that it started."""
    settings, runtime = home / "settings", home / "runtime"
    for name, value in _SETTINGS.items():
        file = settings / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(value), encoding="utf-8")
    environment = {
        **os.environ,
        "BROWSER": "true",
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(runtime),
        "JUPYTERLAB_SETTINGS_DIR": str(settings),
        "JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"),
    }
    log = home / "lab.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*WITH_US, *command],
            cwd=cwd,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield Lab(_served(process, runtime, log))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(END_TIMEOUT_S)
            # `make` may end before the server that it started, which then stays.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _served(process: subprocess.Popen[bytes], runtime: Path, log: Path) -> dict[str, Any]:
    """Wait until the server has written where it is."""
    until = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text("utf-8", errors="replace")[-2000:]
        for file in runtime.glob("jpserver-*.json"):
            text = file.read_text(encoding="utf-8")
            if text.endswith("}"):
                found: dict[str, Any] = json.loads(text)
                return found
        time.sleep(0.2)
    raise AssertionError(log.read_text("utf-8", errors="replace")[-2000:])
