"""Keys, grants and permissions (section 5)."""

import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from engine import Engine, Profile, Response
from engine.errors import InputError
from engine.identity import (
    Caller,
    KeyText,
    covers,
    is_legacy_text,
    make_grants,
    new_key_text,
    normal_container,
    secret_text,
)
from engine.model import Application, Key, Tenant
from tests.engine.deployment import Deployment


def _entropy(count: int) -> bytes:
    return bytes(index * 7 % 256 for index in range(count))


@pytest.mark.parametrize(
    ("tenant", "kind", "legacy", "form"),
    [
        ("production", "public", False, r"key_prod_us_pub_[1-9A-HJ-NP-Za-km-z]{22}"),
        ("test", "private", False, r"key_test_us_pvt_[1-9A-HJ-NP-Za-km-z]{22}"),
        ("test", "management", False, r"key_test_us_mgt_[1-9A-HJ-NP-Za-km-z]{22}"),
        ("test", "private", True, r"key_[1-9A-HJ-NP-Za-km-z]{22}"),
    ],
)
def test_auth_legacy_a_key_text_says_its_environment_unless_it_is_legacy(
    tenant: Any, kind: Any, legacy: bool, form: str
) -> None:
    """AUTH-LEGACY: a legacy key's text holds neither `_prod_` nor `_test_`."""
    text = new_key_text(tenant, kind, region="us", legacy=legacy, entropy=_entropy)
    assert re.fullmatch(form, text)
    assert is_legacy_text(text) is legacy


def test_key_texts_differ_and_hide_themselves() -> None:
    texts = {
        new_key_text("test", "public", region="us", legacy=False, entropy=os.urandom)
        for _ in range(100)
    }
    assert len(texts) == 100
    shown = repr(KeyText("key_test_us_pub_secretsecretsecret", "an-id"))
    assert "secret" not in shown


def test_a_grant_covers_its_path_and_all_below_by_whole_segments() -> None:
    """AUTH-CREATE, D-GRANT."""
    assert covers("/pci/", "/pci/")
    assert covers("/pci/", "/pci/high/")
    assert covers("/", "/pci/high/")
    assert not covers("/pci/", "/pciother/")
    assert not covers("/pci/high/", "/pci/")


@pytest.mark.parametrize("path", ["pci/", "/pci", "//", "/a//b/", "/a b/", "", "/ä/"])
def test_a_container_path_of_another_form_is_none(path: str) -> None:
    assert normal_container(path, 400) is None


def _caller(*pairs: tuple[str, set[str]]) -> Caller:
    tenant = Tenant("t", "Acme", "test", {}, {}, 0)
    application = Application("a", "t", "app", "private", make_grants("private", pairs), 0)
    return Caller(Key("k", "t", "a", False, b""), application, tenant)


def test_auth_create_a_right_holds_where_a_grant_gives_it() -> None:
    """AUTH-CREATE: on every destination container; other rights belong to no container."""
    caller = _caller(("/pci/", {"token:create"}), ("/general/", {"log:read"}))
    assert caller.may("token:create", "/pci/high/")
    assert not caller.may("token:create", "/general/high/")
    assert caller.may("token:create")
    assert caller.may("log:read")
    assert not caller.may("token:read")
    assert caller.containers("token:create") == ("/pci/",)


@pytest.mark.parametrize(
    ("kind", "pair", "message"),
    [
        (
            "private",
            ("/", {"token:creat"}),
            (
                "grants[0].permissions holds 'token:creat', which does not exist; did you mean "
                "'token:create'?"
            ),
        ),
        (
            "public",
            ("/", {"token:read"}),
            (
                "grants[0].permissions holds 'token:read', which a public application may not "
                "hold; leave it out or choose another kind"
            ),
        ),
        (
            "private",
            ("pci", set()),
            (
                "grants[0].container = 'pci' must start and end with '/', with segments of "
                "letters, digits, '_' and '-' between"
            ),
        ),
    ],
)
def test_a_grant_that_cannot_be_names_the_way_out(kind: Any, pair: Any, message: str) -> None:
    with pytest.raises(InputError) as error:
        make_grants(kind, [pair])
    assert str(error.value) == message


