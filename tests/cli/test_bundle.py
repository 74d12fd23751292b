"""`holdfast doctor --bundle`: whole where nothing answers, without secrets, and only written where it may be."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import stat
import tarfile
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast.common.config.config import Config
from holdfast.common.security.bundle import Bundle
from holdfast.common.security.redaction import KnownSecret, Redactor
from holdfast.common.security.tokens import Keeper, TokenKind
from holdfast.common.system.ports import free_ports
from holdfast.tools.cli.main import run

MARKED = [
    (section.name, key.name, key.metadata["secret"])
    for section in dataclasses.fields(Config)
    for key in dataclasses.fields(section.default_factory)  # type: ignore[arg-type]
    if key.metadata["secret"]
]


def unpacked(data: bytes) -> dict[str, str]:
    """The files of a bundle by their names below its folder."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = {}
        for each in tar.getmembers():
            file = tar.extractfile(each)
            assert file is not None
            assert stat.S_IMODE(each.mode) == 0o600
            found[each.name.partition("/")[2]] = file.read().decode()
        return found


def secret_of(name: str) -> str:
    """A secret with letters that JSON, TOML and URLs write in other ways."""
    return f'hush-{name}/\u00e9"\\{name}+and=more'


def planted(folder: Path) -> tuple[str, list[str]]:
    """A configuration with a secret in every key that is marked, or in the file that it names; and the secrets."""
    tables: dict[str, dict[str, str]] = {}
    secrets = []
    for section, key, part in MARKED:
        secret = secret_of(f"{section}-{key}")
        secrets.append(secret)
        value = secret
        if part == "file":
            (folder / key).write_text(f"{secret}\n{secret}-in-a-second-line\n", "utf-8")
            secrets.append(f"{secret}-in-a-second-line")
            value = str(folder / key)
        tables.setdefault(section, {})[key] = value
    tables["dfs"] |= {"url": "s3://bucket/prefix"}
    tables["placement"] |= {"resolver": "mine"}
    text = "".join(
        f"[{section}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
        for section, keys in tables.items()
    )
    worker = f'name = "w1"\nmasters = ["127.0.0.1:{free_ports(1)[0]}"]\ndirectories = [{{ path = "{folder}/data" }}]\n'
    return f"{text}[worker]\n{worker}", secrets


def log_with(secrets: list[str]) -> str:
    """A log that has each secret in several forms, and some that are known by their form or name alone."""
    forms = [form for each in secrets for form in (each, json.dumps(each)[1:-1], quote(each, safe=""), repr(each))]
    lines = [f"2026-01-01T00:00:00.000Z INFO some.event about={form} and more" for form in forms]
    lines += ["GET http://me:hush-in-a-url@host/x", 'password="hush-by-name"', "Authorization: Basic hush-in-a-header"]
    lines += ["-----BEGIN PRIVATE KEY-----", "HUSHINAPEMBLOCK", "-----END PRIVATE KEY-----", "the last line"]
    return "\n".join(lines)


