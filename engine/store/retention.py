"""What a store is told of a token whose cvc it erases: it knows no rule of the service."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from engine.model import Token

__all__ = ["WithoutCvc", "bare"]

WithoutCvc: TypeAlias = Callable[[Token], Token]
"""What a token is when its cvc is erased: that without it, and without what was derived from it."""


def bare(token: Token) -> Token:
    """Return a token from whose cvc nothing was derived, without it."""
    return replace(token, sealed_cvc=None, cvc_until_ns=None)