def test_d_key_every_letter_of_a_text_is_as_likely_as_any_other() -> None:
    """D-KEY: 22 base58 characters; no byte favours a letter, and none is never drawn."""
    drawn = iter(range(256))

    def entropy(count: int) -> bytes:
        return bytes(next(drawn) for _ in range(count))

    text = secret_text(entropy, 232)
    assert {text.count(letter) for letter in text} == {4}
    assert len(set(text)) == 58


def test_what_a_caller_may_is_remembered_within_bounds() -> None:
    """D-GRANT: the containers that are asked about are the caller's texts, of any number."""
    tenant = Tenant("t", "T", "test", {}, {}, 0)
    grants = make_grants("private", [("/pci/", {"token:create"})])
    application = Application("a", "t", "A", "private", grants, 0)
    caller = Caller(Key("k", "t", "a", legacy=False, text_hash=b""), application, tenant)
    for number in range(3_000):
        assert caller.may("token:create", f"/pci/{number}/")
        assert not caller.may("token:create", f"/{number}/")
    assert len(caller._may) <= 1_024


@pytest.mark.parametrize("text", [" key_of_the_backend_1", "key_of_the_backend_1 "])
def test_auth_header_a_key_text_that_no_header_keeps_is_refused(text: str) -> None:
    """AUTH-HEADER: a field's value has no space at its ends, so the key would never be known."""
    engine = Engine(seed=7)
    application = engine.create_application(engine.create_tenant("Acme"), "shop")
    with pytest.raises(InputError, match="must not begin or end with a space") as e:
        engine.create_key(application, text=text)
    assert "backend" not in str(e.value)
    fine = text.strip().replace("_", " ")
    assert engine.create_key(application, text=fine) == fine


def test_quo_tenant_an_application_is_of_a_tenant_that_is_there() -> None:
    """QUO-TENANT: one of another engine could have applications here, and no key for them."""
    engine, other = Engine(seed=7), Engine(seed=8)
    tenant = other.create_tenant("Acme")
    with pytest.raises(InputError, match=f"^tenant = '{tenant.id}' does not exist; create it"):
        engine.create_application(tenant, "shop")
    with engine.services.store.transaction(write=False):
        assert engine.services.store.list(Application, tenant.id) == []


def test_the_length_of_a_container_path_is_the_profiles_at_every_door(
    deploy: Callable[..., Deployment],
) -> None:
    """D-CONTAINER: 400 characters unless the profile says another number."""
    fits, longer = "/abcdefgh/high/", "/abcdefgh/higher/"
    rule = "must hold at most 15 characters"
    acme = deploy(tokens={"container_limit": 15})
    manager = acme.principal({"application:create", "application:update"}, "management")[1]
    made = acme.ask("POST", "/applications", {"name": "x", "kind": "management"}, key=manager)
    application = f"/applications/{made.body['id']}"

    def asked(path: str) -> list[Response]:
        token = {"type": "token", "data": "x", "containers": [path]}
        grants = [{"container": path, "permissions": []}]
        created = acme.ask("POST", "/tokens", token)
        stored = created.body["id"] if created.ok else acme.tokenize(["x"])[0]
        return [
            created,
            acme.ask("POST", "/tokenize", [token]),
            acme.ask("PATCH", f"/tokens/{stored}", {"containers": [path]}),
            acme.ask("GET", f"/tokens?container={path}"),
            acme.ask("POST", "/tokens/search", {"query": f"data:x AND container:{path}"}),
            acme.ask(
                "POST",
                "/applications",
                {"name": "x", "kind": "private", "grants": grants},
                key=manager,
            ),
            acme.ask("PATCH", application, {"grants": grants}, key=manager),
        ]

    assert {answer.status // 100 for answer in asked(fits)} == {2}
    for answer in asked(longer):
        assert answer.status == 400
        assert rule in str(answer.body["errors"])
    with pytest.raises(InputError, match=rf"^grants\[0\].container = <str> {rule}$"):
        acme.engine.create_application(acme.tenant, "x", grants=[(longer, set())])
    with pytest.raises(InputError, match="default_card = '/pci/high/' must hold at most 9"):
        deploy(tokens={"container_limit": 9, "container_default_token": "/general/"})
    assert normal_container("/" + 398 * "a" + "/", Profile().tokens.container_limit) is not None
    assert normal_container("/" + 399 * "a" + "/", Profile().tokens.container_limit) is None
