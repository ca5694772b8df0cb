"""A tenant's real keys, the default rules, and rules with some choices changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from engine.profile import Profile
from engine.tokens.rules import Rules
from engine.vault import TenantKeys, Vault

MakeRules = Callable[..., Rules]


class _Secrets:
    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def secret(self, name: str) -> bytes | None:
        return self.kept.get(name)

    def put_secret(self, name: str, wrapped: bytes) -> None:
        self.kept[name] = wrapped

    def secrets(self) -> dict[str, bytes]:
        return dict(self.kept)


@pytest.fixture(scope="session")
def keys() -> TenantKeys:
    return Vault(bytes(32), os.urandom, _Secrets()).make("11111111-1111-4111-8111-111111111111")


@pytest.fixture(scope="session")
def other_keys() -> TenantKeys:
    return Vault(bytes(32), os.urandom, _Secrets()).make("22222222-2222-4222-8222-222222222222")


@pytest.fixture(scope="session")
def make_rules() -> MakeRules:
    """Rules with some fields of `tokens` and `dedup` changed."""

    def make(dedup: dict[str, Any] | None = None, **tokens: Any) -> Rules:
        profile = Profile().replace(tokens=tokens, dedup=dedup or {})
        return Rules(profile.tokens, profile.dedup)

    return make


@pytest.fixture(scope="session")
def rules(make_rules: MakeRules) -> Rules:
    return make_rules()
