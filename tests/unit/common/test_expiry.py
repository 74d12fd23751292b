"""When a certificate ends, as a server tells it in its metrics."""

from pathlib import Path

from cryptography import x509

from holdfast.common.security.expiry import certificate_ends_s
from tests.support.certificates import Authority, authority


def test_the_end_is_that_of_the_certificate(tmp_path: Path) -> None:
    """It is read from the certificate that is shown; another CA's word, and one that has ended, make it 0."""
    signer = authority()
    issued = signer.issue("host.example", days=3)
    wanted = int(x509.load_pem_x509_certificate(issued.certificate).not_valid_after_utc.timestamp())
    listening = issued.context(tmp_path / "good")
    assert certificate_ends_s(listening, signer.pem) == wanted
    assert certificate_ends_s(listening, Authority("others").pem) == 0
    assert certificate_ends_s(signer.issue("host.example", days=-1).context(tmp_path / "ended"), signer.pem) == 0
