"""What a management key may give: nothing beyond its own right (D-GRANT-SCOPE)."""

from __future__ import annotations

from typing import Any

import pytest

from engine import Engine, ManualClock, Profile
from tests.engine.deployment import Deployment

EVERY = {"application:create", "application:update", "key:create"}


def _body(container: str, *rights: str, kind: str = "private") -> dict[str, Any]:
    grants = [{"container": container, "permissions": list(rights)}]
    return {"name": "shop", "kind": kind, "grants": grants}


@pytest.fixture
def acme() -> Deployment:
    return Deployment(Engine(clock=ManualClock(), seed=1))


@pytest.fixture
def manager(acme: Deployment) -> str:
    return acme.principal(EVERY, "management", container="/pci/")[1]


@pytest.mark.parametrize(
    ("container", "status"), [("/pci/", 201), ("/PCI/high/", 201), ("/", 403), ("/general/", 403)]
)
def test_an_application_is_made_within_the_containers_of_the_right(
    acme: Deployment, manager: str, container: str, status: int
) -> None:
    answer = acme.ask("POST", "/applications", _body(container, "token:create"), key=manager)
    assert answer.status == status
    assert answer.body.get("clause") == (None if status == 201 else "D-GRANT-SCOPE")
    listed = acme.ask("GET", "/applications", key=acme.key_with("application:read")).body["data"]
    assert sum(a["name"] == "shop" for a in listed) == (status == 201)


def test_an_application_is_changed_within_the_containers_of_the_right(
    acme: Deployment, manager: str
) -> None:
    made = acme.ask("POST", "/applications", _body("/pci/"), key=manager).body
    path = f"/applications/{made['id']}"
    for container, status in {"/pci/low/": 200, "/": 403}.items():
        grants = _body(container, "token:read")["grants"]
        assert acme.ask("PATCH", path, {"grants": grants}, key=manager).status == status
    assert acme.ask("PATCH", path, {"name": "renamed"}, key=manager).status == 200


def test_no_application_widens_its_own_grants(acme: Deployment) -> None:
    """Neither by container nor by right; giving some of its own up is allowed."""
    rights = {"application:update", "application:read"}
    application, key = acme.principal(rights, "management", container="/pci/")
    path = f"/applications/{application.id}"

    def change(container: str, *given: str) -> int:
        body = {"grants": [{"container": container, "permissions": list(given)}]}
        return acme.ask("PATCH", path, body, key=key).status

    assert change("/", *rights) == 403
    assert change("/pci/", *rights, "proxy:create") == 403
    assert change("/pci/", "application:update") == 200
    assert change("/pci/", *rights) == 403, "what it gave up is no longer its own"


def test_rights_over_rights_are_given_only_by_who_holds_them(
    acme: Deployment, manager: str
) -> None:
    """Else a second application would be the way up."""
    for rights, status in ((["key:create"], 201), (["key:delete"], 403), (["proxy:create"], 201)):
        body = _body("/pci/", *rights, kind="management")
        assert acme.ask("POST", "/applications", body, key=manager).status == status


def test_a_key_is_made_only_for_rights_within_ones_own(acme: Deployment, manager: str) -> None:
    """A key of an application on `/` would be those rights."""
    wide, _ = acme.principal({"token:read"})
    narrow, _ = acme.principal({"token:read"}, container="/pci/low/")
    assert acme.ask("POST", f"/applications/{wide.id}/keys", key=manager).status == 403
    assert acme.ask("POST", f"/applications/{narrow.id}/keys", key=manager).status == 201


def test_the_other_reading_gives_anything() -> None:
    acme = Deployment(Engine(profile=Profile().replace(identity={"grant_scope": "any"}), seed=1))
    application, key = acme.principal(EVERY, "management", container="/pci/")
    assert acme.ask("POST", "/applications", _body("/", "token:read"), key=key).status == 201
    grants = _body("/", "key:delete")["grants"]
    own = f"/applications/{application.id}"
    assert acme.ask("PATCH", own, {"grants": grants}, key=key).status == 200
