"""A deployment to ask, for every test of the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine import Engine, Profile
from engine.model import Tenant, TenantKind
from tests.engine.deployment import Deployment


@pytest.fixture
def deploy() -> Callable[..., Deployment]:
    """Make a deployment; profile sections as keywords."""

    def make(**sections: Any) -> Deployment:
        return Deployment(Engine(profile=Profile().replace(**sections), seed=7))

    return make


@pytest.fixture
def acme(deploy: Callable[..., Deployment]) -> Deployment:
    """A deployment with the default profile."""
    return deploy()


@pytest.fixture
def other_tenant(acme: Deployment) -> Callable[[TenantKind], Tenant]:
    """Make one more tenant of a kind."""
    return lambda kind: acme.engine.create_tenant("Other", kind=kind)
