"""What the commands of all packages share: the parser, and how a command ends.

Exit codes: 2 for usage and bad input, 130 for an interruption, else what the command returns.

Completion in a shell: `eval "$(register-python-argcomplete tollgate-simulator)"`.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from engine.errors import InputError, TollgateError

RESULTS_PAGE: Final = "docs/results.md"
"""Explains every option, metric, column and setting."""

_IS_COMPLETION: Final = "_ARGCOMPLETE" in os.environ


class Parser(argparse.ArgumentParser):
    """A parser whose subcommands report an unknown option with their own usage."""

    def parse_known_args(  # type: ignore[override] # reason: the overloads of typeshed
        self,
        args: Sequence[str] | None = None,
        namespace: argparse.Namespace | None = None,
    ) -> tuple[argparse.Namespace, list[str]]:
        """Return the arguments; exit with the usage if any is unknown."""
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [option for option in self._option_string_actions if option != "-h"]
            hint = _near_option(unknown[0].partition("=")[0], options)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return parsed, unknown


def _near_option(given: str, options: Sequence[str]) -> str:
    """Return a hint of the nearest option, by what follows the dashes; empty without one."""
    longest = max(map(len, options))
    words = [option.lstrip("-") for option in options]
    near = difflib.get_close_matches(given.lstrip("-")[: 2 * longest], words, n=1)
    return f"; did you mean '--{near[0]}'?" if near else ""


class _Version(argparse.Action):
    """Prints the version and exits."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:  # noqa: ANN401 # reason: what argparse passes
        from importlib.metadata import version  # noqa: PLC0415 # reason: slow, and rarely needed

        sys.stdout.write(f"tollgate {version('tollgate')}\n")
        parser.exit()


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add `--version` to the parser of a package."""
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")


def add_exit_codes(
    parser: argparse.ArgumentParser, commands: argparse._SubParsersAction[Any], codes: str
) -> None:
    """End the help of a package, and of each of its commands, with the exit codes."""
    for command in (parser, *commands.choices.values()):
        command.epilog = f"Exit codes: {codes}, 130 interrupted."


def is_completing() -> bool:
    """Return whether a shell asks for completions: then every subcommand needs its options."""
    return _IS_COMPLETION


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer a shell that asks for completions, and exit; otherwise do nothing."""
    if _IS_COMPLETION:
        import argcomplete  # noqa: PLC0415 # reason: only for a shell that completes

        argcomplete.autocomplete(parser)


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
    hint = f" ({RESULTS_PAGE} explains them)" if "; known: " in said else ""
    sys.stderr.write(f"{program}: {said}{hint}\n")
    return code


def schema_line(package: str, name: str) -> str:
    """Return the first line of a TOML file: where its JSON Schema is installed, for editors.

    A package that is not installed gives an empty text.
    """
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return ""
    return f"#:schema {Path(spec.submodule_search_locations[0], name).resolve().as_uri()}\n"


def require_extra(extra: str, *packages: str) -> None:
    """Raise `InputError` if a package of an extra is not installed."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise InputError(f"this command needs {', '.join(missing)}; install tollgate[{extra}]")


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
