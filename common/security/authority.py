"""A certificate authority for trials: makes a CA, and certificates of servers, with the package `cryptography`.

Rules: keys are P-256, written with mode 0600; what is there is never overwritten. Whoever has a CA of their own needs
none of this: servers take any PEM files. Called by `holdfast ca` and by the local cluster.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.common.errors import ConfigError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise ConfigError("making certificates needs the package cryptography: pip install 'holdfast[ca]'") from error

CA_CERTIFICATE, CA_KEY = "ca.pem", "ca.key"
#: Clocks of hosts that are a little behind take a fresh certificate, too.
_BACK = datetime.timedelta(minutes=5)


def make_ca(directory: Path, days: int = 3650) -> Path:
    """Make `ca.pem` and `ca.key` in a directory, which is made with mode 0700; return the certificate's path.

    Raises ConfigError if one is there.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Holdfast trial CA")])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    built = (
        _builder(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    _write_key(directory / CA_KEY, key)
    return _write(directory / CA_CERTIFICATE, _pem(built.sign(key, hashes.SHA256())), 0o644)


def issue(directory: Path, name: str, hosts: Sequence[str], days: int = 365) -> tuple[Path, Path]:
    """Make NAME.pem and NAME.key beside the CA, for a server that is reached by these host names and addresses.

    Returns their paths. Raises ConfigError if there is no CA, no host, or such a certificate already.
    """
    if not name or "/" in name or not hosts:
        raise ConfigError("a certificate is of a server's name, and of at least one host by which others reach it")
    try:
        ca = x509.load_pem_x509_certificate((directory / CA_CERTIFICATE).read_bytes())
        ca_key = serialization.load_pem_private_key((directory / CA_KEY).read_bytes(), password=None)
    except (OSError, ValueError) as error:
        raise ConfigError(f"there is no CA in {directory}: make one with `holdfast ca init {directory}`") from error
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{directory / CA_KEY} is not a key that `holdfast ca init` made")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    built = (
        _builder(subject, ca.subject, key.public_key(), days)
        .add_extension(x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
    )
    key_file = _write_key(directory / f"{name}.key", key)
    return _write(directory / f"{name}.pem", _pem(built.sign(ca_key, hashes.SHA256())), 0o644), key_file


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACK)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> Path:
    raw = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return _write(path, raw, 0o600)


def _write(path: Path, data: bytes, mode: int) -> Path:
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
    except FileExistsError:
        raise ConfigError(f"{path} is there already; remove it, or take another name") from None
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error}") from error
    return path
