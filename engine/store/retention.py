"""How a token changes when a store erases its cvc; the store itself knows no such rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec.structs import replace

from engine.model import Token

__all__ = ["WithoutCvc", "bare"]

WithoutCvc: TypeAlias = Callable[[Token], Token]
"""Makes a token without its cvc and without what was derived from the cvc."""


def bare(token: Token) -> Token:
    """Remove the cvc of a token from whose cvc nothing was derived."""
    return replace(token, sealed_cvc=None, cvc_until_ns=None)
