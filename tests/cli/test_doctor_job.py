"""`holdfast doctor --spark-conf` and the CA and the token that the settings name: what keeps jobs from starting."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.common.config.config import parse
from holdfast.common.security.server import read_secret
from holdfast.common.security.tokens import Keeper, TokenKind
from holdfast.tools.cli.commands.doctor import Patient
from holdfast.tools.doctor.core.findings import Symptom
from holdfast.tools.doctor.core.security import check_job
from holdfast.tools.doctor.job import gather_job
from tests.support.certificates import Authority
from tests.support.machine import OF_THE_MACHINE
from tests.support.users import ordinary_user

KEEPER = Keeper(b"0123456789abcdef" * 2, "prod")
DAY = 86_400


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Settings whose two files are as they should be."""
    (tmp_path / "ca.pem").write_text(Authority().pem)
    token(tmp_path, KEEPER.mint(TokenKind.USER, b"etl", int(time.time()), 90 * DAY))
    return {
        "spark.holdfast.security.ca": str(tmp_path / "ca.pem"),
        "spark.holdfast.security.tokenFile": str(tmp_path / "token"),
    }


def token(tmp_path: Path, text: str, mode: int = 0o640) -> None:
    """The token's file holds that."""
    (tmp_path / "token").write_text(text)
    (tmp_path / "token").chmod(mode)


def reported(settings: dict[str, str]) -> list[Symptom]:
    """What the doctor says of the two files."""
    return list(check_job(gather_job(settings)[0], "spark-defaults.conf", time.time()))


def test_files_as_they_should_be_are_left_alone(files: dict[str, str]):
    """A CA and a user's token that a group may read give nothing to say; settings that name none neither."""
    assert reported(files) == []
    assert reported({}) == []


def test_files_that_are_not_there_are_named(files: dict[str, str], tmp_path: Path):
    """Each of the two files that is missing is a problem of its own, with the setting and the path."""
    (tmp_path / "ca.pem").unlink()
    (tmp_path / "token").unlink()
    found = reported(files)
    assert [(each.code, each.level) for each in found] == [("spark-security", "problem")] * 2
    for each, name, key in zip(found, ("ca.pem", "token"), files, strict=True):
        assert f"there is no file {tmp_path}/{name}" in each.what
        assert key in each.where


def test_files_that_this_user_may_not_read_are_named(files: dict[str, str], tmp_path: Path):
    """A file that is another's is called so, in words and not in numbers of errors, with the path once."""
    (tmp_path / "token").chmod(0o000)
    tmp_path.chmod(0o755)
    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o000)
    settings = {**files, "spark.holdfast.security.ca": f"{hidden}/ca.pem"}
    with ordinary_user():
        found = reported(settings)
    hidden.chmod(0o700)
    assert [each.code for each in found] == ["spark-security"] * 2
    for each in found:
        assert "permission denied" in each.what
        assert each.what.count(str(tmp_path)) == 1


@pytest.mark.parametrize(
    "content",
    [bytes(range(128, 256)), "Schlüssel".encode(), b"", b"no certificate\n"],
    ids=["no text", "no ASCII", "empty", "something else"],
)
def test_a_ca_that_is_none_is_named(files: dict[str, str], tmp_path: Path, content: bytes):
    """Random bytes, text that is not ASCII, an empty file and other text where the CA should be are problems."""
    (tmp_path / "ca.pem").write_bytes(content)
    (found,) = reported(files)
    assert (found.code, found.level) == ("spark-security", "problem")
    assert "security.ca" in found.where


def test_tokens_with_which_no_job_starts_are_named(files: dict[str, str], tmp_path: Path):
    """No token, one that has ended, and one of a kind that makes no applications are problems, and none is shown."""
    now = int(time.time())
    for text, words in (
        ("hunter2", "holds no token"),
        (KEEPER.mint(TokenKind.USER, b"etl", now - 2 * DAY, DAY), "has expired"),
        (KEEPER.mint(TokenKind.VIEWER, b"prometheus", now, 90 * DAY), "of kind viewer"),
        (KEEPER.mint(TokenKind.SERVER, b"w1", now, 90 * DAY), "of kind server"),
    ):
        token(tmp_path, text)
        (found,) = reported(files)
        assert (found.code, found.level) == ("spark-security", "problem")
        assert words in found.what
        assert text not in f"{found}"


