"""Who may do what to whose: every operation × key × place, and attacks on the one rule (D-RIGHTS).

A row names an operation; an operation without its row fails `test_every_operation_has_its_row`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from engine import Engine, ManualClock, MemoryStore, ModelWorld, Profile, SqliteStore
from engine.identity import PERMISSIONS
from engine.model import Application, ApplicationKind, KeptAnswer
from engine.resources import OPERATIONS
from engine.resources.operation import Operation
from tests.engine.deployment import Deployment
from tests.engine.resources.outside import Outside

TOKEN = {"type": "token", "data": "x"}
PROXY = {"name": "p", "destination_url": "https://api.example.com"}


class Row(NamedTuple):
    """One operation.

    elsewhere: its status for a key whose right lies in another container. body: what is sent.
    """

    elsewhere: int
    body: Any = None


MATRIX: dict[str, Row] = {
    "tokenize": Row(403, {"a": "x"}),
    "create_token": Row(403, TOKEN),
    "list_tokens": Row(200),
    "search_tokens": Row(200, {"query": "data:x"}),
    "get_token": Row(403),
    "patch_token": Row(403, {"metadata": {"a": "b"}}),
    "delete_token": Row(403),
    "detokenize": Row(403, {"a": "{{ token }}"}),
    "create_token_intent": Row(201, TOKEN),
    "get_token_intent": Row(200),
    "delete_token_intent": Row(204),
    "list_logs": Row(200),
    "get_tenant": Row(200),
    "create_application": Row(
        403,
        {
            "name": "a",
            "kind": "private",
            "grants": [{"container": "/general/", "permissions": ["token:create"]}],
        },
    ),
    "list_applications": Row(200),
    "get_application": Row(200),
    "patch_application": Row(403, {"name": "b"}),
    "delete_application": Row(403),
    "create_application_key": Row(403),
    "list_application_keys": Row(200),
    "delete_application_key": Row(403),
    "create_encryption_key": Row(201),
    "list_encryption_keys": Row(200),
    "get_encryption_key": Row(200),
    "delete_encryption_key": Row(204),
    "create_reactor": Row(201, {"name": "r", "code": "c"}),
    "list_reactors": Row(200),
    "get_reactor": Row(200),
    "patch_reactor": Row(200, {"name": "s"}),
    "delete_reactor": Row(204),
    "invoke_reactor": Row(200, {"args": 1}),
    "create_proxy": Row(201, PROXY),
    "list_proxies": Row(200),
    "get_proxy": Row(200),
    "patch_proxy": Row(200, {"name": "q"}),
    "delete_proxy": Row(204),
    "create_account_updater_job": Row(201),
    "list_account_updater_jobs": Row(200),
    "get_account_updater_job": Row(200),
    "get_account_updater_result": Row(200),
}
WITHOUT_A_KEY = {"invoke_proxy", "upload_batch_file"}
MANAGED = {"create_application", "create_application_key"}
"""What management applications alone do, or what others do only by rights of their own."""


@pytest.fixture
def made(acme: Deployment) -> dict[str, str]:
    """One of everything in /general/, by the first segment of its paths."""
    _, key = acme.principal(set(PERMISSIONS))

    def make(path: str, body: Any = None) -> Any:
        answer = acme.ask("POST", path, body, key=key)
        assert answer.status == 201, answer.body
        return answer.body

    job = make("/account-updater/jobs")
    rows = b"token,expiration_year,expiration_month\n"
    assert acme.ask("PUT", job["upload_url"], rows, key=None).status == 204
    acme.clock.advance_ns("60s")
    application, _ = acme.principal({"token:read"}, container="/general/")
    return {
        "tokens": make("/tokens", TOKEN)["id"],
        "token-intents": make("/token-intents", TOKEN)["id"],
        "reactors": make("/reactors", MATRIX["create_reactor"].body)["id"],
        "proxies": make("/proxies", PROXY)["id"],
        "account-updater": job["id"],
        "applications": application.id,
        "key_id": acme.engine.create_key(application).key_id,
        "keys": make("/keys")["id"],
    }


def test_every_operation_has_its_row() -> None:
    assert {each.name for each in OPERATIONS} - WITHOUT_A_KEY == set(MATRIX)


@pytest.mark.parametrize(
    "operation", [each for each in OPERATIONS if each.name in MATRIX], ids=lambda each: each.name
)
def test_d_rights_each_operation_for_each_key_at_each_place(
    acme: Deployment, made: dict[str, str], operation: Operation
) -> None:
    """AUTH-CREATE, D-GRANT, D-RIGHTS: 401, 403, 404 in another tenant, elsewhere, then the 2xx."""
    row, right = MATRIX[operation.name], operation.permission
    assert right is not None
    collection = operation.path.split("/")[1]
    path = operation.path.replace("{id}", made.get(collection, ""))
    path = path.replace("{key_id}", made["key_id"])
    body = row.body
    if operation.name == "detokenize":
        body = {"a": f"{{{{ {made['tokens']} }}}}"}
    kind: ApplicationKind = "management" if operation.name in MANAGED else "private"
    every = {r for r in PERMISSIONS if kind == "private" or not r.startswith("token")}

    def status(rights: set[str], **more: Any) -> int:
        key = acme.principal(rights, kind, **more)[1] if rights else None
        return acme.ask(operation.method, path, body, key=key).status

    also = {f"encryption-{right}", right.removeprefix("encryption-")}
    assert status(set()) == 401
    assert status(every - {right} - also) == 403
    if "{id}" in operation.path:
        assert status(every, tenant=acme.engine.create_tenant("Other")) == 404
    assert status({right}, container="/x/") == row.elsewhere
    if row.elsewhere == 204:  # it is gone now
        return
    assert status({right}) == operation.success_status


# --- proxies and reactors: what runs later -------------------------------------------------------


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def shop(outside: Outside) -> dict[str, str]:
    """A proxy without authentication, whose application may use the tokens of /general/."""
    right = {"proxy:create", "proxy:update", "token:use"}
    application, key = outside.principal(right, container="/general/")
    answer = outside.ask(
        "POST", "/proxies", {**PROXY, "host": "pay.example", "require_auth": False}, key=key
    )
    token = outside.tokenize(["secret"])[0]
    return {
        "path": f"/proxies/{answer.body['id']}",
        "text": answer.body["key"],
        "token": token,
        "key": key,
        "application": application.id,
    }


def _sent(outside: Outside, text: str, token: str) -> Any:
    return outside.ask(
        "POST",
        "/proxy",
        f'{{"a": "{{{{ {token} }}}}"}}'.encode(),
        key=None,
        proxy_key=text,
        headers={"Content-Type": "application/json"},
    )


@pytest.mark.parametrize(
    "change",
    [
        {"destination_url": "https://thief.example.com"},
        {"host": "thief.example"},
        {"host": None},
        {"require_auth": False},
        {"response_transform": {"code": "upper"}},
        {"request_transform": {"code": "upper"}},
    ],
)
@pytest.mark.parametrize("asks_for_a_key", [False, True])
def test_d_rights_nobody_moves_a_proxy_that_reads_what_they_may_not(
    outside: Outside, shop: dict[str, str], change: dict[str, Any], *, asks_for_a_key: bool
) -> None:
    """D-RIGHTS: proxy:update on /x/ alone gave everybody the plaintext of /general/."""
    if asks_for_a_key:
        outside.principal({"proxy:invoke", "token:use"}, container="/general/")
        before = outside.ask("PATCH", shop["path"], {"require_auth": True}, key=shop["key"])
        assert before.status == 200
    thief = outside.key_with("proxy:update", container="/x/")
    answer = outside.ask("PATCH", shop["path"], change, key=thief)
    assert (answer.status, answer.body["clause"]) == (403, "D-RIGHTS")
    peer = outside.key_with("proxy:update", "token:use", container="/")
    assert outside.ask("PATCH", shop["path"], change, key=peer).status == 200


def test_d_rights_a_proxy_runs_with_the_rights_of_whoever_configured_it_last(
    outside: Outside, shop: dict[str, str]
) -> None:
    assert _sent(outside, shop["text"], shop["token"]).status == 200
    application, peer = outside.principal({"proxy:update", "token:use"})
    assert outside.ask("PATCH", shop["path"], {"require_auth": False}, key=peer).status == 200
    assert _sent(outside, shop["text"], shop["token"]).status == 200
    outside.engine.change_application(application, grants=[("/x/", {"proxy:update"})])
    assert _sent(outside, shop["text"], shop["token"]).status == 403
    outside.engine.delete_application(application)
    refused = _sent(outside, shop["text"], shop["token"])
    assert (refused.status, refused.body["clause"]) == (403, "D-RIGHTS")


def test_d_rights_a_hostname_is_not_taken_by_deleting_its_proxy(
    outside: Outside, shop: dict[str, str]
) -> None:
    """D-HOST: another proxy could have the name afterwards."""
    thief = outside.key_with("proxy:delete", "proxy:create", container="/x/")
    assert outside.ask("DELETE", shop["path"], key=thief).status == 403
    peer = outside.key_with("proxy:delete", "token:use")
    assert outside.ask("DELETE", shop["path"], key=peer).status == 204


def _reactor(outside: Outside, key: str) -> str:
    made = outside.ask("POST", "/reactors", {"name": "r", "code": "c"}, key=key).body
    return f"/reactors/{made['id']}"


def test_d_rights_nobody_changes_code_that_runs_with_more_rights(outside: Outside) -> None:
    owner = outside.principal(
        {"reactor:create", "reactor:update", "token:use"}, container="/general/"
    )[1]
    path = _reactor(outside, owner)
    thief = outside.key_with("reactor:update", container="/x/")
    for change in ({"code": "d"}, {"configuration": {"url": "https://thief.example.com"}}):
        answer = outside.ask("PATCH", path, change, key=thief)
        assert (answer.status, answer.body["clause"]) == (403, "D-RIGHTS")
        assert outside.ask("PATCH", path, change, key=owner).status == 200


@pytest.mark.parametrize("right", ["token:use", "token:create"])
@pytest.mark.parametrize("lacking", ["nobody", "caller", "configurer"])
def test_d_rights_a_reactor_runs_with_what_its_configurer_and_its_caller_hold(
    outside: Outside, right: str, lacking: str
) -> None:
    """A key without token:use would read by another's reactor, or have others read for it."""
    every = {"reactor:create", "reactor:update", "reactor:invoke", "token:use", "token:create"}
    configurer = outside.key_with(*(every - {right} if lacking == "configurer" else every))
    caller = outside.key_with(*(every - {right} if lacking == "caller" else every))
    path = _reactor(outside, configurer)
    token = outside.tokenize(["secret"])[0]
    args: Any = f"{{{{ {token} }}}}" if right == "token:use" else {"tokenize": ["x"]}
    answer = outside.ask("POST", f"{path}/react", {"args": args}, key=caller)
    assert answer.status == (200 if lacking == "nobody" else 403), answer.body
    if lacking == "configurer":
        assert answer.body["clause"] == "D-RIGHTS"


