"""Client-side encryption: JWE in compact form, made by clients and opened here (D-ENCRYPTED).

`ECDH-ES` over X25519, or `RSA-OAEP-256`, each with `A256GCM`; nothing else, no compression (which
would let a small message decompress to a huge one) and no `crit`. The header's `kid` names the key;
without one the caller of `decrypt` chooses. The `joserfc` library does the cryptography; this
module holds the choices, the bounds, and one error for everything that cannot be decrypted.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import orjson
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_der_private_key,
)
from joserfc.errors import JoseError
from joserfc.jwe import JWERegistry, decrypt_compact, encrypt_compact
from joserfc.jwk import JWKRegistry, OKPKey, RSAKey

from engine.errors import VaultError

Algorithm: TypeAlias = Literal["ECDH-ES", "RSA-OAEP-256"]
ALGORITHMS: Final[tuple[Algorithm, ...]] = ("ECDH-ES", "RSA-OAEP-256")

_ENCRYPTION: Final = "A256GCM"
_RSA_BITS: Final = 2048
_HEADER_LIMIT_BYTES: Final = 1024
COMPACT_LIMIT_BYTES: Final = 4_000_000


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A new pair: the public half as a JWK for clients, the private half (PKCS #8) to be sealed."""

    algorithm: Algorithm
    public_jwk: dict[str, str]
    private: bytes = field(repr=False)


_REGISTRY: Final = JWERegistry(algorithms=[*ALGORITHMS, _ENCRYPTION])
_REGISTRY.max_protected_header_length = _HEADER_LIMIT_BYTES
_REGISTRY.max_ciphertext_length = COMPACT_LIMIT_BYTES  # of a request body, not the usual 64 KiB


def generate(algorithm: Algorithm, kid: str) -> KeyPair:
    """Return a new key pair for `algorithm`, its public JWK carrying `kid`, `use` and `alg`."""
    made: OKPKey | RSAKey
    if algorithm == "ECDH-ES":
        made = OKPKey.generate_key("X25519")
    else:
        made = RSAKey.generate_key(_RSA_BITS)
    private = made.private_key
    assert private is not None, "a generated key has its private half"
    public = {name: str(value) for name, value in made.as_dict(private=False).items()}
    public.update({"kid": kid, "use": "enc", "alg": algorithm})
    sealed_form = private.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return KeyPair(algorithm, public, sealed_form)


def encrypt(public_jwk: Mapping[str, str], plaintext: bytes) -> str:
    """Return `plaintext` as a compact JWE for the owner of `public_jwk`: the client's side.

    `alg` and `kid` are optional in a JWK: the algorithm follows from the kind of the key then, and
    the message names no key. Raises `VaultError` when nothing can be encrypted for it.
    """
    try:
        key = JWKRegistry.import_key(dict(public_jwk))
        if not isinstance(key, OKPKey | RSAKey):
            raise VaultError("its kty must be OKP (X25519) or RSA")
        usual = "ECDH-ES" if isinstance(key, OKPKey) else "RSA-OAEP-256"
        header = {"alg": public_jwk.get("alg", usual), "enc": _ENCRYPTION}
        if "kid" in public_jwk:
            header["kid"] = public_jwk["kid"]
        return encrypt_compact(header, plaintext, key, registry=_REGISTRY)
    except (JoseError, ValueError, TypeError, KeyError, AttributeError) as error:
        rule = "it must be a public key of kty OKP (crv X25519) or RSA, its alg ECDH-ES or RSA-OAEP"
        raise VaultError(f"{rule}-256 ({type(error).__name__})") from None


def decrypt(compact: str, find_private: Callable[[str | None], bytes | None]) -> bytes:
    """Return the plaintext of a compact JWE (TOK-ENCRYPTED).

    find_private: the private half (`KeyPair.private`) of the key id that the header names, or of
    the key to be tried when it names none; None when there is none such.
    Raises `VaultError`, with a reason and without a value, when the message is malformed or too
    large, names another algorithm or an unknown key, or does not open.
    """
    header = _header(compact)
    algorithm = header.get("alg")
    if algorithm not in ALGORITHMS or header.get("enc") != _ENCRYPTION:
        raise VaultError("its alg must be ECDH-ES or RSA-OAEP-256 and its enc A256GCM")
    if "zip" in header or "crit" in header:
        raise VaultError("its header must hold neither zip nor crit")
    kid = header.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise VaultError("its kid must be a string")
    private = find_private(kid)
    if private is None and kid is None:
        raise VaultError("its header must name by kid one of the tenant's encryption keys")
    if private is None:
        raise VaultError("its kid names no encryption key of this tenant")
    key = _import_private(private)
    if (algorithm == "ECDH-ES") != isinstance(key, OKPKey):
        raise VaultError("its alg is not that of the key it names")
    plaintext: bytes | None = None
    with contextlib.suppress(Exception):  # one answer for any error that hostile bytes cause
        plaintext = decrypt_compact(compact, key, registry=_REGISTRY).plaintext
    if plaintext is None:
        raise VaultError("it does not open: wrong key or changed bytes")
    return plaintext


def _header(compact: str) -> dict[str, Any]:
    if len(compact) > COMPACT_LIMIT_BYTES:
        raise VaultError(f"it must have at most {COMPACT_LIMIT_BYTES} characters")
    first, _, rest = compact.partition(".")
    if rest.count(".") != 3 or len(first) > _HEADER_LIMIT_BYTES or not compact.isascii():
        raise VaultError("it must be a compact JWE of five parts")
    try:
        padded = first + "=" * (-len(first) % 4)
        header = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        header = None
    if not isinstance(header, dict):
        raise VaultError("its first part must be a JSON object in base64url")
    return header


def _import_private(private: bytes) -> OKPKey | RSAKey:
    # The bytes were sealed by the vault, so the costly check of RSA's numbers is not repeated.
    loaded = load_der_private_key(private, None, unsafe_skip_rsa_key_validation=True)
    if isinstance(loaded, X25519PrivateKey):
        return OKPKey(loaded, loaded)
    assert isinstance(loaded, RSAPrivateKey), "one of the two kinds that `generate` makes"
    return RSAKey(loaded, loaded)
