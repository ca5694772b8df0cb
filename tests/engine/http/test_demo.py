"""`serve --demo`: what it prints, what its keys may do, what it writes, what it refuses."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from engine.cli import main
from engine.vault import jwe
from tests.engine.http.live import MASTER_KEY, Live

MANY = ("private_test", "private_prod", "public", "management", "legacy")
PROXIES = ("proxy_key", "custom_hostname")
SINGLE = (
    "private_reader",
    "private_no_permission",
    "private_one_container",
    "dedup",
    "dedup_reader",
    "short",
)
FIELDS = ["role", "key", "header", "tenant_id", "tenant_kind", "application_id", "host"]


def test_the_lines_are_the_contracts() -> None:
    with Live("--demo") as live:
        assert list(live.lines[0]) == ["url"]
        roles = Counter(line["role"] for line in live.lines[1:])
        expected = dict.fromkeys((*MANY, *PROXIES), 8) | dict.fromkeys(SINGLE, 1)
        assert roles == Counter(expected | {"encryption": 1, "slow_destination": 1, "end": 1})
        assert [line["role"] for line in live.lines[-3:]] == [
            "encryption",
            "slow_destination",
            "end",
        ]
        keys = [line for line in live.lines if line.get("role") in expected]
        assert all(list(line) == FIELDS for line in keys)
        texts = [line["key"] for line in keys if line["key"] is not None]
        assert len(texts) == len(set(texts))
        tests = {line["role"] for line in keys if line["tenant_kind"] == "test"}
        assert tests == {"private_test", "dedup", "dedup_reader", "short"}
        assert all(
            "_prod_" not in k["key"] and "_test_" not in k["key"] for k in live.keys("legacy")
        )


@pytest.mark.parametrize(
    ("role", "path", "body", "status"),
    [
        ("private_prod", "/tokenize", ["x"], 200),
        ("private_prod", "/detokenize", ["x"], 403),
        ("private_reader", "/detokenize", ["x"], 200),
        ("public", "/tokenize", ["x"], 200),
        ("public", "/tokens/search", {"query": "data:x"}, 403),
        ("management", "/tokenize", ["x"], 403),
        ("management", "/applications", {"name": "a", "kind": "public"}, 201),
        ("legacy", "/tokenize", ["x"], 200),
        ("private_no_permission", "/tokenize", ["x"], 403),
        ("private_one_container", "/tokenize", ["x"], 403),
        (
            "private_one_container",
            "/tokenize",
            {"type": "token", "data": "x", "containers": ["/pci/"]},
            200,
        ),
    ],
)
def test_a_role_may_what_it_says(
    hurried: Live, role: str, path: str, body: object, status: int
) -> None:
    # AUTH-CREATE, AUTH-KINDS, AUTH-LEGACY
    key = hurried.keys(role)[0]["key"]
    assert hurried.ask("POST", path, key=key, json=body).status_code == status


def test_the_dedup_tenant_deduplicates_and_its_reader_sees_more(hurried: Live) -> None:
    # TOK-DEDUP, REC-DEDUP-REDACT
    body = {"type": "token", "data": "twice", "metadata": {"a": "b"}}
    plain, reader = (hurried.keys(role)[0]["key"] for role in ("dedup", "dedup_reader"))
    first = hurried.ask("POST", "/tokenize", key=plain, json=body).json()
    again = hurried.ask("POST", "/tokenize", key=plain, json=body).json()
    read = hurried.ask("POST", "/tokenize", key=reader, json=body).json()
    assert first["id"] == again["id"] == read["id"]
    assert (again["_extras"], read["_extras"]) == ({"deduplicated": True},) * 2
    assert "metadata" not in again
    assert read["metadata"] == {"a": "b"}


def test_the_encryption_key_works(hurried: Live) -> None:
    # TOK-ENCRYPTED
    sealed = jwe.encrypt(hurried.keys("encryption")[0]["jwk"], b'"Ada"')
    key = hurried.keys("private_reader")[0]["key"]
    body = {"type": "token", "encrypted": sealed}
    made = hurried.ask("POST", "/tokenize", key=key, json=body).json()
    found = hurried.ask("POST", "/detokenize", key=key, json=f"{{{{ {made['id']} }}}}")
    assert found.json() == "Ada"


@pytest.mark.slow
def test_what_the_short_tenant_keeps_is_gone_after_three_seconds(hurried: Live) -> None:
    # QUO-CVC, QUO-INTENT, QUO-LOG over the server's own clock
    key = hurried.keys("short")[0]["key"]
    card = {"type": "card", "data": {"number": "4242424242424242", "cvc": "123"}}

    def state(token: str, intent: str) -> tuple[object, int, int]:
        data = hurried.ask("POST", "/detokenize", key=key, json=f"{{{{ {token} }}}}").json()
        found = hurried.ask("GET", f"/token-intents/{intent}", key=key).status_code
        logs = hurried.ask("GET", "/logs?entity_type=token-intent", key=key).json()["data"]
        return data.get("cvc"), found, len(logs)

    took_s = 3.0
    while took_s >= 3:  # where the machine paused, they may be gone already
        started_s = time.monotonic()
        token = hurried.ask("POST", "/tokenize", key=key, json=card).json()["id"]
        intent = hurried.ask("POST", "/token-intents", key=key, json=card).json()["id"]
        found = state(token, intent)
        took_s = time.monotonic() - started_s
    assert found == ("123", 200, 1)
    time.sleep(3.1)
    assert state(token, intent) == (None, 404, 0)


def test_the_target_has_every_key_and_tenant_and_is_its_owners(tmp_path: Path) -> None:
    file = tmp_path / "target.toml"
    file.touch(0o644)  # an earlier file, which others could read
    with Live("--demo", "--demo-keys", "2", "--write-target", str(file)) as live:
        target = tomllib.loads(file.read_text("utf-8"))
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert (target["base_url"], target["key_header"]) == (live.url, "SVC-API-KEY")
        assert Counter(row["role"] for row in target["keys"]) == Counter(
            line["role"] for line in live.lines[1:] if line["role"] not in {"encryption", "end"}
        )
        tenants = {row["name"]: row for row in target["tenants"]}
        assert {row["tenant"] for row in target["keys"]} == set(tenants)
        assert tenants["demo-short"]["quotas"]["CVC Retention"] == "3s"
        row = next(row for row in target["keys"] if row["role"] == "public")
        assert live.ask("POST", "/tokenize", key=row["value"], json=["x"]).status_code == 200
        assert all(source.startswith("127.0.0.") for source in target["sources"])
        slow = live.keys("slow_destination")[0]
        assert target["destination_url"] == slow["destination_url"]
        containers = {row["role"]: row["container"] for row in target["keys"] if "container" in row}
        assert containers == {"private_one_container": "/pci/"}


def test_the_target_of_an_ipv6_demo_names_no_ipv4_source(tmp_path: Path) -> None:
    file = tmp_path / "target.toml"
    with Live("--demo", "--demo-keys", "1", "--host", "::1", "--write-target", str(file)) as live:
        target = tomllib.loads(file.read_text("utf-8"))
        assert target["base_url"] == live.url
        assert live.url.startswith("http://[::1]:")
        assert "sources" not in target
        key = live.keys("public")[0]["key"]
        assert live.ask("POST", "/tokenize", key=key, json=["x"]).status_code == 200


@pytest.mark.slow
def test_a_kept_demo_shows_the_same_keys_again(tmp_path: Path) -> None:
    store = ("--store", str(tmp_path / "demo.sqlite"))
    environment = {"TOLLGATE_MASTER_KEY": MASTER_KEY}
    arguments = ("--demo", "--demo-keys", "2", *store)
    with Live(*arguments, environment=environment) as live:
        first = live.lines[1:]
        assert live.stop() == (0, "")
    with Live(*arguments, environment=environment) as again:
        for before, after in zip(first, again.lines[1:], strict=True):
            ports = ("destination_url",)
            assert {k: v for k, v in before.items() if k not in ports} == {
                k: v for k, v in after.items() if k not in ports
            }
        line = again.keys("proxy_key")[0]
        answer = again.client.get("/proxy", headers={line["header"]: line["key"]})
        assert answer.status_code == 200


@pytest.mark.slow
def test_a_kept_demo_starts_under_a_rotated_master_key(tmp_path: Path) -> None:
    kept = str(tmp_path / "demo.sqlite")
    keys = {"TOLLGATE_MASTER_KEY": MASTER_KEY, "TOLLGATE_NEW_MASTER_KEY": "cd" * 32}
    with Live("--demo", "--demo-keys", "2", "--store", kept, environment=keys) as live:
        (maker,) = (line["key"] for line in live.keys("private_prod")[:1])
        (reader,) = (line["key"] for line in live.keys("private_reader"))
        (token,) = live.ask("POST", "/tokenize", key=maker, json=["kept"]).json()
    rotate = [sys.executable, "-m", "engine", "rotate-key", "--store", kept]
    subprocess.run(rotate, env={**os.environ, **keys}, check=True, capture_output=True)
    environment = {"TOLLGATE_MASTER_KEY": keys["TOLLGATE_NEW_MASTER_KEY"]}
    with Live("--demo", "--demo-keys", "2", "--store", kept, environment=environment) as live:
        (now,) = (line["key"] for line in live.keys("private_reader"))
        assert now != reader
        for key in (now, reader):
            answer = live.ask("POST", "/detokenize", key=key, json=[f"{{{{ {token} }}}}"])
            assert answer.json() == ["kept"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--demo", "--workers", "2"],
            (
                "--workers = 2 must be 1: the limits' counters live in the process, and 2 of them "
                "would admit 2 times each rate; leave it out"
            ),
        ),
        ([], "there is nothing to serve; give --demo, --config FILE or --store PATH"),
        (["--write-target", "x"], "--write-target must stand with --demo; add it"),
        (["--store", "x", "--demo-keys", "3"], "--demo-keys must stand with --demo; add it"),
        (
            ["--demo", "--trust-forwarded", "nobody"],
            "--trust-forwarded = 'nobody' must be an IP address or a network such as 10.0.0.0/8",
        ),
    ],
)
def test_what_cannot_be_served_is_one_line_and_2(
    flags: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["serve", "--port", "0", *flags]) == 2
    assert capsys.readouterr() == ("", f"engine: {message}\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--demo", "--limits", "none.toml"], "none.toml: no such file"),
        (["--demo", "--profile", "none.toml"], "none.toml: no such file"),
        (
            ["--demo", "--store", "t.sqlite"],
            (
                "master_key is missing; t.sqlite is kept, so give 32 bytes in base64 or hex that "
                "you keep too, as master_key in the configuration or in the environment as "
                "TOLLGATE_MASTER_KEY"
            ),
        ),
        (
            ["--demo", "--write-target", "no/such/folder"],
            "--write-target = no/such/folder must be a file to write: no such file or directory",
        ),
    ],
)
def test_what_fails_while_it_starts_is_one_line_and_2(
    flags: list[str], message: str, tmp_path: Path
) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "engine", "serve", "--port", "0", *flags],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(__file__).resolve().parents[3]), "PATH": ""},
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (2, "", f"engine: {message}\n")


WORKERS = "--workers = 2 must be 1: the limits' counters live in the process, and 2 of them "


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--port", "65535"], WORKERS),
        (["--port", "65536"], "argument --port: '65536' must be a port from 0 to 65535"),
        (["--port", "-1"], "argument --port: '-1' must be a port from 0 to 65535"),
        (["--port", "\u0661"], "must be a port from 0 to 65535"),
        (["--demo-keys", "9999", "--demo"], WORKERS),
        (["--demo-keys", "1", "--demo"], WORKERS),
        (["--demo-keys", "10000"], "'10000' must be a whole number from 1 to 9999"),
        (["--demo-keys", "0"], "'0' must be a whole number from 1 to 9999"),
        (["--metrics", "127.0.0.1:65535"], WORKERS),
        (["--metrics", "[::1]:1"], WORKERS),
        (["--metrics", "127.0.0.1:65536"], "argument --metrics: '127.0.0.1:65536' must be "),
        (["--metrics", "9464"], "argument --metrics: '9464' must be "),
    ],
)
def test_an_option_takes_what_it_says_and_no_more(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that are taken meet the next rule: there is one worker."""
    code: object = None
    try:
        code = main(["serve", "--workers", "2", *flags])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert said in capsys.readouterr().err