def test_d_rights_a_reactor_loses_its_rights_with_its_configurer(outside: Outside) -> None:
    application, key = outside.principal({"reactor:create", "reactor:update", "reactor:invoke"})
    path = _reactor(outside, key)
    peer = outside.key_with("reactor:invoke", "reactor:update")
    assert outside.ask("POST", f"{path}/react", {"args": 1}, key=peer).status == 200
    outside.engine.delete_application(application)
    refused = outside.ask("POST", f"{path}/react", {"args": 1}, key=peer)
    assert (refused.status, refused.body["clause"]) == (403, "D-RIGHTS")
    assert outside.ask("PATCH", path, {"code": "d"}, key=peer).status == 200
    assert outside.ask("POST", f"{path}/react", {"args": 1}, key=peer).status == 200


# --- keys, grants and applications ---------------------------------------------------------------


def test_d_rights_api_keys_are_made_by_management_applications(acme: Deployment) -> None:
    """The right that encryption keys need made API keys of others too, which read more."""
    maker = acme.key_with("key:create", "encryption-key:create")
    path = f"/applications/{acme.application.id}/keys"
    answer = acme.ask("POST", path, key=maker)
    assert (answer.status, answer.body["clause"]) == (403, "D-RIGHTS")
    assert acme.ask("POST", "/keys", key=maker).status == 201
    manager = acme.principal({"key:create"}, "management")[1]
    assert acme.ask("POST", path, key=manager).status == 201
    assert acme.ask("POST", "/keys", key=manager).status == 403
    earlier = acme.key_with("key:create")  # a grant made before the right had its own name
    assert acme.ask("POST", "/keys", key=earlier).status == 201


