"""The target file: what it may say, what it must not, and that it keeps its secrets."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from conformance import starter as starter_module
from conformance import target as module
from conformance.starter import starter, write_starter
from conformance.target import ROLES, Target, TargetTenant
from engine import InputError
from engine.files import parse_toml

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "bad_target"
FILES = sorted(FOLDER.glob("*.toml"))
GOOD = """
base_url = "https://vault.example.com/v1"
forwarded = "X-Forwarded-For"
pacing = "100/1s"
timeout = "30s"
forbidden = ["DELETE /tokens/{id}"]
expected_failures = ["LIM-LEGACY"]
tls = { verify = false, server_name = "vault" }

[[keys]]
role = "private_prod"
value = "canary-of-one-key"
tenant = "acme"

[[keys]]
role = "private_prod"
value = "canary-of-another-key"

[[keys]]
role = "custom_hostname"
host = "proxy.example.com"

[[tenants]]
name = "acme"
quotas = { "Tokenize Limit" = 7, "CVC Retention" = "3s" }

[requests.search]
method = "POST"
path = "/search"
body = { q = "data:{value}", deep = [1, { a = true }] }
"""


def _read(text: str) -> Target:
    return Target.from_document(parse_toml(text, "target.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_bad_file_is_one_line_with_its_place(file: Path) -> None:
    first = file.read_text("utf-8").splitlines()[0]
    expected = first.removeprefix("#! ").replace("FOLDER", str(FOLDER))
    with pytest.raises(InputError) as caught:
        Target.from_toml(file)
    assert str(caught.value) == f"{file}{expected}"
    assert "canary" not in str(caught.value)


def test_two_fixtures_never_show_the_same_message() -> None:
    first_lines = [file.read_text("utf-8").splitlines()[0] for file in FILES]
    assert len(set(first_lines)) == len(first_lines) > 30


def test_keys_have_labels_by_role_and_place() -> None:
    target = _read(GOOD)
    assert list(target.key_labels) == ["private_prod.1", "private_prod.2", "custom_hostname.1"]
    assert target.labels("private_prod") == ("private_prod.1", "private_prod.2")
    assert target.labels("public") == ()


ONE_OF_EACH = 'base_url = "https://vault.example.com"\n[[tenants]]\nname = "acme"\n' + "".join(
    f'[[keys]]\nrole = "{role}"\nvalue = "of {role}"\ntenant = "acme"\n'
    for role in ("private_prod", "private_test", "private_reader")
)


def test_a_role_says_what_its_key_may_where_the_file_grants_nothing() -> None:
    target = _read(ONE_OF_EACH)
    assert [target.may(label, "token:read") for label in target.key_labels] == [False, False, True]
    assert all(target.may(label, "token:create") for label in target.key_labels)


def test_quotas_are_the_tenants_own_or_the_defaults() -> None:
    tenant = _read(GOOD).tenant_of(_read(GOOD).keys[0])
    assert tenant.quota("Tokenize Limit") == 7
    assert tenant.quota("CVC Retention") == 3_000_000_000
    assert tenant.quota("Detokenize Limit") == TargetTenant(name="x").quota("Detokenize Limit") == 5


def test_a_request_shape_replaces_the_engines_own() -> None:
    target = _read(GOOD)
    assert target.shape("search").body == {"q": "data:{value}", "deep": [1, {"a": True}]}
    assert target.shape("get").path == "/tokens/{id}"


def test_behind_a_trusted_header_any_address_will_do() -> None:
    assert len(_read(GOOD).addresses) > 20
    assert _read('base_url = "http://localhost"').addresses == (None,)


def test_no_repr_shows_a_key() -> None:
    target = _read(GOOD)
    assert "canary" not in repr(target) + repr(target.keys) + repr(target.key_labels)


def test_the_schema_ships_and_accepts_what_the_reader_accepts() -> None:
    shipped = Path(module.__file__).with_name("target.schema.json")
    assert json.loads(shipped.read_text("utf-8")) == Target.schema()
    validator = Draft202012Validator(Target.schema())
    validator.validate(tomllib.loads(GOOD))
    assert not validator.is_valid({"base_url": "http://localhost", "source": []})


def test_the_shared_example_is_read(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = repository.parent / "shared" / "examples" / "target.toml"
    if not file.is_file():
        pytest.skip("the shared examples are not beside this checkout")
    monkeypatch.setenv("KEY_PRIVATE_1", "canary-of-one-key")
    target = Target.from_toml(file)
    assert target.keys[0].value == "canary-of-one-key"
    assert target.shape("search").path == "/search"
    assert target.tenants[0].quota("Tokenize Limit") == 5


def test_a_password_in_an_address_is_refused_and_not_quoted() -> None:
    with pytest.raises(InputError) as caught:
        starter("https://ada:hunter2@vault.example.com")
    assert str(caught.value).startswith("--url must hold no user and no password")
    assert "hunter2" not in str(caught.value)


def test_init_deletes_nothing_that_has_no_identifier() -> None:
    asked: list[str] = []

    def ask(method: str, path: str, **_: object) -> None:
        asked.append(f"{method} {path}")

    for record in ({"type": "token"}, {"id": None}, {"id": "one"}):
        starter_module._delete(ask, starter_module._Seen(), record)  # type: ignore[arg-type] # reason: sends nothing
    assert asked == ["DELETE /tokens/one"]


def test_the_starter_is_a_target_and_so_is_every_line_of_its_comments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = starter(None)
    text = made.text
    file = tmp_path / "target.toml"
    write_starter(file, made)
    schema = json.loads((tmp_path / "target.schema.json").read_text("utf-8"))
    assert schema == Target.schema(), "the file names it, so it lies beside it"
    for role in ROLES:
        monkeypatch.setenv(f"KEY_{role.upper()}_1", f"canary of {role}")
    assert [key.role for key in Target.from_toml(file).keys] == ["private_prod"]
    uncommented = re.sub(r"(?m)^# (?=\[|[a-z_]+ = )", "", text)
    for name in ("profile.toml", "limits.toml", "ca.pem"):
        (tmp_path / name).write_text("", "utf-8")
    file.write_text(uncommented, "utf-8")
    target = Target.from_toml(file)
    assert {key.role for key in target.keys} == set(ROLES)
    by_role = {key.role: target.tenant_of(key) for key in target.keys}
    assert (by_role["private_prod"].name, by_role["private_test"].name) == ("acme", "acme-test")
    assert by_role["private_test"].kind == "test", "its tenant was the one of private_prod"
    assert by_role["dedup"] is by_role["dedup_reader"] is not by_role["private_prod"]
    assert by_role["short"].quota("CVC Retention") == 3_000_000_000
    assert target.always == ("deduplication",)
    assert target.encryption_jwk is not None
    assert target.shape("search").answer == {"data": "{results}"}
    for role in ROLES:
        assert f"# {role}" in text, "each role is explained where it is asked for"


def test_the_documentation_tells_every_role_and_every_field() -> None:
    told = module.__doc__ or ""
    for role in ROLES.values():
        assert f"`{role.name}`" in told
        assert role.holds in told
    for name in ("key_format", "proxy_host", "default_containers", "always", "answer", "limit"):
        assert name in told
    example = told.partition("```toml\n")[2].partition("```")[0]
    target = _read(f'base_url = "http://localhost"\n{example}')
    assert target.shape("search").success == (200, 206)
    assert target.dialect.path_of("cards") == "/cards/"
