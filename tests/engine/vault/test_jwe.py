"""Client-side encryption (TOK-ENCRYPTED, D-ENCRYPTED)."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest
from joserfc import jwe as joserfc_jwe
from joserfc.jwk import OctKey, OKPKey

from engine.errors import VaultError
from engine.vault import jwe

Header = dict[str, Any]


PLAINTEXT = b'"4242424242424242"'


@pytest.fixture(scope="module", params=jwe.ALGORITHMS)
def pair(request: pytest.FixtureRequest) -> jwe.KeyPair:
    return jwe.generate(request.param, "kid-1")


def opened(compact: str, pair: jwe.KeyPair) -> bytes:
    return jwe.decrypt(compact, lambda kid: pair.private if kid == "kid-1" else None)


def refused(compact: str, pair: jwe.KeyPair) -> str:
    with pytest.raises(VaultError) as caught:
        opened(compact, pair)
    assert "4242" not in str(caught.value)
    return str(caught.value)


def header_of(compact: str) -> Header:
    first = compact.partition(".")[0]
    header: Header = json.loads(base64.urlsafe_b64decode(first + "=" * (-len(first) % 4)))
    return header


def with_header(compact: str, header: Header) -> str:
    first = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    return first + "." + compact.partition(".")[2]


def test_what_a_client_encrypts_opens(pair: jwe.KeyPair) -> None:
    compact = jwe.encrypt(pair.public_jwk, PLAINTEXT)
    assert opened(compact, pair) == PLAINTEXT
    header = header_of(compact)
    assert (header["alg"], header["enc"]) == (pair.algorithm, "A256GCM")
    assert header["kid"] == "kid-1"


def test_the_public_key_is_public_only(pair: jwe.KeyPair) -> None:
    assert pair.public_jwk["kid"] == "kid-1"
    assert pair.public_jwk["use"] == "enc"
    assert pair.public_jwk["alg"] == pair.algorithm
    assert not {"d", "p", "q", "dp", "dq", "qi", "k"} & set(pair.public_jwk)
    assert "private" not in repr(pair)


def test_a_message_as_large_as_a_body_opens(pair: jwe.KeyPair) -> None:
    large = b"x" * 2_900_000
    assert opened(jwe.encrypt(pair.public_jwk, large), pair) == large
    assert "at most 4000000" in refused("e" * 4_000_001, pair)


def test_a_header_of_1024_characters_opens(pair: jwe.KeyPair) -> None:
    size = len(jwe.encrypt(pair.public_jwk | {"kid": ""}, PLAINTEXT).partition(".")[0]) * 3 // 4
    compact = jwe.encrypt(pair.public_jwk | {"kid": "k" * (768 - size)}, PLAINTEXT)
    assert len(compact.partition(".")[0]) == 1024
    assert jwe.decrypt(compact, lambda _: pair.private) == PLAINTEXT
    assert "five parts" in refused("e" * 1025 + compact[1024:], pair)


def test_a_key_may_be_found_without_a_kid(pair: jwe.KeyPair) -> None:
    compact = jwe.encrypt(pair.public_jwk, PLAINTEXT)
    header = header_of(compact)
    del header["kid"]
    # The header is authenticated, so it cannot be taken out afterwards.
    with pytest.raises(VaultError, match="does not open"):
        jwe.decrypt(with_header(compact, header), lambda kid: pair.private if kid is None else None)


def test_an_unknown_key_is_refused(pair: jwe.KeyPair) -> None:
    compact = jwe.encrypt({**pair.public_jwk, "kid": "other"}, PLAINTEXT)
    assert refused(compact, pair) == "its kid names no encryption key of this tenant"


def test_another_key_of_the_same_id_does_not_open(pair: jwe.KeyPair) -> None:
    stranger = jwe.generate(pair.algorithm, "kid-1")
    compact = jwe.encrypt(stranger.public_jwk, PLAINTEXT)
    assert refused(compact, pair) == "it does not open: wrong key or changed bytes"


def test_every_changed_part_is_refused(pair: jwe.KeyPair) -> None:
    compact = jwe.encrypt(pair.public_jwk, PLAINTEXT)
    parts = compact.split(".")
    for place, part in enumerate(parts):
        flipped = ("B" if part[:1] != "B" else "C") + part[1:]
        refused(".".join([*parts[:place], flipped, *parts[place + 1 :]]), pair)
        if part:  # ECDH-ES has no encrypted key
            refused(".".join([*parts[:place], part[:-3], *parts[place + 1 :]]), pair)
    refused(".".join([*parts[:4], ""]), pair)


@pytest.mark.parametrize(
    "compact",
    ["", "x", "....", "a.b.c.d.e", "a.b.c.d", "a.b.c.d.e.f", "e30.a.b.c.d", "W10.a.b.c.d",
     "bnVsbA.a.b.c.d", "ä.b.c.d.e", "e30" * 1000 + ".a.b.c.d", "\ud800....", "e3 0.a.b.c.d"],
)  # fmt: skip
def test_what_is_malformed_is_refused(pair: jwe.KeyPair, compact: str) -> None:
    refused(compact, pair)


@pytest.mark.parametrize(
    "change",
    [
        {"alg": "dir"},
        {"alg": "RSA1_5"},
        {"alg": "RSA-OAEP"},
        {"alg": "ECDH-ES+A256KW"},
        {"alg": "none"},
        {"alg": None},
        {"alg": ["ECDH-ES"]},
        {"enc": "A128GCM"},
        {"enc": "A128CBC-HS256"},
        {"zip": "DEF"},
        {"zip": None},
        {"crit": ["exp"]},
        {"kid": 5},
        {"kid": ["kid-1"]},
    ],
)
def test_other_headers_are_refused(pair: jwe.KeyPair, change: Header) -> None:
    compact = jwe.encrypt(pair.public_jwk, PLAINTEXT)
    said = refused(with_header(compact, header_of(compact) | change), pair)
    assert said.startswith("its ")


def test_the_algorithm_must_be_the_keys_own() -> None:
    x25519 = jwe.generate("ECDH-ES", "kid-1")
    rsa = jwe.generate("RSA-OAEP-256", "kid-1")
    said = "its alg is not that of the key it names"
    assert refused(jwe.encrypt(rsa.public_jwk, PLAINTEXT), x25519) == said
    assert refused(jwe.encrypt(x25519.public_jwk, PLAINTEXT), rsa) == said


def test_a_message_that_unfolds_is_refused() -> None:
    pair = jwe.generate("ECDH-ES", "kid-1")
    bomb = zlib.compress(b"0" * 10_000_000)
    key = OKPKey.import_key(dict(pair.public_jwk))
    registry = joserfc_jwe.JWERegistry(algorithms=["ECDH-ES", "A256GCM", "DEF"])
    header = {"alg": "ECDH-ES", "enc": "A256GCM", "zip": "DEF", "kid": "kid-1"}
    compact = joserfc_jwe.encrypt_compact(header, bomb, key, registry=registry)
    assert refused(compact, pair) == "its header must hold neither zip nor crit"


def test_a_hostile_ephemeral_key_is_refused() -> None:
    """Points of low order, other curves, and no key at all."""
    pair = jwe.generate("ECDH-ES", "kid-1")
    compact = jwe.encrypt(pair.public_jwk, PLAINTEXT)
    header = header_of(compact)
    zero = base64.urlsafe_b64encode(bytes(32)).rstrip(b"=").decode()
    octets = OctKey.generate_key(256).as_dict()
    for epk in ({"kty": "OKP", "crv": "X25519", "x": zero}, octets, None, {}, "x", {"kty": "EC"}):
        refused(with_header(compact, header | {"epk": epk}), pair)
