"""A deployment behind TLS: whose certificate is trusted, and how our own is shown."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from conformance.cli import main
from conformance.messages.exchange import HttpRequest
from conformance.target import Target
from conformance.wire.over_http import HttpTransport
from conformance.wire.transport import Answer, Place
from tests.conformance.servers import answering, serving

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
NAME = "vault.example.com"


@dataclass(frozen=True)
class Files:
    """PEM files of one authority: its certificate, and a pair for each side."""

    folder: Path

    def context(self, *, asks_for_a_certificate: bool = False) -> ssl.SSLContext:
        """Return the server's side."""
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found.load_cert_chain(self.folder / "server.pem", self.folder / "server.key")
        if asks_for_a_certificate:
            found.load_verify_locations(self.folder / "ca.pem")
            found.verify_mode = ssl.CERT_REQUIRED
        return found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Certificates made for these tests; the server's is for its name and address."""
    folder = tmp_path_factory.mktemp("tls")
    authority = ec.generate_private_key(ec.SECP256R1())
    _write(folder, "ca", authority, _certificate("an authority", authority, authority, is_ca=True))
    for name in ("server", "client"):
        key = ec.generate_private_key(ec.SECP256R1())
        _write(folder, name, key, _certificate(name, key, authority))
    return Files(folder)


def _certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: ec.EllipticCurvePrivateKey,
    *,
    is_ca: bool = False,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName(NAME), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(issuer, hashes.SHA256())
    )


def _write(
    folder: Path, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> None:
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / f"{name}.key").write_bytes(text)
    (folder / f"{name}.pem").write_bytes(certificate.public_bytes(Encoding.PEM))


@contextmanager
def _target(
    files: Files, table: str, *, host: str = "127.0.0.1", asks: bool = False
) -> Iterator[Path]:
    """Serve with the server's certificate; gives a target file beside the PEM files."""
    with serving(answering(OK), files.context(asks_for_a_certificate=asks)) as port:
        file = files.folder / "target.toml"
        file.write_text(f'base_url = "https://{host}:{port}"\n{table}\n', "utf-8")
        yield file


def _asked(file: Path) -> Answer:
    transport = HttpTransport(Target.from_toml(file))
    try:
        ask = HttpRequest(method="GET", path="/")
        found: Answer = transport.run([transport.send(ask, Place("a", "b", 1))])[0]
    finally:
        transport.close()
    return found


def test_an_unknown_certificate_is_not_trusted(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    with _target(files, "") as file:
        found = _asked(file)
        code = main(["run", str(file), "--out", str(files.folder / "out")])
    assert found.status is None
    assert "certificate" in str(found.error)
    assert code == 3
    said = capsys.readouterr().err
    assert said.startswith("conformance: https://127.0.0.1:")
    assert "gives no answer: " in said
    assert "ca_file" in said, "the way out"
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "table", ["tls = { verify = false }", 'tls = { ca_file = "ca.pem" }'], ids=["any", "known"]
)
def test_it_is_trusted_where_the_target_says_so(files: Files, table: str) -> None:
    with _target(files, table) as file:
        assert (_asked(file).status, _asked(file).error) == (200, None)


def test_a_certificate_of_another_name_is_refused_unless_that_name_is_asked_for(
    files: Files,
) -> None:
    with _target(files, 'tls = { ca_file = "ca.pem" }', host="localhost") as file:
        found = _asked(file)
    assert (found.status, "localhost" in str(found.error)) == (None, True)
    table = f'tls = {{ ca_file = "ca.pem", server_name = "{NAME}" }}'
    with _target(files, table, host="localhost") as file:
        assert _asked(file).status == 200


def test_our_own_certificate_is_shown(files: Files) -> None:
    with _target(files, 'tls = { ca_file = "ca.pem" }', asks=True) as file:
        found = _asked(file)
    assert (found.status, bool(found.error)) == (None, True)
    pair = 'tls = { ca_file = "ca.pem", certificate = "client.pem", private_key = "client.key" }'
    with _target(files, pair, asks=True) as file:
        assert _asked(file).status == 200


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('tls = { ca_file = "none.pem" }', "ca_file"),
        ('tls = { ca_file = "client.key" }', "tls.ca_file"),
        ('tls = { certificate = "client.pem", private_key = "server.key" }', "tls.certificate"),
        ('tls = { private_key = "client.key" }', "tls.private_key"),
    ],
)
def test_files_that_are_no_certificates_are_bad_input(
    files: Files, table: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = files.folder / "bad.toml"
    file.write_text(f'base_url = "https://127.0.0.1:9"\n{table}\n', "utf-8")
    assert main(["run", str(file), "--out", str(files.folder / "bad")]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1
