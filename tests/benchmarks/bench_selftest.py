"""The self-test of the conformance checks: how much of its minute on two cores it takes.

The command runs as a user's would, in processes of its own; the processor's time stands beside the
clock's, since a busy machine stretches only the latter.
"""

import os
import subprocess
import sys
import time
from typing import Final

_ASKED_S: Final = 60


def _processor_s() -> float:
    taken = os.times()
    return taken.children_user + taken.children_system


def main(*, big: bool = False) -> None:
    """Print the command's last line and its time."""
    command = [sys.executable, "-m", "conformance", "selftest"]
    began_s, began_processor_s = time.perf_counter(), _processor_s()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    took_s, processor_s = time.perf_counter() - began_s, _processor_s() - began_processor_s
    print(done.stdout.splitlines()[-1])
    print(
        f"{took_s:.1f} s by the clock, {processor_s:.1f} s of the processor: "
        f"{took_s / _ASKED_S:.2f} of the minute that it is to take"
    )
