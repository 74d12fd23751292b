"""A certificate authority for tests: certificates of servers, as files, and what both sides make of them."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holdfast.common.security.credentials import TLS_LEAST, Credentials

_NOW = datetime.datetime.now(datetime.UTC)
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """A server's certificate with its key, as PEM."""

    certificate: bytes
    key: bytes

    def files(self, folder: Path) -> tuple[Path, Path]:
        """Write both and return where."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = folder / "server.crt", folder / "server.key"
        paths[0].write_bytes(self.certificate)
        paths[1].touch(0o600)
        paths[1].write_bytes(self.key)
        return paths

    def context(self, folder: Path) -> ssl.SSLContext:
        """What a server listens with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = TLS_LEAST
        context.num_tickets = 0
        context.load_cert_chain(*self.files(folder))
        return context


class Authority:
    """Signs."""

    def __init__(self, name: str = "tests") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"CA of {name}")])
        builder = self._builder(self._name, self._key.public_key(), 30)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def issue(self, *hosts: str, days: int = 1) -> Certificate:
        """A certificate for these names and addresses; `days` below 0: it has ended."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
        alternatives = x509.SubjectAlternativeName([_general(host) for host in hosts])
        builder = self._builder(name, key.public_key(), days).add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        return Certificate(certificate, key.private_bytes(encoding, form, serialization.NoEncryption()))

    def credentials(self, token: str = "token") -> Credentials:
        """What a client of such servers shows."""
        return Credentials(self.pem, token)

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(key)
        begin = _NOW - 10 * _DAY
        return (
            builder.serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(_NOW + days * _DAY)
        )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


@cache
def authority() -> Authority:
    """The one that most tests use."""
    return Authority()
