"""A server of its own for tests: `python -m engine serve`, asked over loopback.

Its limits are out of the way unless a test brings others. One key may do everything that a private
application can, and another one makes API keys.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from engine.identity import PERMISSIONS
from engine.limits import LimitTable
from tests.children import WITH_US

__all__ = ["KEY", "MANAGER", "MASTER_KEY", "Live", "all_rights", "open_limits", "served"]

KEY = "key_prod_us_pvt_1111111111111111111111"
MANAGER = "key_prod_us_mgt_1111111111111111111111"
"""The key of a management application, which makes API keys."""

MASTER_KEY = "11" * 32
SERVE = ("-m", "engine", "serve", "--port", "0")


class Live:
    """One running server; `lines` is what it printed at its start."""

    def __init__(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
    ) -> None:
        self.process = subprocess.Popen(
            [*WITH_US, *prefix, sys.executable, *SERVE, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        try:
            self.lines = list(self._start())
        except BaseException:
            self.process.kill()
            self.process.communicate()
            raise
        self.url: str = self.lines[0]["url"]
        self.client = httpx.Client(base_url=self.url, timeout=30, trust_env=False)

    def _start(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)
            if json.loads(line).get("role") == "end":
                return
        assert self.process.stderr is not None
        raise AssertionError(f"the server did not start: {self.process.stderr.read()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def keys(self, role: str) -> list[dict[str, Any]]:
        """Return the lines of a role."""
        return [line for line in self.lines if line.get("role") == role]

    def ask(self, method: str, path: str, *, key: str | None = KEY, **more: Any) -> httpx.Response:
        """Ask with the configured key, unless another one (or None) is given."""
        headers = dict(more.pop("headers", {}))
        if key is not None:
            headers["SVC-API-KEY"] = key
        return self.client.request(method, path, headers=headers, **more)

    def stop(self, number: int = signal.SIGTERM, *, within_s: float = 100) -> tuple[int, str]:
        """Send a signal; return the exit code and what was logged."""
        self.process.send_signal(number)
        _, logged = self.process.communicate(timeout=within_s)
        return self.process.returncode, logged

    def ask_until_refused(self, method: str, path: str, **more: Any) -> list[httpx.Response]:
        """Ask until a limit refuses; a machine that pauses lets a window go by, and more pass."""
        answers = [self.ask(method, path, **more)]
        while answers[-1].status_code != 429:
            answers.append(self.ask(method, path, **more))
        return answers

    def ask_destination(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Ask the demo's destination; again where it took too long on a busy machine."""
        answer = self.client.request(method, path, **more)
        return answer if answer.status_code != 408 else self.ask_destination(method, path, **more)

    def memory_bytes(self) -> int:
        """Return the resident memory of the server."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


def open_limits(folder: Path) -> Path:
    """Return a limit table under which a test meets no limit."""
    table = LimitTable.default()
    for rule in table:
        table = table.replace_rule(rule.id, rate="1000000/10s")
    file = folder / "limits.toml"
    file.write_text(table.to_toml(), encoding="utf-8")
    return file


def all_rights() -> str:
    """Return every permission, as TOML."""
    return json.dumps(list(PERMISSIONS))


@contextmanager
def served(
    folder: Path,
    *arguments: str,
    more: str = "",
    quota: int = 1_000_000,
    limits: bool = False,
    keys: Sequence[str] = (KEY,),
    cvc_retention: str = "1h",
) -> Iterator[Live]:
    """Serve one tenant, an application with every right and a manager; `more` comes first."""
    file = folder / "serve.toml"
    file.write_text(
        f"""{more}
[[tenants]]
name = "acme"
host_suffixes = [".example"]

[tenants.quotas]
"Tokenize Limit" = {quota}
"Detokenize Limit" = {quota}
"CVC Retention" = "{cvc_retention}"

[[applications]]
name = "backend"
tenant = "acme"
grants = [ {{ container = "/", permissions = {all_rights()} }} ]
keys = {json.dumps(list(keys))}

[[applications]]
name = "manager"
tenant = "acme"
kind = "management"
grants = [ {{ container = "/", permissions = ["key:create"] }} ]
keys = ["{MANAGER}"]
""",
        encoding="utf-8",
    )
    flags = [] if limits else ["--limits", str(open_limits(folder))]
    environment = {"TOLLGATE_MASTER_KEY": MASTER_KEY}
    with Live("--config", str(file), *flags, *arguments, environment=environment) as live:
        yield live


def wait_until(condition: Any, *, within_s: float = 100) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s, "it did not come to pass in time"
        time.sleep(0.02)
