"""The plug-in against a secured cluster: jobs run as without, tokens are nowhere to be found, refusals are told."""

import hashlib
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import worker_status
from holdfast.common.errors import ConfigError
from holdfast.common.security.tokens import PREFIX, Keeper, TokenKind
from tests.spark.test_plugin import SUMS, TOTALS, job
from tests.support.changing import files_below
from tests.support.spark_conf import conf
from tests.support.standalone import Standalone
from tests.support.tls import ca_of
from tests.support.tree import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(900)
#: Of an application's token, where it is to end under running tasks: executors start meanwhile.
LIFE_S = 60
#: A first contact through TLS on a machine that is busy with other tests.
PATIENT = {"spark.holdfast.register.timeout": "60s"}
EXECUTORS = "local-cluster[1,2,1024]"
#: What Spark is asked for beside.
FEATURES = {
    "spark.memory.offHeap.enabled": "true",
    "spark.memory.offHeap.size": "256m",
    "spark.io.encryption.enabled": "true",
    "spark.sql.adaptive.localShuffleReader.enabled": "true",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "5s",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.shuffle.push.enabled": "true",
    "spark.executor.memory": "700m",
    "spark.executorEnv.PYTHONPATH": str(ROOT),  # the functions of the job are in its module
}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A master and a worker with security."""
    with local_cluster(1, 1, dir=tmp_path_factory.mktemp("secure") / "cluster", secure=True) as started:
        yield started


def settings(secured: LocalCluster, directory: Path, token: str, ca: Path | None = None) -> dict[str, str]:
    """conf() for a user of this cluster, whose token lies in a file."""
    file = directory / "user.token"
    file.write_text(token)
    ca = ca or secured.directory / "security" / "ca.pem"
    return conf(secured.endpoints, fallback="never", ca=ca, token_file=file) | PATIENT


def minted(secured: LocalCluster, life_s: int = 3_600, begins: int = 0) -> str:
    """A token of a user."""
    keeper = Keeper((secured.directory / "secret").read_bytes().strip(), (secured.directory / "cluster").read_text())
    return keeper.mint(TokenKind.USER, b"etl", int(time.time()) + begins, life_s)


def pushed(secured: LocalCluster) -> int:
    """Bytes that the workers took."""
    found = [worker_status(worker.http, 5.0, secured.credentials)["counters"] for worker in secured.workers]
    return sum(each["push_bytes"] for each in found)


def tokens_below(directory: Path, besides: Path) -> list[Path]:
    """Files that have a token in them."""
    found = [path for path in files_below(directory) if path != besides]
    return [path for path in found if PREFIX.encode() in contents_of(path)]


def contents_of(path: Path) -> bytes:
    """What a file holds; nothing where it went meanwhile, as workers delete what the application had."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def test_a_job_through_a_secured_cluster(secured: LocalCluster, tmp_path: Path) -> None:
    """Executors in processes of their own, which have no files, shuffle through TLS; no token is in any log, not in the
    executors' at DEBUG, in Spark's event log or among its settings."""
    log = tmp_path / "executors.log"
    (tmp_path / "events").mkdir()
    (tmp_path / "log4j2.properties").write_text(
        "rootLogger.level=info\nrootLogger.appenderRef.f.ref=f\nlogger.h.name=org.apache.spark\nlogger.h.level=debug\n"
        f"appender.f.type=File\nappender.f.name=f\nappender.f.fileName={log}\nappender.f.append=true\n"
        "appender.f.layout.type=PatternLayout\nappender.f.layout.pattern=%p %c %m%n%ex\n"
    )
    events = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(tmp_path / "events"),
        "spark.executor.extraJavaOptions": f"-Dlog4j2.configurationFile={tmp_path}/log4j2.properties",
    }
    before = pushed(secured)
    with job("sums", settings(secured, tmp_path, minted(secured)) | events, tmp_path, EXECUTORS) as running:
        assert running.step() == SUMS
        assert pushed(secured) > before
        running.go()
        assert running.step() == "stopped"
    assert tokens_below(tmp_path, besides=tmp_path / "user.token") == []
    assert tokens_below(secured.directory, besides=secured.directory / "security" / "admin.token") == []
    assert any(os.scandir(tmp_path / "events"))
    assert "DEBUG org.apache.spark.shuffle.holdfast" in log.read_text()


def test_a26_no_token_is_in_a_task_or_on_a_page(secured: LocalCluster, tmp_path: Path) -> None:
    """What Spark's closure serializer makes of a shuffle has neither token nor CA in it, nor has Spark's page or its
    interface anything of them, and the tasks in executors of their own have the token all the same."""
    with job("carried", settings(secured, tmp_path, minted(secured)), tmp_path, EXECUTORS) as running:
        reported = running.step()
        assert reported["totals"] == TOTALS
        assert "HoldfastShuffleHandle" in reported["carried"]
        assert "spark.holdfast.security.tokenFile" in reported["environment"]
        for where, text in reported.items():
            assert PREFIX not in str(text), where
            assert "CERTIFICATE" not in str(text), where


