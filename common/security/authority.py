"""A certificate authority for trials: makes a CA, and certificates of servers, with the package `cryptography`.

Rules: keys are P-256, written with mode 0600; what is there is never overwritten, except by the local cluster, which
renews what it made. A file is whole or not there; a key whose certificate was never written gets one by the next try.
Whoever has a CA of their own needs none of this: servers take any PEM files. Called by `holdfast ca` and by the local
cluster.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import ssl
import time
from collections.abc import Sequence
from pathlib import Path

from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.security.expiry import meet
from holdfast.common.system.files import read_small, read_small_text, write_whole
from holdfast.common.version import installing

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise ConfigError(f"making certificates needs the package cryptography: {installing('ca')}") from error

CA_CERTIFICATE, CA_KEY = "ca.pem", "ca.key"
#: Clocks of hosts that are a little behind take a fresh certificate, too.
_BACK = datetime.timedelta(minutes=5)
#: Names of files and of hosts. A host's last label is no number: those are addresses.
_NAME = re.compile(r"[^\W_][\w.@+-]*", re.ASCII)
_HOST = re.compile(
    r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*(?!\d+$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?",
    re.IGNORECASE | re.ASCII,
)
_HOST_CHARS_MAX = 253
#: The local cluster renews a certificate that ends sooner.
_RENEW_S = 30 * 86_400


def make_ca(directory: Path, days: int = 3650) -> Path:
    """Make `ca.pem` and `ca.key` in a directory, which is made with mode 0700; return the certificate's path.

    Raises ConfigError if one is there.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"no CA can be kept in {directory}: {error.strerror or error}: name a directory") from None
    _refuse_whole(directory / CA_CERTIFICATE)
    key = _key(directory / CA_KEY)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Holdfast trial CA")])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    built = (
        _builder(name, name, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return _write(directory / CA_CERTIFICATE, _pem(built.sign(key, hashes.SHA256())), 0o644)


def issue(
    directory: Path, name: str, hosts: Sequence[str], days: int = 365, *, anew: bool = False
) -> tuple[Path, Path]:
    """Make NAME.pem and NAME.key beside the CA, for a server that is reached by these host names and addresses.

    `anew`: also where they are there. Returns their paths. Raises ConfigError if there is no CA, no host, what no host
    is called, or such a certificate already.
    """
    if not _NAME.fullmatch(name) or not hosts:
        raise ConfigError(
            "a certificate is of a server's name, of letters, digits and .@+-_ (its files are called so), and of at "
            f"least one host by which others reach it; {name!r} is no such name"
        )
    alternatives = [_alternative(host) for host in hosts]
    ca, ca_key = _authority(directory)
    certificate, key_file = directory / f"{name}.pem", directory / f"{name}.key"
    if not anew:
        _refuse_whole(certificate)
    key = _key(key_file, anew=anew)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    built = (
        _builder(subject, ca.subject, key.public_key(), days)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
    )
    return _write(certificate, _pem(built.sign(ca_key, hashes.SHA256())), 0o644, anew=anew), key_file


def keep(directory: Path, name: str, hosts: Sequence[str]) -> None:
    """Have a CA and a server's certificate in a directory: what is missing, incomplete, has ended or soon ends is made
    anew, the CA only if it was never whole. Raises ConfigError."""
    certificate, key = directory / CA_CERTIFICATE, directory / CA_KEY
    if not _whole(certificate) or (key.exists() and not _whole(key)):
        certificate.unlink(missing_ok=True)
        make_ca(directory)
    if not _good(directory, name, hosts):
        issue(directory, name, hosts, anew=True)


def _good(directory: Path, name: str, hosts: Sequence[str]) -> bool:
    """Whether clients believe the certificate, and will for a while."""
    listening = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        listening.load_cert_chain(directory / f"{name}.pem", directory / f"{name}.key")
    except (OSError, ssl.SSLError):
        return False
    met = meet(listening, read_small_text(directory / CA_CERTIFICATE, "the CA"), hosts)
    return met.ends_s > time.time() + _RENEW_S and not met.names_missing


def _authority(directory: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        ca = x509.load_pem_x509_certificate(read_small(directory / CA_CERTIFICATE, "the CA"))
        ca_key = serialization.load_pem_private_key(read_small(directory / CA_KEY, "the CA's key"), password=None)
    except (ConfigError, ValueError, TypeError) as error:
        raise ConfigError(f"there is no CA in {directory}: make one with `holdfast ca init {directory}`") from error
    if not isinstance(ca_key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{directory / CA_KEY} is not a key that `holdfast ca init` made")
    if ca.not_valid_after_utc < datetime.datetime.now(datetime.UTC):
        raise ConfigError(f"the CA in {directory} has expired: make one in a new directory with `holdfast ca init`")
    return ca, ca_key


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
    """A host as certificates have it. Raises ConfigError for an unusable name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    if _HOST.fullmatch(host) and len(host) <= _HOST_CHARS_MAX:
        return x509.DNSName(host)
    raise ConfigError(
        f"{host!r} is neither a host name nor an address: give it without port and brackets, such as w1.example.org, "
        "10.0.0.1 or ::1, and a name with other letters as DNS has it, which begins with xn--"
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _whole(path: Path) -> bool:
    """Whether there is anything: a kill of earlier versions left empty files."""
    return path.is_file() and path.stat().st_size > 0


def _refuse_whole(path: Path) -> None:
    if _whole(path):
        raise ConfigError(f"{path} exists already; remove it, or choose another name")


def _key(path: Path, *, anew: bool = False) -> ec.EllipticCurvePrivateKey:
    """The key of a certificate that is not there: one that was left without, else a new one, written first."""
    if _whole(path) and not anew:
        try:
            found = serialization.load_pem_private_key(read_small(path, "the key"), password=None)
        except (ValueError, TypeError):
            found = None
        if not isinstance(found, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{path} exists, and is not a key of Holdfast's; remove it, or choose another name")
        return found
    key = ec.generate_private_key(ec.SECP256R1())
    raw = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write(path, raw, 0o600, anew=anew)
    return key


def _write(path: Path, data: bytes, mode: int, *, anew: bool = False) -> Path:
    try:
        write_whole(path, data, mode, new=not anew)
    except FileExistsError:
        raise ConfigError(f"{path} exists already; remove it, or choose another name") from None
    except OSError as error:
        raise HoldfastError(f"cannot write {path}: {error.strerror or error}; nothing is left of it") from error
    return path
