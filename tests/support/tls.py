"""Certificates of a test: a CA, and servers' keys as PEM and, for Java servers, as PKCS #12."""

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12

from holdfast.common.security.authority import CA_CERTIFICATE, issue, make_ca

#: Of the key stores; what they hold is worth nothing.
PASSWORD = b"holdfast"


def ca_of(directory: Path) -> Path:
    """The certificate of the CA in a directory, which is made where it is not there."""
    made = directory / CA_CERTIFICATE
    return made if made.exists() else make_ca(directory)


def key_store(directory: Path, name: str, *hosts: str) -> Path:
    """A server's key and certificate, of the CA in this directory."""
    ca_of(directory)
    certificate, key = issue(directory, name, hosts)
    pair = serialization.load_pem_private_key(key.read_bytes(), None)
    assert isinstance(pair, ec.EllipticCurvePrivateKey)
    packed = pkcs12.serialize_key_and_certificates(
        name.encode(),
        pair,
        x509.load_pem_x509_certificate(certificate.read_bytes()),
        None,
        serialization.BestAvailableEncryption(PASSWORD),
    )
    store = directory / f"{name}.p12"
    store.write_bytes(packed)
    return store
