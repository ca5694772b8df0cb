"""Test runs that are killed leave no server behind."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.children import WITH_US

PARENT = """
import sys
from tests.engine.http.live import Live

live = Live("--demo", "--demo-keys", "1")
print(live.process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.timeout(60)
@pytest.mark.skipif(not WITH_US, reason="setpriv of util-linux is not here")
def test_a_server_ends_with_tests_that_are_killed(repository: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        cwd=repository,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        server = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    select.select([server], [], [])  # comes back when the server has ended
    os.close(server)
