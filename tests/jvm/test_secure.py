"""TLS and tokens of the Java plug-in without a cluster: connections, strangers, which token is shown."""

from pathlib import Path

import pytest

from holdfast.common.security.tokens import Keeper, TokenKind
from tests.support.jvm import Jvm
from tests.support.tls import ca_of, key_store

#: The quick compiler alone knows nothing of a CPU's instructions for AES.
BOTH_COMPILERS = ("-XX:TieredStopAtLevel=4",)
HERE = ("127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A CA and a server's key store."""
    made = tmp_path_factory.mktemp("tls")
    key_store(made, "good", *HERE)
    return made


def test_bytes_pass_tls_whole_and_strangers_are_refused(jvm: Jvm, directory: Path, tmp_path: Path) -> None:
    """Records cut anywhere, new keys all the time, buffers of any size, a server that does not read: what is sent
    arrives, and nobody waits for a socket while decrypted bytes lie here. A server of another CA or name, without TLS
    or with an old one, or a silent one is refused in words that say why."""
    other_ca = key_store(tmp_path, "stranger", *HERE)
    other_name = key_store(directory, "elsewhere", "elsewhere.example")
    said = jvm.run("secure.TlsMain", ca_of(directory), directory / "good.p12", other_ca, other_name, seconds=120.0)
    assert said.endswith("ok\n")


def test_connections_to_workers_are_the_same_through_tls(jvm: Jvm, directory: Path) -> None:
    """Frames in any slices, long bodies, refusals, the pool: all that holds for plain connections holds through TLS."""
    files = ca_of(directory), directory / "good.p12"
    assert jvm.run("data.DataMain", *files, seconds=180.0, options=BOTH_COMPILERS) == "ok\n"


def test_the_newest_token_is_shown_and_none_is_reported(jvm: Jvm, directory: Path) -> None:
    """Java reads of a token what Python wrote into it; of two it shows the newer; no text and no error has one."""
    instance = bytes(range(16))
    for of_user in (b"", b"of whom."):
        subject = instance + of_user
        token = Keeper(b"a secret of sixteen", "cluster").mint(TokenKind.APPLICATION, subject, 1_800_000_000, 600)
        reported = jvm.run("secure.CredentialsMain", ca_of(directory), token)
        assert reported.splitlines() == [f"1800000000 1800000600 {instance.hex()}", "ok"]
