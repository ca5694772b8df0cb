"""Tenant keys, sealing, rotation (DESIGN: store; D-KEY)."""

from __future__ import annotations

import hashlib
import hmac
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InputError, VaultError
from engine.resources.identification import hash_key_text
from engine.vault import Nonces, Vault, hmac_sha256

MASTER = bytes(range(32))


class Secrets:
    """A store of secrets whose writes can be rolled back."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.reads = 0

    def secret(self, name: str) -> bytes | None:
        self.reads += 1
        return self.kept.get(name)

    def put_secret(self, name: str, wrapped: bytes) -> None:
        self.kept[name] = wrapped

    def secrets(self) -> dict[str, bytes]:
        return dict(self.kept)


@pytest.fixture
def store() -> Secrets:
    return Secrets()


@pytest.fixture
def vault(store: Secrets) -> Vault:
    """The vault of tenants `t` and `u`."""
    made = Vault(MASTER, os.urandom, store)
    made.make("t")
    made.make("u")
    return made


@given(st.binary(max_size=500))
def test_what_is_sealed_opens_in_its_place(plaintext: bytes) -> None:
    keys = Vault(MASTER, os.urandom, Secrets()).make("t")
    sealed = keys.seal("/a/", "id", plaintext, "data")
    assert keys.open("/a/", "id", sealed, "data") == plaintext
    assert len(sealed) == len(plaintext) + 29
    assert keys.seal("/a/", "id", plaintext, "data") != sealed


@pytest.mark.parametrize(
    "place",
    [("/b/", "id", "data"), ("/a/", "other", "data"), ("/a/", "id", "cvc"), ("/a/id", "", "data")],
)
def test_swapped_rows_columns_and_tenants_do_not_open(
    vault: Vault, place: tuple[str, str, str]
) -> None:
    sealed = vault.of("t").seal("/a/", "id", b"4242424242424242", "data")
    container, record_id, purpose = place
    with pytest.raises(VaultError, match="wrong key, wrong place, or changed bytes"):
        vault.of("t").open(container, record_id, sealed, purpose)
    with pytest.raises(VaultError):
        vault.of("u").open("/a/", "id", sealed, "data")


def test_changed_or_shortened_bytes_do_not_open(vault: Vault) -> None:
    keys = vault.of("t")
    sealed = keys.seal("/a/", "id", b"secret", "data")
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(VaultError):
            keys.open("/a/", "id", bytes(changed), "data")
        with pytest.raises(VaultError):
            keys.open("/a/", "id", sealed[:place], "data")


@pytest.mark.parametrize(
    ("container", "table"),
    [
        ("/general/", "tokens"),
        ("/keys/", "encryption_keys"),
        ("/code/", "reactors or proxies"),
        ("/idempotency/", "kept_answers"),
    ],
)
def test_what_does_not_open_is_named_by_its_table(vault: Vault, container: str, table: str) -> None:
    with pytest.raises(VaultError, match=f"^{table} row id: its data: "):
        vault.of("t").open(container, "id", bytes(64))


def test_a_place_holds_no_nul(vault: Vault) -> None:
    with pytest.raises(AssertionError):
        vault.of("t").seal("/a/\0id", "", b"x", "data")


def test_keys_live_on_in_the_store(vault: Vault, store: Secrets) -> None:
    sealed = vault.of("t").seal("/a/", "id", b"secret", "data")
    later = Vault(MASTER, os.urandom, store)
    later.verify()
    assert later.of("t").open("/a/", "id", sealed, "data") == b"secret"
    for name in ("dedup", "index"):
        assert getattr(later.of("t"), name)(b"x") == getattr(vault.of("t"), name)(b"x")
    assert later.of("t").fingerprint("card", b"x") == vault.of("t").fingerprint("card", b"x")


def test_each_tenant_and_purpose_has_its_own_key(vault: Vault) -> None:
    digests = [
        getattr(vault.of(tenant), name)(b"x")
        for tenant in ("t", "u")
        for name in ("_fingerprint", "dedup", "index")
    ]
    assert len(set(digests)) == 6
    assert {len(digest) for digest in digests} == {32}


def test_the_store_holds_no_key_in_the_clear() -> None:
    drawn = []

    def entropy(count: int) -> bytes:
        drawn.append(os.urandom(count))
        return drawn[-1]

    store = Secrets()
    Vault(MASTER, entropy, store).make("t")
    kept = b"".join(store.kept.values())
    roots = [draw for draw in drawn if len(draw) == 32]
    assert len(roots) == 1
    assert roots[0] not in kept
    assert MASTER not in kept


def test_another_master_key_opens_nothing(vault: Vault, store: Secrets) -> None:
    stranger = Vault(bytes(32), os.urandom, store)
    for use in (stranger.verify, lambda: stranger.of("t"), lambda: stranger.rotate(MASTER)):
        with pytest.raises(VaultError, match="a tenant's wrapped key does not open"):
            use()


@pytest.mark.parametrize("key", [b"", b"short", bytes(16), bytes(33)])
def test_a_master_key_has_32_bytes(store: Secrets, vault: Vault, key: bytes) -> None:
    said = f"^master_key of {len(key)} bytes must have 32; draw one with secrets.token_bytes"
    with pytest.raises(InputError, match=said):
        Vault(key, os.urandom, store)
    with pytest.raises(InputError, match=said):
        vault.rotate(key)


def test_rotation_re_wraps_and_changes_no_ciphertext(vault: Vault, store: Secrets) -> None:
    sealed = {tenant: vault.of(tenant).seal("/", "id", b"secret", "data") for tenant in "tu"}
    store.kept["another"] = b"secret of somebody else"
    before = dict(store.kept)
    vault.rotate(bytes(32))
    assert all(store.kept[name] != wrapped for name, wrapped in before.items() if name != "another")
    assert store.kept["another"] == before["another"]
    fresh = Vault(bytes(32), os.urandom, store)
    fresh.verify()
    for tenant, ciphertext in sealed.items():
        assert fresh.of(tenant).open("/", "id", ciphertext, "data") == b"secret"
        assert vault.of(tenant).open("/", "id", ciphertext, "data") == b"secret"
    with pytest.raises(VaultError):
        Vault(MASTER, os.urandom, store).of("t")


def test_a_rotation_that_was_rolled_back_can_be_repeated(vault: Vault, store: Secrets) -> None:
    sealed = vault.of("t").seal("/", "id", b"secret", "data")
    before, master = dict(store.kept), vault.master
    vault.rotate(bytes(32))
    store.kept, vault.master = before, master
    vault._known.clear()  # as in another process
    assert vault.of("t").open("/", "id", sealed, "data") == b"secret"
    vault.make("made in between")
    Vault(MASTER, os.urandom, store).verify()  # a crash now leaves a store that one key opens
    vault.rotate(bytes(32))
    Vault(bytes(32), os.urandom, store).verify()


def test_only_a_tenant_has_keys(vault: Vault, store: Secrets) -> None:
    with pytest.raises(VaultError, match="the store holds no key of tenant v"):
        vault.of("v")
    assert len(store.kept) == 2


def test_the_store_is_read_once_a_tenant(vault: Vault, store: Secrets) -> None:
    assert vault.of("t") is vault.of("t")
    assert store.reads == 0
    vault._known.clear()  # as in another process
    assert vault.of("t") is vault.of("t")
    assert store.reads == 1


def test_no_repr_and_no_error_holds_a_key_or_a_value(vault: Vault) -> None:
    keys = vault.of("t")
    assert repr(keys) == "<TenantKeys of t>"
    assert repr(vault) == "<Vault of 2 unwrapped tenant keys>"
    sealed = keys.seal("/a/", "id", b"4242424242424242", "data")
    with pytest.raises(VaultError) as caught:
        keys.open("/b/", "id", sealed, "data")
    assert caught.value.__cause__ is None
    assert "4242" not in repr(caught.value)


@given(st.binary(max_size=64), st.binary(max_size=300))
def test_the_keyed_hash_is_hmac_sha256(key: bytes, message: bytes) -> None:
    assert hmac_sha256(key)(message) == hmac.new(key, message, hashlib.sha256).digest()


def test_d_key_the_hash_of_a_key_text_needs_no_key() -> None:
    assert hash_key_text("key_abc") == hash_key_text("key_abc")
    assert hash_key_text("key_abc") != hash_key_text("key_abd")
    assert hash_key_text("\ud800") != hash_key_text("")
    assert len(hash_key_text("")) == 32


def test_nonces_never_repeat_across_threads() -> None:
    take = Nonces(os.urandom).take
    found = []

    def draw() -> None:
        mine = [take() for _ in range(5_000)]
        found.extend(mine)

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(set(found)) == 40_000
    assert {len(nonce) for nonce in found} == {12}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nonces_never_repeat_across_a_fork() -> None:
    take = Nonces(os.urandom).take
    take()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, b"".join(take() for _ in range(50)))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        theirs = pipe.read()
    os.waitpid(child, 0)
    mine = {take() for _ in range(600)}
    assert len(theirs) == 600
    assert mine.isdisjoint(theirs[at : at + 12] for at in range(0, 600, 12))
