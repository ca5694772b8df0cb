"""Calls from Python: short ways to ask, and one line for what cannot be (InputError).

A mistake in a call of the public interface is one line that says the way out, never an
AttributeError or a TypeError from inside, and changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import conformance
import engine
import simulator
from engine import (
    CallAnswer,
    Engine,
    InputError,
    Limiter,
    LimitTable,
    ManualClock,
    MemoryStore,
    ModelWorld,
    Profile,
    Request,
    Rule,
    SqliteStore,
    Subject,
    VirtualLoop,
    choices,
    split_batch,
)
from engine.limits import Match
from engine.profile import LimitsProfile
from tests.engine.deployment import Deployment

TEN_S = 10_000_000_000
TABLE = LimitTable.default()


def test_ask_is_handle_from_an_address_of_its_own(acme: Deployment) -> None:
    answer = acme.engine.ask("POST", "/tokenize", {"name": "Ada"}, key=acme.key)
    assert answer.status == 200
    assert acme.engine.ask("GET", f"/tokens/{answer.body['name']}", key=acme.key).status == 200
    raw = {"Content-Type": "text/plain"}
    assert acme.engine.ask("POST", "/tokenize", b"{}", key=acme.key, headers=raw).status == 415
    elsewhere = acme.engine.ask("GET", "/tokens", key=acme.key, ip="203.0.113.9")
    assert elsewhere.decision.counted == ("LIM-READ", "LIM-PRIVATE.key", "LIM-PRIVATE.ip", "LIM-IP")


def test_a_key_for_permissions_holds_them_in_one_container_and_no_other(acme: Deployment) -> None:
    key = acme.engine.key_for(acme.tenant, "token:create", container="/pci/")
    there, elsewhere = (
        acme.engine.ask(
            "POST", "/tokenize", {"type": "token", "data": "x", "containers": [path]}, key=key
        )
        for path in ("/pci/high/", "/general/")
    )
    assert (there.status, elsewhere.status) == (200, 403)
    with pytest.raises(InputError, match="token:creat"):
        acme.engine.key_for(acme.tenant, "token:creat")


def test_every_choice_of_the_profile_is_listed_with_the_values_it_may_have() -> None:
    changed = Profile().replace(limits={"algorithm": "gcra"})
    differing = [choice for choice in choices() if choice.of(changed) != choice.default]
    assert [choice.path for choice in differing] == ["limits.algorithm"]
    assert differing[0].listed[0] == "sliding-log"
    assert "gcra" in differing[0].listed


# --- mistakes ------------------------------------------------------------------------------------

MISTAKES: list[tuple[Callable[[Any], Any], str]] = [
    # requests
    (lambda a: a.engine.handle("POST /tokenize"), "request = <str> must be a Request; "),
    (lambda a: a.engine.ask("POST", None), "path = None must be a text"),
    (lambda a: a.engine.ask(5, "/tokenize"), "method = 5 must be a text"),
    (lambda a: Request("GET", "/tokens", ip=7), "ip = 7 must be a text"),  # type: ignore[arg-type] # reason: the mistake
    (lambda a: a.engine.ask("GET", "/tokens", key=b"k"), "key = <bytes> must be a text"),
    (
        lambda a: a.engine.ask("GET", "/tokens", headers=["SVC-API-KEY"]),
        "headers = <list> must be a mapping of names to values",
    ),
    (
        lambda a: a.engine.ask("GET", "/tokens", headers={"svc-api-key": a.key}),
        "headers hold SVC-API-KEY; give its value as key= instead",
    ),
    (
        lambda a: a.engine.ask("GET", "/proxy", headers={"SVC-PROXY-KEY": a.key}),
        "headers hold SVC-PROXY-KEY; give its value as proxy_key= instead",
    ),
    # tenants, applications, keys
    (lambda a: a.engine.create_tenant(None), "tenant name = None must be a text"),
    (lambda a: a.engine.create_tenant("B", kind=["test"]), "kind = <list> must be one of test, "),
    (lambda a: a.engine.create_tenant("B", quotas=["x"]), "quotas = <list> must be a mapping"),
    (lambda a: a.engine.create_tenant("B", settings=True), "settings = True must be a mapping"),
    (lambda a: a.engine.create_application("no-id", "x"), "tenant = 'no-id' does not exist"),
    (lambda a: a.engine.create_application(None, "x"), "tenant = None must be a Tenant or its id"),
    (lambda a: a.engine.create_application(a.tenant, "x", []), "kind = <list> must be one of "),
    (
        lambda a: a.engine.create_application(a.tenant, "x", grants={"/": {"token:create"}}),
        'grants = <dict> must be pairs such as [("/", {"token:create"})]',
    ),
    (
        lambda a: a.engine.create_application(a.tenant, "x", grants=("/", {"token:create"})),
        "grants[0] = <str> must be a pair; write pairs such as ",
    ),
    (
        lambda a: a.engine.create_application(a.tenant, "x", grants=[("/",)]),
        "grants[0] = <tuple> must be a pair; write pairs such as ",
    ),
    (
        lambda a: a.engine.create_application(a.tenant, "x", grants=[("/", "token:create")]),
        "grants[0].permissions = <str> must be a set of permissions such as ",
    ),
    (
        lambda a: a.engine.create_application(a.tenant, "x", grants=[(5, ["token:create"])]),
        "grants[0].container = 5 must be a path such as '/pci/'",
    ),
    (
        lambda a: a.engine.create_application(a.tenant, "x", grants=[("/", [5])]),
        "grants[0].permissions = <list> must be a set of permissions such as ",
    ),
    (
        lambda a: a.engine.create_key(a.application.id),
        "application = <str> must be an Application, as create_application and applications ",
    ),
    (lambda a: a.engine.create_key(a.tenant), "application = <Tenant> must be an Application"),
    (lambda a: a.engine.create_key(a.application, text=5), "text = 5 must be a key's own text"),
    (lambda a: a.engine.delete_key("key_prod_us_pvt_11111111"), "key = <hidden> does not exist; "),
    (lambda a: a.engine.delete_key(None), "key = None must be a key's text, its id, or "),
    (lambda a: a.engine.applications(5), "tenant = 5 must be a Tenant or its id"),
    (lambda a: a.engine.keys(a.tenant.id), "application = <str> must be an Application"),
    (lambda a: a.engine.change_application(a.application, name=5), "application name = 5 must "),
    (lambda a: a.engine.rename_tenant(a.tenant, 5), "tenant name = 5 must be a text"),
    # quotas, settings, master keys
    (lambda a: a.engine.set_quota(5, "Tokenize Limit", 5), "tenant = 5 must be a Tenant or its id"),
    (lambda a: a.engine.set_quota(a.tenant, ["x"], 5), "quota = <list> must be a name in quotes"),
    (lambda a: a.engine.set_quota(a.tenant, "CVC Retention", 1.5), "quota CVC Retention = 1.5 "),
    (lambda a: a.engine.set_setting(a.tenant, None, on=True), "setting = None must be a name in "),
    (lambda a: a.engine.rotate_master_key("k" * 32), "master_key = <str> must be 32 bytes"),
    (lambda a: a.engine.tenant(None), "tenant = None must be a Tenant or its id"),
    # an engine
    (lambda a: Engine(profile="strict"), "profile = <str> must be a Profile"),  # type: ignore[arg-type] # reason: the mistake
    (lambda a: Engine(limits="limits.toml"), "limits = <str> must be a LimitTable, or a mapping"),  # type: ignore[arg-type] # reason: the mistake
    (lambda a: Engine(limits={"Default": 5}), "tables['Default'] = 5 must be a LimitTable"),  # type: ignore[dict-item] # reason: the mistake
    (lambda a: Engine(clock=0), "clock = 0 must be a clock such as ManualClock()"),  # type: ignore[arg-type] # reason: the mistake
    (lambda a: Engine(seed="seven"), "seed = <str> must be a whole number"),  # type: ignore[arg-type] # reason: the mistake
    (lambda a: Engine(store="a.sqlite"), "store = <str> must be a store such as SqliteStore(path)"),  # type: ignore[arg-type] # reason: the mistake
    (lambda a: Engine(world=ManualClock()), "world = <ManualClock> must be a World such as "),  # type: ignore[arg-type] # reason: the mistake
    (lambda a: Engine(region=5), "region = 5 must be a text such as 'us'"),  # type: ignore[arg-type] # reason: the mistake
    (lambda a: Engine(master_key="k" * 32), "master_key = <str> must be 32 bytes"),  # type: ignore[arg-type] # reason: the mistake
    # limits
    (lambda a: Limiter(TABLE, LimitsProfile()), "tables = <LimitTable> must be a mapping such as "),  # type: ignore[arg-type] # reason: the mistake
    (
        lambda a: Limiter({"Default": TABLE}, Profile()),  # type: ignore[arg-type] # reason: the mistake
        "profile = <Profile> must be a LimitsProfile; give Profile().limits",
    ),
    (
        lambda a: a.engine.limiter.decide(0, Request("GET", "/", ip="192.0.2.1")),
        "subject = <Request> must be a Subject, such as ",
    ),
    (lambda a: a.engine.limiter.status(0, None), "subject = None must be a Subject, such as "),
    (lambda a: TABLE[0], "limits[…] = 0 must be a rule's id, such as 'LIM-IP'"),  # type: ignore[index] # reason: the mistake
    (
        lambda a: TABLE.replace_rule("LIM-PUBLIC", block_ns="30"),
        "block_ns = '30' must name a unit; write \"30s\" for seconds",
    ),
    (lambda a: TABLE.replace_rule("LIM-PUBLIC", rate=50), "rate = 50 must be a rate such as "),
    (lambda a: TABLE.replace_rule("LIM-PUBLIC", match={}), "match = <dict> must be a Match"),
    (lambda a: TABLE.replace_rule("LIM-PUBLIC", counter="IP"), 'counter = "IP" must be one of '),
    (lambda a: TABLE.replace_rule("LIM-PUBLIC", burst_requests="3"), 'burst_requests = "3" must '),
    (lambda a: Match(resource="POST /tokens"), 'resource = "POST /tokens" must be an array'),  # type: ignore[arg-type] # reason: the mistake
    (lambda a: LimitTable([]), "rules = <list> must be a tuple of Rules"),  # type: ignore[arg-type] # reason: the mistake
    # the profile
    (
        lambda a: Profile(limits="gcra"),  # type: ignore[arg-type] # reason: the mistake
        "profile.limits = <str> must be a LimitsProfile; or use Profile().replace(limits={…})",
    ),
    (lambda a: Profile().replace(limits="gcra"), "profile.limits = <str> must be a mapping of "),  # type: ignore[arg-type] # reason: the mistake
    (
        lambda a: LimitsProfile(delay_bound_ns="10"),  # type: ignore[arg-type] # reason: the mistake
        "profile.limits.delay_bound_ns = '10' must name a unit; write",
    ),
    # clocks and worlds
    (lambda a: ManualClock(1.5), "start_ns = 1.5 must be whole nanoseconds or a duration such as "),  # type: ignore[arg-type] # reason: the mistake
    (lambda a: a.clock.advance_ns(0.5), "by_ns = 0.5 must be whole nanoseconds or a duration "),
    (lambda a: a.clock.advance_ns("soon"), "by_ns = 'soon' must be a duration such as"),
    (lambda a: VirtualLoop(5), "clock = 5 must be a ManualClock"),  # type: ignore[arg-type] # reason: the mistake
    (lambda a: VirtualLoop(a.clock).at(0, a.engine.submit), "coroutine = <method> must be a "),
    # files and stores
    (lambda a: SqliteStore(5), "path = 5 must be a file's path"),  # type: ignore[arg-type] # reason: the mistake
    (lambda a: list(split_batch("token\na")), "volume = <str> must be bytes, "),  # type: ignore[arg-type] # reason: the mistake
]


@pytest.mark.parametrize(("call", "text"), MISTAKES, ids=[text for _, text in MISTAKES])
def test_a_mistake_in_a_call_is_one_line(
    acme: Deployment, call: Callable[[Deployment], Any], text: str
) -> None:
    with pytest.raises(InputError) as error:
        call(acme)
    said = str(error.value)
    assert said.startswith(text), said
    assert "\n" not in said
    assert acme.key not in said
    assert acme.engine.tenants() == [acme.tenant]
    assert acme.engine.applications(acme.tenant) == [acme.application]
    assert len(acme.engine.keys(acme.application)) == 1


# --- what the operator made ----------------------------------------------------------------------


def test_a_key_is_revoked_by_its_text_its_id_or_its_record(acme: Deployment) -> None:
    """AUTH-HEADER: from the next request on it is unknown; twice is an error, never silence."""
    engine = acme.engine
    texts = [engine.create_key(acme.application) for _ in range(4)]
    stored = {key.id: key for key in engine.keys(acme.application)}
    names: list[Any] = [texts[0], str(texts[1]), texts[2].key_id, stored[texts[3].key_id]]
    for text, name in zip(texts, names, strict=True):
        acme.tokenize({"a": "b"}, key=text)
        assert engine.delete_key(name) == stored[text.key_id]
        acme.tokenize({"a": "b"}, key=text, status=401)
        with pytest.raises(InputError, match="key = <hidden> does not exist"):
            engine.delete_key(name)
    assert len(engine.keys(acme.application)) == 1


def test_what_the_operator_made_is_listed_and_changed(acme: Deployment) -> None:
    engine = acme.engine
    other = engine.create_tenant("Other")
    assert engine.tenants() == [acme.tenant, other]
    renamed = engine.rename_tenant(other, "Another")
    assert engine.tenant(other.id) == renamed
    assert renamed.name == "Another"

    poor = engine.create_application(acme.tenant, "till", grants=[("/pci/", {"token:create"})])
    key = engine.create_key(poor)
    assert engine.applications(acme.tenant.id) == [acme.application, poor]
    acme.tokenize({"a": "b"}, key=key, status=403)
    changed = engine.change_application(poor, name="shop", grants=[("/", {"token:create"})])
    acme.tokenize({"a": "b"}, key=key)
    assert engine.applications(acme.tenant)[1] == changed
    assert (changed.name, changed.kind, changed.id) == ("shop", poor.kind, poor.id)
    with pytest.raises(InputError, match="holds 'token:creat', which does not exist"):
        engine.change_application(poor, grants=[("/", {"token:creat"})])
    assert engine.applications(acme.tenant)[1] == changed

    engine.delete_application(poor)
    acme.tokenize({"a": "b"}, key=key, status=401)
    assert engine.applications(acme.tenant) == [acme.application]
    for call in (engine.delete_application, engine.keys, engine.create_key):
        with pytest.raises(InputError, match=r"application = '[0-9a-f-]+' does not exist"):
            call(poor)
    acme.tokenize({"a": "b"})


# --- durations -----------------------------------------------------------------------------------


def test_durations_are_texts_wherever_nanoseconds_are_taken(acme: Deployment) -> None:
    assert TABLE.replace_rule("LIM-PUBLIC", block_ns="30s")["LIM-PUBLIC"].block_ns == 3 * TEN_S
    rule = Rule(id="OWN-NIGHT", counter="ip", rate="5/10s", action="block", block_ns="1m")  # type: ignore[arg-type] # reason: texts become numbers
    assert (rule.limit_requests, rule.window_ns, rule.block_ns) == (5, TEN_S, 6 * TEN_S)
    profile = Profile().replace(limits={"delay_bound_ns": "20s"}, outside={"cold_start_ns": "1ms"})
    assert profile.limits.delay_bound_ns == 2 * TEN_S
    assert profile.outside.cold_start_ns == 1_000_000
    assert LimitsProfile(delay_bound_ns="10s") == LimitsProfile()  # type: ignore[arg-type] # reason: as above

    clock = ManualClock("10s")
    clock.advance_ns("1.5s")
    clock.advance_to_ns("1m")
    assert clock.now_ns == 6 * TEN_S
    loop = VirtualLoop(clock)
    started = loop.at("70s", acme.engine.submit(Request("GET", "/tokens", ip="192.0.2.1")))
    loop.run("65s")
    assert (clock.now_ns, started.done) == (65_000_000_000, False)
    loop.run()
    assert started.ended_ns == 7 * TEN_S

    limiter = Limiter({"Default": TABLE}, LimitsProfile())
    ada = Subject("POST", "/tokenize", "192.0.2.1", key_id="k", application_kind="public")
    for _ in range(51):
        decision = limiter.decide(0, ada)
    assert decision.outcome == "blocked"
    assert limiter.decide("5s", ada).outcome == "blocked"  # type: ignore[arg-type] # reason: as above
    room = limiter.status("5s", ada)  # type: ignore[arg-type] # reason: as above
    assert room is not None
    assert room.retry_after_s == 55
    assert limiter.decide("60s", ada).admitted  # type: ignore[arg-type] # reason: as above


def test_models_of_the_world_give_durations_as_texts() -> None:
    world = ModelWorld(
        destination=lambda _: ("2s", CallAnswer(200, {}, b"{}")), service_ns=lambda *_: "3s"
    )
    engine = Engine(world=world)
    app = engine.create_application(
        engine.create_tenant("Acme"), "shop", grants=[("/", {"proxy:create", "proxy:invoke"})]
    )
    key = engine.create_key(app)
    made = {"name": "p", "destination_url": "https://api.example.com", "require_auth": False}
    proxy_key = engine.ask("POST", "/proxies", made, key=key).body["key"]
    before_ns = engine.clock.now_ns
    assert engine.ask("GET", "/proxy", proxy_key=proxy_key).status == 200
    assert engine.clock.now_ns - before_ns == 2_000_000_000


# --- engines and stores that end -----------------------------------------------------------------


def test_an_engine_and_a_store_are_context_managers(tmp_path: Path) -> None:
    master_key = os.urandom(32)
    with Engine(store=SqliteStore(tmp_path / "a.sqlite"), master_key=master_key) as engine:
        engine.create_tenant("Acme")
    with SqliteStore(tmp_path / "a.sqlite") as store, store.transaction(write=False):
        assert [tenant.name for tenant in store.tenants()] == ["Acme"]
    with MemoryStore() as memory, memory.transaction(write=False):
        assert memory.tenants() == []


def test_a_seed_repeats_key_texts_and_fingerprints_too() -> None:
    """A seed is for simulation alone: nothing that it draws is secret."""

    def made(seed: int | None) -> tuple[str, str, str]:
        engine = Engine(seed=seed)
        app = engine.create_application(
            engine.create_tenant("Acme"), "shop", grants=[("/", {"token:create"})]
        )
        key = engine.create_key(app)
        body = {"type": "token", "data": "Ada", "fingerprint_expression": "{{ data }}"}
        record = engine.ask("POST", "/tokenize", body, key=key).body
        return str(key), record["id"], record["fingerprint"]

    assert made(7) == made(7)
    assert not set(made(7)) & set(made(8))
    assert not set(made(None)) & set(made(None))


def test_a_seeded_world_is_refused_with_a_kept_store(tmp_path: Path) -> None:
    """Its keys could be drawn again by whoever knows the seed."""
    with (
        SqliteStore(tmp_path / "a.sqlite") as store,
        pytest.raises(InputError, match="seed of the world is for simulation; leave it out"),
    ):
        Engine(world=ModelWorld(seed=7), store=store, master_key=os.urandom(32))


# --- names that are imported on demand -----------------------------------------------------------


@pytest.mark.parametrize("package", [engine, simulator, conformance])
def test_a_package_has_its_public_names_and_says_so_of_no_other(package: ModuleType) -> None:
    assert dir(package) == sorted(package.__all__)
    assert all(getattr(package, name) is getattr(package, name) for name in package.__all__)
    with pytest.raises(AttributeError, match=f"^module '{package.__name__}' has no attribute"):
        package.nothing_of_this_name  # noqa: B018 # reason: asking is what is tried
    assert not hasattr(package, "nothing_of_this_name")