def test_d_rights_a_private_application_gives_only_what_it_holds(acme: Deployment) -> None:
    rights = ("application:create", "application:update", "token:create")
    giver = acme.key_with(*rights)

    def give(right: str) -> int:
        grants = [{"container": "/", "permissions": [right]}]
        body = {"name": "a", "kind": "private", "grants": grants}
        return acme.ask("POST", "/applications", body, key=giver).status

    assert [give("token:create"), give("token:read")] == [201, 403]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PATCH", "/applications/{id}", {"grants": []}),
        ("PATCH", "/applications/{id}", {"name": "mine"}),
        ("DELETE", "/applications/{id}", None),
        ("DELETE", "/applications/{id}/keys/{key_id}", None),
    ],
)
def test_d_grant_scope_removing_is_scoped_as_giving_is(
    acme: Deployment, method: str, path: str, body: Any
) -> None:
    """D-RIGHTS, D-GRANT-SCOPE: a management key of /pci/ removed what lies on /."""
    rights = {"application:update", "application:delete", "key:delete"}
    for container, status in (("/pci/", 403), ("/", None)):
        application, _ = acme.principal({"token:create"})
        key_id = acme.engine.create_key(application).key_id
        manager = acme.principal(rights, "management", container=container)[1]
        place = path.replace("{id}", application.id).replace("{key_id}", key_id)
        answer = acme.ask(method, place, body, key=manager)
        assert answer.status == (status or (200 if method == "PATCH" else 204))