def test_a_bundle_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """With a secret in every setting that can hold one, sound or refused, in the environment, in Spark's settings and
    in logs, none is in the bundle, in whatever form. What does not answer is listed, and so is what was removed. The
    file has mode 0600, and is not replaced without a question."""
    text, secrets = planted(tmp_path)
    token = Keeper(b"0123456789abcdef", "prod").mint(TokenKind.ADMIN, b"root", 1_000, 9_000)
    (tmp_path / "token").write_text(token)
    secrets += [token, "hush-of-the-environment", "hush-of-spark", "hush-unnamed-spark"]
    monkeypatch.delenv("HOLDFAST_MASTERS", raising=False)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-of-the-environment")
    (tmp_path / "server.toml").write_text(text, "utf-8")
    refused = text.replace("s3://bucket/prefix", "s3://me:hush-in-a-url@bucket/prefix")
    (tmp_path / "refused.toml").write_text(refused + '\n[quota]\nuser_files = "no number"\n', "utf-8")
    (tmp_path / "spark.conf").write_text(
        f"spark.hadoop.fs.s3a.secret.key hush-of-spark\nspark.my.setting hush-unnamed-spark\n"
        f"spark.holdfast.security.tokenFile {tmp_path}/token\nspark.holdfast.replication 2\n"
    )
    (tmp_path / "server.log").write_text(log_with(secrets), "utf-8")
    target = tmp_path / "bundle.tar.gz"
    words = ["doctor", "--bundle", str(target), "--log", str(tmp_path / "server.log"), "--json"]
    words += [word for name in ("server", "refused") for word in ("--config", str(tmp_path / f"{name}.toml"))]
    words += ["--spark-conf", str(tmp_path / "spark.conf")]
    assert run(words) == 0
    listed = json.loads(capsys.readouterr().out)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    files = unpacked(target.read_bytes())
    whole = "\n".join([*files, *files.values()])
    for secret in secrets:
        coded = base64.b64encode(secret.encode()).decode()
        for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe=""), coded):
            assert form not in whole, secret
    assert "hush" not in whole.lower()
    assert files["logs/1-server.log.txt"].endswith("the last line")
    assert json.loads(files["settings/1-server.json"])["settings"]["dfs"]["url"] == "s3://bucket/prefix"
    assert json.loads(files["doctor.json"])["findings"], "a file that is refused does not keep the doctor from the rest"
    assert json.loads(files["spark.json"])["spark.holdfast.replication"] == "2"
    missing = {each["name"] for each in listed["missing"]}
    assert {"settings/2-refused.json", "cluster/workers.json", "directories/1.json"} <= missing
    assert sum(each["removed"].get("dfs.access_key", 0) for each in listed["files"]) > 1
    assert {each["name"] for each in listed["files"]} | {"contents.json"} == files.keys()
    before = target.read_bytes()
    assert run(words) == 2
    assert "pass --yes" in capsys.readouterr().err
    assert target.read_bytes() == before


def test_a_bundle_is_bounded():
    """A text that is too long keeps its end, a document that is too long is left out, and both say so."""
    bundle = Bundle(Redactor([]), (1 << 20) + 1_000)
    bundle.add_json("long.json", "x" * 2_000)
    bundle.add_text("log.txt", "begin" + "x" * 2_000 + "end")
    bundle.add_text("more.txt", "nothing fits")
    files = unpacked(bundle.finish())
    assert len(files["log.txt"]) == 1_000
    assert files["log.txt"].startswith("(the beginning was cut off)")
    assert files["log.txt"].endswith("end")
    contents = json.loads(files["contents.json"])
    assert [each["name"] for each in contents["missing"]] == ["long.json", "more.txt"]


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("is pass here", "is (removed) here"),
        ("surpassed", "surpassed"),
        ("xlongsecretx", "x(removed)x"),
        ("longsecret-and-longer", "(removed)"),
        ("s3://a:b/c@host/x, http://host/y", "s3://(removed)@host/x, http://host/y"),
        ("a\nAuthorization: Bearer abc def\nb", "a\nAuthorization: (removed)\nb"),
        ("secret_key_file: /etc/key", "secret_key_file: /etc/key"),
        ("?X-Amz-Signature=abc&x=1", "?X-Amz-Signature=(removed)&x=1"),
    ],
)
def test_what_is_removed(text: str, clean: str):
    """Known values, whole, and what has the form or the name of a secret; nothing else."""
    secrets = [KnownSecret("a", each) for each in ("pass", "longsecret", "longsecret-and-longer", "x")]
    assert Redactor(secrets).text(text, Counter()) == clean


def test_documents_keep_their_form():
    """Texts, keys and numbers of JSON are cleaned where they stand, and what is removed is counted by cause."""
    removed = Counter[str]()
    document = {"a": [12345678, "x 12345678"], "token": "t", "n": 1}
    found = Redactor([KnownSecret("k", "12345678")]).document(document, removed)
    assert found == {"a": ["(removed)", "x (removed)"], "token": "(removed)", "n": 1}
    assert removed == {"k": 2, "a value behind a secret's name": 1}
