"""`holdfast doctor --spark-conf` and the CA and the token that the settings name: what keeps jobs from starting."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.client.cli.doctoring.job import gather_job
from holdfast.client.core.doctor.findings import Finding
from holdfast.client.core.doctor.security import check_job
from holdfast.common.security.tokens import Keeper, Kind
from tests.support.certificates import Authority

KEEPER = Keeper(b"0123456789abcdef" * 2, "prod")
DAY = 86_400
NOBODY = 65_534


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Be nobody in particular, where the tests run as root."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Settings whose two files are as they should be."""
    (tmp_path / "ca.pem").write_text(Authority().pem)
    token(tmp_path, KEEPER.mint(Kind.USER, b"etl", int(time.time()), 90 * DAY))
    return {
        "spark.holdfast.security.ca": str(tmp_path / "ca.pem"),
        "spark.holdfast.security.tokenFile": str(tmp_path / "token"),
    }


def token(tmp_path: Path, text: str, mode: int = 0o640) -> None:
    """The token's file holds that."""
    (tmp_path / "token").write_text(text)
    (tmp_path / "token").chmod(mode)


def told(settings: dict[str, str]) -> list[Finding]:
    """What the doctor says of the two files."""
    return list(check_job(gather_job(settings)[0], "spark-defaults.conf", time.time()))


def test_files_as_they_should_be_are_left_alone(files: dict[str, str]):
    """A CA and a user's token that a group may read give nothing to say; settings that name none neither."""
    assert told(files) == []
    assert told({}) == []


def test_files_that_are_not_there_are_named(files: dict[str, str], tmp_path: Path):
    """Each of the two files that is missing is a problem of its own, with the setting and the path."""
    (tmp_path / "ca.pem").unlink()
    (tmp_path / "token").unlink()
    found = told(files)
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
        found = told(settings)
    hidden.chmod(0o700)
    assert [each.code for each in found] == ["spark-security"] * 2
    for each in found:
        assert "permission denied" in each.what
        assert each.what.count(str(tmp_path)) == 1


@pytest.mark.parametrize("content", [os.urandom(64) + b"\xff", "Schlüssel".encode(), b"", b"no certificate\n"])
def test_a_ca_that_is_none_is_named(files: dict[str, str], tmp_path: Path, content: bytes):
    """Random bytes, text that is not ASCII, an empty file and other text where the CA should be are problems."""
    (tmp_path / "ca.pem").write_bytes(content)
    (found,) = told(files)
    assert (found.code, found.level) == ("spark-security", "problem")
    assert "security.ca" in found.where


def test_tokens_with_which_no_job_starts_are_named(files: dict[str, str], tmp_path: Path):
    """No token, one that has ended, and one of a kind that makes no applications are problems, and none is shown."""
    now = int(time.time())
    for text, words in (
        ("hunter2", "holds no token"),
        (KEEPER.mint(Kind.USER, b"etl", now - 2 * DAY, DAY), "has ended"),
        (KEEPER.mint(Kind.VIEWER, b"prometheus", now, 90 * DAY), "of kind viewer"),
        (KEEPER.mint(Kind.SERVER, b"w1", now, 90 * DAY), "of kind server"),
    ):
        token(tmp_path, text)
        (found,) = told(files)
        assert (found.code, found.level) == ("spark-security", "problem")
        assert words in found.what
        assert text not in f"{found}"


def test_tokens_that_do_and_should_not_stay_are_advised(files: dict[str, str], tmp_path: Path):
    """A token that ends within a week, or is an admin's, is advice; one that everybody may read is a problem."""
    now = int(time.time())
    token(tmp_path, KEEPER.mint(Kind.USER, b"etl", now, 2 * DAY))
    assert [(each.code, each.level) for each in told(files)] == [("spark-security", "advice")]
    token(tmp_path, KEEPER.mint(Kind.ADMIN, b"ops", now, 90 * DAY))
    assert [(each.code, each.level) for each in told(files)] == [("spark-security", "advice")]
    token(tmp_path, KEEPER.mint(Kind.USER, b"etl", now, 90 * DAY), mode=0o644)
    assert [(each.code, each.level) for each in told(files)] == [("key-open", "problem")]