# --- kept answers --------------------------------------------------------------------------------


def _with_key(acme: Deployment, path: str, body: Any, **more: Any) -> Any:
    headers = {"Idempotency-Key": "k-1", "Content-Type": "application/json"}
    return acme.ask("POST", path, body, headers=headers, **more)


def _take_rights(acme: Deployment, application: Application) -> None:
    acme.engine.change_application(application, grants=[])


def _narrow_rights(acme: Deployment, application: Application) -> None:
    acme.engine.change_application(application, grants=[("/x/", {"token:create", "key:create"})])


@pytest.mark.parametrize("change", [_take_rights, _narrow_rights])
def test_d_idempotency_rights_come_before_a_kept_answer(
    acme: Deployment, change: Callable[[Deployment, Application], None]
) -> None:
    """D-RIGHTS: an answer that was kept came back after all rights were gone."""
    application, key = acme.principal({"token:create"})
    manager, manager_key = acme.principal({"key:create"}, "management")
    path = f"/applications/{acme.application.id}/keys"
    assert _with_key(acme, "/tokenize", ["x"], key=key).status == 200
    assert _with_key(acme, path, {}, key=manager_key).status == 201
    change(acme, application)
    acme.engine.change_application(manager, grants=[("/x/", {"key:create"})])
    assert _with_key(acme, "/tokenize", ["x"], key=key).status == 403
    assert _with_key(acme, path, {}, key=manager_key).status == 403


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_d_idempotency_a_deletion_deletes_kept_answers(kind: str, tmp_path: Path) -> None:
    """D-RIGHTS: a deleted token was shown again, and a key after its application was gone."""
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "a.db")
    world = ModelWorld(clock=ManualClock())
    with Engine(world=world, store=store, master_key=bytes(32)) as engine:
        acme = Deployment(engine)
        tokens = _with_key(acme, "/tokenize", ["x", "y"]).body
        assert _with_key(acme, "/tokenize", ["x", "y"]).body == tokens
        assert acme.ask("DELETE", f"/tokens/{tokens[1]}").status == 204
        again = _with_key(acme, "/tokenize", ["x", "y"]).body
        assert not set(again) & set(tokens)
        manager = acme.principal({"key:create", "key:delete"}, "management")[1]
        application, _ = acme.principal({"token:create"})
        path = f"/applications/{application.id}/keys"
        made = _with_key(acme, path, {}, key=manager).body
        assert _with_key(acme, path, {}, key=manager).body == made
        assert acme.ask("DELETE", f"{path}/{made['id']}", key=manager).status == 204
        assert _with_key(acme, path, {}, key=manager).body["id"] != made["id"]
        engine.delete_application(application)
        with store.transaction(write=False):
            kept = store.list(KeptAnswer, acme.tenant.id)
        assert [answer.entity_ids for answer in kept] == [tuple(again)]
        assert _with_key(acme, path, {}, key=manager).status == 404


