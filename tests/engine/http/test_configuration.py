"""`serve --config`: what the file says is what is served, again and again with the same store."""

from __future__ import annotations

import base64
import json
import os
import tomllib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from engine import Engine, InputError, ManualClock, ModelWorld, Profile
from engine.http import configuration
from engine.http.configuration import Made, load, load_runtime, loads, provision, read_master_key
from engine.model import Application, Key, Tenant
from engine.store import SqliteStore
from tests.engine.http.live import Live, served

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "bad_serve"
FILES = sorted(FOLDER.glob("*.toml"))

GOOD = """
store = "memory"
[[tenants]]
name = "acme"
kind = "test"
settings = { deduplicate_tokens = true }
quotas = { "CVC Retention" = "3s", "Tokenize Limit" = 7 }

[[applications]]
name = "backend"
tenant = "acme"
kind = "private"
grants = [ { container = "/pci/", permissions = ["token:create"] } ]
keys = ["key_of_the_backend_1"]

[[applications]]
name = "shop"
tenant = "acme"
kind = "public"
"""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_bad_file_is_one_line_with_its_place(file: Path) -> None:
    first = file.read_text("utf-8").splitlines()[0]
    expected = first.removeprefix("#! ").replace("FOLDER", str(FOLDER))
    with pytest.raises(InputError) as caught:
        load(file)
    assert str(caught.value) == f"{file}{expected}"


def test_two_fixtures_never_show_the_same_message() -> None:
    first_lines = [file.read_text("utf-8").splitlines()[0] for file in FILES]
    assert len(set(first_lines)) == len(first_lines) > 15


def _state(engine: Engine) -> tuple[list[Tenant], list[Application]]:
    store = engine.services.store
    with store.transaction(write=False):
        tenants = list(store.tenants())
        return tenants, [a for t in tenants for a in store.list(Application, t.id)]


def test_a_file_makes_tenants_applications_and_keys() -> None:
    # QUO-TENANT, D-GRANT, D-KEY
    engine = Engine(seed=7)
    made = provision(engine, *loads(GOOD))
    (tenant,), applications = _state(engine)
    assert (tenant.name, tenant.kind) == ("acme", "test")
    assert tenant.quotas["CVC Retention"] == 3_000_000_000
    assert (tenant.quotas["Tokenize Limit"], tenant.quotas["Detokenize Limit"]) == (7, 5)
    assert tenant.settings == {"deduplicate_tokens": True}
    assert [(a.name, a.kind) for a in applications] == [("backend", "private"), ("shop", "public")]
    # The backend brings its key; the shop's was made, and is shown this once.
    assert [one.application.name for one in made] == ["shop"]
    assert made[0].text.startswith("key_test_us_pub_")
    assert "key_test" not in repr(made)


def test_the_same_file_again_makes_nothing_twice() -> None:
    engine = Engine(seed=7)
    provision(engine, *loads(GOOD))
    before = _state(engine)
    assert provision(engine, *loads(GOOD)) == []
    assert _state(engine) == before