def test_a_port_that_is_taken_is_named(hurried: Live) -> None:
    command = [sys.executable, "-m", "engine", "serve", "--demo", "--port", str(hurried.port)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert ran.stderr == (
        f"engine: port = {hurried.port} must be free on 127.0.0.1; choose another with --port, or "
        "0 for any: Address already in use\n"
    )


@pytest.mark.slow
def test_a_key_that_is_not_the_stores_is_named(tmp_path: Path) -> None:
    store = tmp_path / "demo.sqlite"
    flags = ("--demo", "--demo-keys", "1", "--store", str(store))
    with Live(*flags, environment={"TOLLGATE_MASTER_KEY": MASTER_KEY}) as live:
        live.stop()
    with pytest.raises(AssertionError) as caught:
        Live(*flags, environment={"TOLLGATE_MASTER_KEY": "22" * 32})
    assert f"engine: master_key must be the one that {store} was made with" in str(caught.value)


@pytest.mark.slow
def test_a_store_has_one_server(tmp_path: Path) -> None:
    # D-COUNTERS-LIFE: two would admit twice each rate
    flags = ("--demo", "--demo-keys", "1", "--store", str(tmp_path / "demo.sqlite"))
    environment = {"TOLLGATE_MASTER_KEY": MASTER_KEY}
    with Live(*flags, environment=environment) as live:
        with pytest.raises(AssertionError, match="must have one owner"):
            Live(*flags, environment=environment)
        live.stop()
    with Live(*flags, environment=environment) as again:
        assert again.stop() == (0, "")