# --- errors --------------------------------------------------------------------------------------

SECRET = "4242424242424241"


@pytest.mark.parametrize(
    ("method", "path", "body", "pointer"),
    [
        ("POST", "/tokenize", {**TOKEN, "metadata": {SECRET: 1}}, "/metadata/0"),
        ("POST", "/tokenize", {"name": "x", SECRET: 1}, "/1"),
        ("POST", "/tokenize", {SECRET: {"type": "card", "data": {}}}, "/0/data/number"),
        ("POST", "/tokenize", {**TOKEN, SECRET: 1}, "/2"),
        ("POST", "/tokenize", {"type": "card", "data": {SECRET: 1, "number": 1}}, "/data/0"),
        ("POST", "/tokens", {**TOKEN, SECRET: 1}, "/2"),
        ("POST", "/detokenize", {SECRET: "{{ token: x }}"}, "/0"),
        ("POST", "/applications", {"name": "a", "kind": "private", SECRET: 1}, "/2"),
        ("POST", "/reactors", {"name": "a", "code": "b", "configuration": {SECRET: 1}}, None),
        ("GET", f"/tokens?{SECRET}=1", None, "/0"),
    ],
)
def test_d_problem_no_error_quotes_a_members_name(
    acme: Deployment, method: str, path: str, body: Any, pointer: str | None
) -> None:
    """D-PROBLEM: a name may be a card number; its place is its index in the object."""
    key = acme.key_with(*PERMISSIONS)
    problem = acme.ask(method, path, body, key=key)
    assert problem.status == 400
    assert SECRET not in str(problem.body)
    assert (pointer or "/configuration/0") in problem.body["errors"]


def test_d_problem_an_invoked_proxy_and_code_quote_no_name(outside: Outside) -> None:
    made = outside.ask("POST", "/proxies", {**PROXY, "require_auth": True}).body
    headers = {"Content-Type": "application/json"}
    body = b'{"%s": "{{ token: x }}"}' % SECRET.encode()
    answer = outside.ask("POST", "/proxy", body, proxy_key=made["key"], headers=headers)
    assert (answer.status, list(answer.body["errors"])) == (400, ["/0"])


# --- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/base/../admin",
        "/base/..;/admin",
        "/base/%252e%252e/admin",
        "/base/%00",
        "/a%0d%0ab",
        "/..",
    ],
)
def test_d_proxy_a_destination_is_checked_as_a_request_path_is(outside: Outside, path: str) -> None:
    body = {"name": "p", "destination_url": f"https://api.example.com{path}"}
    answer = outside.ask("POST", "/proxies", body)
    assert (answer.status, list(answer.body["errors"])) == (400, ["/destination_url"])
    fine = {"name": "p", "destination_url": "https://api.example.com/a..b/%2e/..c"}
    assert outside.ask("POST", "/proxies", fine).status == 201


# --- what a management key may give --------------------------------------------------------------


EVERY = {"application:create", "application:update", "key:create"}


def _body(container: str, *rights: str, kind: str = "private") -> dict[str, Any]:
    grants = [{"container": container, "permissions": list(rights)}]
    return {"name": "shop", "kind": kind, "grants": grants}


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
