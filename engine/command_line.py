"""How a command of any package ends: its exit code, and its error as one line.

Exit codes: 2 for usage and bad input, 130 for an interruption, else what the command returns.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable

from engine.errors import TollgateError


def run_command(program: str, command: Callable[[], int]) -> int:
    """Run a command and return its exit code; `program` begins the line that says what is wrong.

    A reader that closes the output early ends the command: that is no error.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr] # reason: text streams of a process have it
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        said, code = "interrupted", 130
    except TollgateError as error:
        said, code = str(error), error.exit_code
    except OSError as error:
        said, code = _words(error), TollgateError.exit_code
    else:
        return code
    sys.stderr.write(f"{program}: {said}\n")
    return code


def number_of(what: str, least: int, most: int) -> Callable[[str], int]:
    """Return the type of a flag that takes a number; `what` names it in messages."""

    def read(text: str) -> int:
        is_whole = text.isascii() and text.isdigit() and len(text) < 19
        if not (is_whole and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} must be {what} from {least} to {most}")
        return int(text)

    return read


def _words(error: OSError) -> str:
    """Return what the operating system said, in one line: a full disk, a folder that vanished."""
    place = f"{error.filename}: " if error.filename else ""
    return place + (error.strerror or str(error)).splitlines()[0]