def test_a_changed_file_changes_what_it_names_and_leaves_the_rest() -> None:
    # D-QUOTA-CHANGE
    engine = Engine(seed=7)
    provision(engine, *loads(GOOD))
    other = engine.create_tenant("other")
    changed = GOOD.replace('"Tokenize Limit" = 7', '"Tokenize Limit" = 9').replace("/pci/", "/")
    provision(engine, *loads(changed))
    tenants, applications = _state(engine)
    found = {tenant.name: tenant for tenant in tenants}
    assert found.keys() == {"acme", "other"}
    assert found["acme"].quotas["Tokenize Limit"] == 9
    assert applications[0].grants[0].container == "/"
    assert engine.tenant(other) == other


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda text: text.replace('kind = "test"', 'kind = "production"'),
            (
                "serve.toml:5:8: tenants[0].kind = \"production\" must stay 'test', as it is in "
                "the store; take a new name"
            ),
        ),
        (
            lambda text: text.replace('kind = "public"', 'kind = "private"'),
            (
                "serve.toml:19:8: applications[1].kind = \"private\" must stay 'public', as it is "
                "in the store; take a new name"
            ),
        ),
        (
            lambda text: text.replace(
                '"public"\n', '"public"\nkeys = ["key_of_the_backend_1"]\n'
            ).replace('keys = ["key_of_the_backend_1"]', "", 1),
            (
                "serve.toml:20:9: applications[1].keys[0] must not be the key of another "
                "application of the store"
            ),
        ),
        (
            lambda text: text.replace("deduplicate_tokens", "deduplicate"),
            (
                "serve.toml:3:1: setting = 'deduplicate' does not exist; "
                "did you mean 'deduplicate_tokens'?"
            ),
        ),
        (
            lambda text: text.replace('"Tokenize Limit" = 7', '"Rate Limit" = "Night"'),
            "serve.toml:3:1: quota Rate Limit = 'Night' must name a limit table; known: Default",
        ),
        (
            lambda text: text.replace("key_of_the_backend_1", "short"),
            "serve.toml:9:1: a key's own text must hold at least 16 printable ASCII characters",
        ),
    ],
    ids=["tenant kind", "application kind", "key", "setting", "table", "short key"],
)
def test_what_does_not_fit_the_store_is_named(change: Callable[[str], str], message: str) -> None:
    engine = Engine(seed=7)
    provision(engine, *loads(GOOD))
    with pytest.raises(InputError) as caught:
        provision(engine, *loads(change(GOOD)))
    assert str(caught.value) == message


def test_the_schema_ships_and_accepts_what_the_reader_accepts() -> None:
    shipped = Path(configuration.__file__).with_name("serve.schema.json")
    assert json.loads(shipped.read_text("utf-8")) == configuration.schema()
    validator = Draft202012Validator(configuration.schema())
    validator.validate(tomllib.loads(GOOD))
    assert not validator.is_valid({"stroe": "memory"})


