"""An option of a run is told once: its parameter, flag, words and checks are made of one field."""

from __future__ import annotations

import argparse
import inspect
from dataclasses import KW_ONLY, FrozenInstanceError

import pytest

from engine.errors import InputError
from simulator.arguments import (
    add_flags,
    count_of,
    given,
    option,
    optional,
    options,
    read_options,
    repeated,
    takes_options,
    whole,
)
from simulator.options import RunOptions


@options
class MoreOptions(RunOptions):
    """One more option than a run has: one place."""

    _: KW_ONLY
    patience: int | None = option(
        optional(whole(2)),
        "how often to ask again (never)",
        default=None,
        type=count_of,
        metavar="N",
    )


@takes_options(MoreOptions)
def ask(options: MoreOptions) -> MoreOptions:
    """Return what was told: the second place, where an option has its effect.

    {options}

    Raises nothing of its own.
    """
    return options


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_flags(parser, MoreOptions, warm_up="another line")
    return parser.parse_args(["everyday", *words])


def test_a_new_option_is_one_field_and_its_effect() -> None:
    parameter = inspect.signature(ask).parameters["patience"]
    assert (parameter.kind, parameter.default) == (parameter.KEYWORD_ONLY, None)
    assert "\n    patience: how often to ask again (never).\n" in (ask.__doc__ or "")
    assert ask("everyday", patience=3).patience == 3
    with pytest.raises(InputError, match=r"^patience = 1 must be a whole number from 2 up$"):
        ask("everyday", patience=1)
    args = parsed("--patience", "3", "--no-check", "--warm-up", "5s", "--out", "x", "--force")
    assert ask(**given(args, MoreOptions)) == ask(
        "everyday", patience=3, check=False, warm_up=5 * 10**9, out="x", force=True
    )
    assert repeated(args, MoreOptions) == [
        *("everyday", "--no-check", "--out", "x", "--force", "--warm-up", "5s", "--patience", "3")
    ]


def test_a_command_may_say_of_an_option_what_holds_there_alone() -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, MoreOptions, warm_up="another line, 5 %")
    said = parser.format_help()
    assert "another line, 5 %" in said
    assert "how often to ask again (never)" in said


def test_options_cannot_be_changed_and_read_texts_as_units() -> None:
    found = read_options(RunOptions)("everyday", warm_up="2s")
    assert (found.warm_up_ns, found.played.name) == (2 * 10**9, "everyday")
    assert RunOptions("everyday", warm_up="2s").warm_up_ns == 2 * 10**9
    with pytest.raises(FrozenInstanceError):
        found.seed = 3  # type: ignore[misc] # reason: what must not be possible
