"""The exceptions that Tollgate raises on purpose.

    TollgateError
    ├── InputError        invalid user input: a file, an argument, a flag
    ├── StoreError        the store cannot hold or give back what was asked
    │   └── StoreBusy     another program holds its file; trying again may help
    ├── VaultError        a ciphertext or a wrapped key does not open
    ├── DestinationTimeout, DestinationUnreachable: the outside world did not answer
    └── DriverError       a coroutine ran in an event loop that its world does not support

Programmer errors are `AssertionError` and `TypeError`, as usual. Errors of a caller of the service
are not in this tree: they are answers (`engine.messages.Problem`).
No message holds token data, a card number, a cvc or an API key.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TollgateError(Exception):
    """Root of every exception that Tollgate raises on purpose.

    exit_code: what a command returns that ends with it.
    """

    exit_code = 2


class InputError(TollgateError, ValueError):
    """Invalid user input; the message is one line and says how to correct it.

    The form is `thing = value must rule; way out`, with `file:line:col: ` in front for files.
    Commands print it and exit with 2.
    """


class StoreError(TollgateError):
    """The store cannot hold or give back what was asked."""


class StoreBusy(StoreError):
    """Another program holds the store's file; nothing has happened, and trying again may help."""


class VaultError(TollgateError):
    """A ciphertext or a wrapped key cannot be decrypted: wrong key, wrong row, or changed bytes."""


class DriverError(TollgateError, TypeError):
    """A coroutine of the engine was run by an event loop that its world does not support."""


class DestinationTimeout(TollgateError):
    """A destination, or code that a runtime runs, exceeded its timeout (PRX-TIMEOUT)."""


class DestinationUnreachable(TollgateError):
    """A destination could not be reached, or may not be called."""


def check_text(thing: str, text: object) -> None:
    r"""Raise `InputError` unless every store can keep the text and every answer can show it.

    >>> check_text("tenant name", "Zoë")
    >>> check_text("tenant name", chr(0xD800))
    Traceback (most recent call last):
    engine.errors.InputError: tenant name = '\ud800' must be Unicode text; take out the surrogate
    """
    if not isinstance(text, str):
        raise InputError(f"{thing} = {text!r} must be a text; write it in quotes")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError(
            f"{thing} = {text!a} must be Unicode text; take out the surrogate"
        ) from None


def wrong_type(thing: str, value: object, rule: str) -> InputError:
    """Return the error for an argument of the wrong type; it shows no text and no object.

    >>> print(wrong_type("profile", "key_prod_us_pvt_7Yb", "a Profile"))
    profile = <str> must be a Profile
    >>> print(wrong_type("clock", 5, "a clock such as ManualClock()"))
    clock = 5 must be a clock such as ManualClock()
    """
    is_plain = value is None or (isinstance(value, int | float) and abs(value) < 1e18)
    text = repr(value) if is_plain else f"<{type(value).__name__}>"
    return InputError(f"{thing} = {text} must be {rule}")


def reason_of(error: OSError) -> str:
    """Return what the operating system said, to stand within a message."""
    return (error.strerror or "no reason given").lower()


def did_you_mean(word: str, known: Iterable[str], *, otherwise: str | None = None) -> str:
    """Return `; did you mean 'x'?` for the nearest known word, else the list of known ones.

    otherwise: what to return instead of the list.

    >>> did_you_mean("LIM-PUBLICK", ["LIM-PUBLIC", "LIM-IP"])
    "; did you mean 'LIM-PUBLIC'?"
    >>> did_you_mean("zzz", ["one", "two"])
    '; known: one, two'
    """
    names = list(known)
    # Do not compare a much longer word: it resembles none, and its size is unbounded.
    if len(word) <= 3 * max(map(len, names), default=0):
        near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
        if near:
            return f"; did you mean {near[0]!r}?"
    return "; known: " + ", ".join(names) if otherwise is None else otherwise