def test_a26_a_token_in_the_settings_is_refused_and_not_repeated(secured: LocalCluster, tmp_path: Path) -> None:
    """Who gives a token where the path of a file is wanted hears so, and no log has the token."""
    token = minted(secured)
    with pytest.raises(ConfigError, match="a token itself was given") as reported:
        conf(secured.endpoints, ca=secured.directory / "security" / "ca.pem", token_file=token)
    assert token not in str(reported.value)
    asked = settings(secured, tmp_path, token) | {"spark.holdfast.security.tokenFile": token}
    with job("sums", asked, tmp_path) as running:
        with pytest.raises(AssertionError, match="is the path of a file"):
            running.step()
        assert token not in running.log()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.feature("TLS and tokens")
@pytest.mark.feature("DataFrames, SQL, RDDs")
@pytest.mark.feature("Kryo")
@pytest.mark.feature("off-heap memory")
@pytest.mark.feature("I/O encryption")
@pytest.mark.feature("AQE: skew joins, local readers")
@pytest.mark.feature("barrier stages")
@pytest.mark.feature("speculation")
@pytest.mark.feature("Structured Streaming with state")
@pytest.mark.feature("`spark.shuffle.push.enabled` switched off")
def test_features_of_spark_in_one_application(
    secured: LocalCluster, standalone: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors on two hosts that encrypt and keep rows outside the heap run SQL and RDDs, a barrier stage that is
    tried again, two attempts of a map at once, a stream that goes on from its checkpoint, split and local reads of AQE:
    every answer is exact. Spark's own pushing is switched off with a sentence."""
    monkeypatch.setenv("HOLDFAST_JOB_DIR", str(tmp_path))
    asked, before = settings(secured, tmp_path, minted(secured, 7_200)) | FEATURES, pushed(secured)
    with job("features", asked, tmp_path, standalone.address, "plugin_features_job") as running:
        stream = [[batches, by_key(rows)] for batches, rows in (([0, 1, 2], 3_000), ([3, 4, 5], 6_000))]
        for expected in (SUMS, by_key(2_000, flat=True), by_key(2_000, flat=True), *stream, skewed_answers()):
            assert running.step() == expected
            running.go()
        assert (tmp_path / "failed").exists(), "a task of the barrier stage"
        assert all((tmp_path / attempt).exists() for attempt in ("0-0", "0-1")), "two attempts of a map"
        spark = running.step()
        assert spark["spark.serializer"].endswith(".KryoSerializer")
        assert spark["spark.shuffle.push.enabled"] == "false"
        assert running.log().count("spark.shuffle.push.enabled is switched off") == 1
        assert "does not come" not in running.log(), "Spark has tried what should have had a twin again"
    assert pushed(secured) > before


def by_key(rows: int, flat: bool = False) -> list[Any]:
    """How many of the first numbers have each last digit, and their sum, as the jobs of plugin_life_job.py give it."""
    found = [(key, range(key, rows, 10)) for key in range(10)]
    return [[key, len(all_of), sum(all_of)] if flat else [key, [len(all_of), sum(all_of)]] for key, all_of in found]


def skewed_answers() -> list[Any]:
    """What `skewed` of plugin_io_job.py gives: rows of the first join; rows and two sums of the second; the plans."""
    keys = [(1 if number % 10 < 8 else number % 1000, str(number).encode()) for number in range(200_000)]
    joined = [(key, hashlib.sha256(text).hexdigest()) for key, text in keys if key % 100 == 1]
    texts = sum(zlib.crc32(text.encode()) for _, text in joined)
    return [2_000, len(joined), texts, sum(2 * key for key, _ in joined), True, True]


@pytest.mark.long
def test_tasks_outlive_their_tokens(tmp_path: Path) -> None:
    """Maps that write, and readers that read on, longer after they began than any token lives: executors show newer
    ones by then."""
    life = {"security": {"token_life": f"{LIFE_S}s"}}
    directory = {"spark.test.directory": str(tmp_path)}
    with local_cluster(1, 1, dir=tmp_path / "cluster", settings=life, secure=True) as ending:
        reported = settings(ending, tmp_path, minted(ending)) | directory
        with job("outliving", reported, tmp_path, EXECUTORS) as running:
            assert running.step() == "begun"
            running.go()
            for who in ("maps", "readers"):
                wait_until((tmp_path / f"{who}-waits").exists, f"{who} to begin", 180.0)
                wait_for(time.time() + LIFE_S + 2)
                (tmp_path / f"{who}-go").touch()
            assert running.step() == TOTALS


def wait_for(ends: float) -> None:
    """Return when all tokens of now have ended."""
    wait_until(lambda: time.time() > ends, "the tokens of that time to end", LIFE_S + 5)


@pytest.mark.long
@pytest.mark.parametrize("wrong", ["ca", "secret", "ended"])
def test_refusals_are_reported(secured: LocalCluster, tmp_path: Path, wrong: str) -> None:
    """With another CA, a token of another secret or one that ended the job fails and says which, never the token."""
    ca, token = None, minted(secured)
    if wrong == "ca":
        ca, words = ca_of(tmp_path / "other"), "its certificate was made by another CA"
    elif wrong == "secret":
        token = Keeper(bytes(32), "x").mint(TokenKind.USER, b"etl", int(time.time()), 3_600)
        words = "the token was not made with the secret of this cluster"
    else:
        token, words = minted(secured, 50, begins=-100), "the token has expired"
    with job("sums", settings(secured, tmp_path, token, ca), tmp_path) as running:
        with pytest.raises(AssertionError, match=words):
            running.step()
        assert "fallback is never" in running.log()
    assert tokens_below(tmp_path, besides=tmp_path / "user.token") == []