def test_the_shared_example_is_read(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = repository.parent / "shared" / "examples" / "serve.toml"
    if not file.is_file():
        pytest.skip("the shared examples are not beside this checkout")
    monkeypatch.setenv("TOLLGATE_MASTER_KEY", "00" * 32)
    monkeypatch.setenv("ACME_BACKEND_KEY", "key_of_the_acme_backend")
    config, document = load(file)
    assert config.store == "tokens.sqlite"
    assert config.allowed_destinations == ("https://api.example.com",)
    assert "key_of" not in repr(config)
    assert provision(Engine(seed=7), config, document) == []


def test_a_master_key_is_hex_or_base64_of_32_bytes() -> None:
    key = bytes(range(1, 33))
    plain = base64.b64encode(key).decode()
    for text in (key.hex(), plain, plain.rstrip("="), base64.urlsafe_b64encode(key).decode()):
        assert read_master_key(f" {text}\n") == key
    for text in ("", "00" * 31, "00" * 33, "z" * 64, "not a key"):
        assert read_master_key(text) is None


def test_a_runtime_is_a_function_that_can_be_imported() -> None:
    found: object = load_runtime("os.path:basename")
    assert found is os.path.basename
    for name in ("no.such.module:f", "os.path:nothing", "os:sep"):
        with pytest.raises(InputError, match=rf"^reactor_runtime = '{name}' must name a function"):
            load_runtime(name)


def test_a_served_file_prints_the_keys_that_it_made_once(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(GOOD, encoding="utf-8")
    with Live("--config", str(file)) as live:
        (line,) = live.lines[1:-1]
        assert line["role"] == "shop"
        key = "key_of_the_backend_1"
        body = {"type": "token", "data": "x", "containers": ["/pci/"]}
        assert live.ask("POST", "/tokenize", key=key, json=body).status_code == 200
        assert live.ask("POST", "/tokenize", key=key, json=["x"]).status_code == 403
        assert live.ask("POST", "/tokenize", key=line["key"], json=["x"]).status_code == 403


def test_a_file_names_destinations_a_runtime_and_tables(tmp_path: Path) -> None:
    # QUO-RATE: a tenant's Rate Limit quota names another table
    (tmp_path / "night.toml").write_text(
        '[[rule]]\nid = "OWN-NIGHT"\nrate = "1/1h"\ncounter = "key"\n', encoding="utf-8"
    )
    more = 'reactor_runtime = "textwrap:dedent"\nlimit_tables = { night = "night.toml" }\n'
    with served(tmp_path, more=more) as live:
        made = live.ask("POST", "/reactors", json={"name": "r", "code": "  x"}).json()
        # textwrap.dedent takes one argument, so the code fails, which is its own fault.
        answer = live.ask("POST", f"/reactors/{made['id']}/react", json={"args": {}})
        assert (answer.status_code, answer.json()["detail"]) == (502, "The code failed.")


def test_a_table_of_ones_own_is_in_force_for_its_tenant(tmp_path: Path) -> None:
    (tmp_path / "night.toml").write_text(
        '[[rule]]\nid = "OWN-NIGHT"\nrate = "1/1h"\ncounter = "key"\n', encoding="utf-8"
    )
    file = tmp_path / "serve.toml"
    text = GOOD.replace('"Tokenize Limit" = 7', '"Rate Limit" = "night"')
    file.write_text('limit_tables = { night = "night.toml" }\n' + text, encoding="utf-8")
    with Live("--config", str(file)) as live:
        statuses = [
            live.ask("POST", "/tokenize", key="key_of_the_backend_1", json=["x"]).status_code
            for _ in range(2)
        ]
    assert statuses == [403, 429]


def test_a_made_key_hides_its_text() -> None:
    engine = Engine(profile=Profile(), seed=7)
    tenant = engine.create_tenant("a")
    made = Made(engine.create_application(tenant, "b"), tenant, "key_secret")
    assert "key_secret" not in repr(made)


# --- a configuration of many rows ----------------------------------------------------------------


ROWS = 60


def _text(*, tenants: int, applications: int) -> str:
    lines = [f'[[tenants]]\nname = "t{number}"' for number in range(tenants)]
    lines += [
        f'[[applications]]\nname = "a{number}"\ntenant = "t{number % tenants}"'
        for number in range(applications)
    ]
    return "\n".join(lines)


@pytest.mark.parametrize("tenants", [1, ROWS])
def test_quo_tenant_a_tenants_rows_are_asked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tenants: int
) -> None:
    """QUO-TENANT: two thousand applications would hold a server's start up for a minute."""
    store = SqliteStore(tmp_path / "store.sqlite")
    engine = Engine(world=ModelWorld(clock=ManualClock()), store=store, master_key=b"m" * 32)
    lists: Counter[type] = Counter()
    usual = store.list

    def counted(kind: Any, *rest: Any, **more: Any) -> Any:
        lists[kind] += 1
        return usual(kind, *rest, **more)

    monkeypatch.setattr(store, "list", counted)
    made = []
    for _ in range(2):  # the second time everything is there
        lists.clear()
        made.append(len(provision(engine, *loads(_text(tenants=tenants, applications=ROWS)))))
        del lists[Tenant]  # all at once
        assert lists == {Application: tenants, Key: tenants}
    assert made == [ROWS, 0]
    engine.close()


def test_an_application_whose_name_is_there_twice_is_the_oldest() -> None:
    """Names are unique in a file, not in a store; the file's means the one that was first."""
    engine = Engine(seed=7)
    provision(engine, *loads(_text(tenants=1, applications=1)))
    with engine.services.store.transaction(write=False):
        (tenant,) = engine.services.store.tenants()
    second = engine.create_application(tenant, "a0", "public")
    assert provision(engine, *loads(_text(tenants=1, applications=1))) == []
    with engine.services.store.transaction(write=False):
        kinds = [each.kind for each in engine.services.store.list(Application, tenant.id)]
        assert sorted(kinds) == ["private", "public"]
        assert engine.services.store.get(Application, second.id) == second


def test_a_tenant_that_is_there_twice_is_named_with_its_place() -> None:
    text = _text(tenants=3, applications=1) + '\n[[tenants]]\nname = "t1"\n'
    with pytest.raises(InputError, match=r"^serve\.toml:11:8: .*must be unique"):
        loads(text)