def test_tokens_that_do_and_should_not_stay_are_advised(files: dict[str, str], tmp_path: Path):
    """A token that ends within a week, or is an admin's, is advice; one that everybody may read is a problem."""
    now = int(time.time())
    token(tmp_path, KEEPER.mint(TokenKind.USER, b"etl", now, 2 * DAY))
    assert [(each.code, each.level) for each in reported(files)] == [("spark-security", "advice")]
    token(tmp_path, KEEPER.mint(TokenKind.ADMIN, b"ops", now, 90 * DAY))
    assert [(each.code, each.level) for each in reported(files)] == [("spark-security", "advice")]
    token(tmp_path, KEEPER.mint(TokenKind.USER, b"etl", now, 90 * DAY), mode=0o644)
    assert [(each.code, each.level) for each in reported(files)] == [("key-open", "problem")]


# On a cluster.


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A master and a worker with security."""
    with local_cluster(masters=1, workers=1, dir=tmp_path_factory.mktemp("job"), secure=True) as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the variables of this shell none counts."""
    for variable in ("HOLDFAST_CA", "HOLDFAST_TOKEN_FILE", "HOLDFAST_MASTERS"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def of_the_cluster(cluster: LocalCluster, files: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """Settings with which jobs start on it."""
    assert cluster.credentials is not None
    (tmp_path / "ca.pem").write_text(cluster.credentials.ca_pem)
    config = parse(Path(cluster.masters[0].config).read_text("utf-8")).cluster
    keeper = Keeper(read_secret(config.secret_file), config.id)
    token(tmp_path, keeper.mint(TokenKind.USER, b"etl", int(time.time()), 90 * DAY))
    return {**files, "spark.holdfast.master.endpoints": cluster.endpoints}


def seen(settings: dict[str, str], tmp_path: Path) -> tuple[Patient, list[tuple[str, str]]]:
    """What is said of a host with these settings, without what this machine and its Spark are to blame for."""
    file = tmp_path / "spark-defaults.conf"
    file.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
    endpoints = [each for key, each in settings.items() if key.endswith("endpoints")]
    patient = Patient(None, endpoints, True, file)
    others = OF_THE_MACHINE | {"spark-manager", "spark-jar", "spark-conflict", "java", "pyspark-python"}
    return patient, [(each.code, each.what) for each in patient.examine() if each.code not in others]


def test_a_host_in_order_needs_nothing_else(of_the_cluster: dict[str, str], tmp_path: Path):
    """With the user's token of the settings alone nothing is wrong; what it does not show is said not to be seen."""
    patient, found = seen(of_the_cluster, tmp_path)
    assert found == []
    assert any("which 127.0.0.1" in each and "takes" in each for each in patient.looked_at)
    assert {"masters", "workers"} <= set(patient.looked_at)
    assert any("clocks" in each and "viewer" in reason for each, reason in patient.not_looked_at.items())


def test_a_users_token_that_is_exported_is_no_problem(
    of_the_cluster: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """HOLDFAST_TOKEN_FILE with the token of a job shows less than a viewer's, and is nothing wrong."""
    (tmp_path / "token").chmod(0o600)
    monkeypatch.setenv("HOLDFAST_CA", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("HOLDFAST_TOKEN_FILE", str(tmp_path / "token"))
    assert seen(of_the_cluster, tmp_path)[1] == []


def test_files_of_another_cluster_are_reported_once(of_the_cluster: dict[str, str], tmp_path: Path):
    """A token made with another secret, and another CA, are one problem each, and masters are not blamed."""
    token(tmp_path, KEEPER.mint(TokenKind.USER, b"etl", int(time.time()), 90 * DAY))
    ((code, what),) = seen(of_the_cluster, tmp_path)[1]
    assert code == "spark-security"
    assert "not made with the secret of this cluster" in what
    (tmp_path / "ca.pem").write_text(Authority("others").pem)
    patient, ((code, what),) = seen(of_the_cluster, tmp_path)
    assert code == "spark-security"
    assert "does not vouch for the master" in what
    assert "masters" in patient.not_looked_at


def test_settings_without_the_files_are_named(of_the_cluster: dict[str, str], tmp_path: Path):
    """Settings that name neither CA nor token, where the masters want both, are a problem of the settings."""
    settings = {key: each for key, each in of_the_cluster.items() if "security" not in key}
    codes = [code for code, _ in seen(settings, tmp_path)[1]]
    assert sorted(codes) == ["spark-security", "token"]


def test_files_for_a_cluster_without_security_are_named(files: dict[str, str], tmp_path: Path):
    """Settings with CA and token for masters that speak no TLS are one problem, of the settings."""
    with local_cluster(masters=1, workers=0, dir=tmp_path / "plain") as plain:
        ((code, what),) = seen({**files, "spark.holdfast.master.endpoints": plain.endpoints}, tmp_path)[1]
    assert code == "spark-security"
    assert "uses no TLS" in what
