"""What clients make of a server's certificate, as servers find it at their start and tell it in their metrics."""

from pathlib import Path

from cryptography import x509

from holdfast.common.security.expiry import meet
from tests.support.certificates import Authority, authority


def test_the_end_is_that_of_the_certificate(tmp_path: Path) -> None:
    """It is read from the certificate that is shown; another CA's word, and one that has ended, make it 0."""
    signer = authority()
    issued = signer.issue("host.example", days=3)
    wanted = int(x509.load_pem_x509_certificate(issued.certificate).not_valid_after_utc.timestamp())
    listening = issued.context(tmp_path / "good")
    assert meet(listening, signer.pem).ends_s == wanted
    assert meet(listening, Authority("others").pem).ends_s == 0
    assert meet(signer.issue("host.example", days=-1).context(tmp_path / "ended"), signer.pem).ends_s == 0


def test_names_are_met_as_clients_meet_them(tmp_path: Path) -> None:
    """Names and addresses that the certificate has are believed; others, and what nobody can be called, are missing."""
    signer = authority()
    listening = signer.issue("host.example", "10.0.0.1", "::1").context(tmp_path)
    assert meet(listening, signer.pem, ["host.example", "10.0.0.1", "::1"]).names_missing == ()
    assert meet(listening, signer.pem, ["example", "10.0.0.2", "", "example"]).names_missing == (
        "example",
        "10.0.0.2",
        "",
    )
