"""The Spark settings that send every shuffle of an application through Holdfast.

Rules: what is returned is complete and plain, text to text, for `SparkSession.builder.config(map=…)`, SparkConf or
spark-submit. Settings that are the plug-in's own have their defaults in Java and are named only where they are asked
for. Exported as `holdfast.client.spark.conf` (a module of that name would hide the function) and `enable`; called by
`holdfast spark-conf`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from holdfast.client.checks import AckName, ack_of, checked_tags
from holdfast.client.spark.jar import COORDINATE, check_coordinate, check_jar, installed_spark
from holdfast.client.spark.jar import jar as find_jar
from holdfast.common.errors import ConfigError
from holdfast.common.formats.messages import Ack
from holdfast.common.limits import COPIES_MAX
from holdfast.common.net.endpoints import masters_of
from holdfast.common.security.credentials import CA_VARIABLE, TOKEN_VARIABLE, check_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = "org.apache.spark.shuffle.holdfast"
MANAGER = f"{PACKAGE}.HoldfastShuffleManager"

ClusterManager = Literal["local", "standalone", "yarn", "k8s"]
#: Where deploy/kubernetes/Containerfile puts the jar.
_IMAGE_JAR = "/opt/holdfast/holdfast-spark.jar"

#: Ends the advice of an error that concerns this process alone.
_ELSEWHERE = "; or pass here=False if the settings are for another process"

#: What the plug-in warns of otherwise: each costs time or applies to Spark's own shuffle alone.
_BESIDE = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.sql.adaptive.localShuffleReader.enabled": "false",
    "spark.dynamicAllocation.shuffleTracking.enabled": "false",
}


def enable(
    builder: SparkSession.Builder, endpoints: str | Sequence[str] | None = None, **options: Any
) -> SparkSession.Builder:
    """Send every shuffle of this builder's session through Holdfast; return the builder.

    endpoints: the masters, "host:port,host:port" or a list; default: HOLDFAST_MASTERS.
    options: those of conf() but `here`. Raises ConfigError as conf(), without masters, and for a Spark Connect client.
    """
    if "here" in options:
        raise ConfigError("enable() is for a session of this process; for another process pass here=False to conf()")
    asked: dict[str, Any] = getattr(builder, "_options", {})
    _check_remote(str(asked.get("spark.remote", "")), str(asked.get("spark.master", "")))
    _check_running()
    return builder.config(map={**conf(endpoints, here=False, **options)})


def conf(
    endpoints: str | Sequence[str] | None = None,
    *,
    replication: int = 1,
    ack: Ack | AckName = "written",
    ack_copies: int | None = None,
    fallback: Literal["auto", "never"] = "auto",
    tags: Sequence[str] = (),
    jar: str | Path | None = None,
    ca: str | Path | None = None,
    token_file: str | Path | None = None,
    deploy_mode: Literal["client", "cluster"] = "client",
    cluster_manager: ClusterManager | None = None,
    here: bool = True,
) -> dict[str, str]:
    """Return the Spark settings for the plug-in and the masters.

    endpoints: as in enable().
    replication: copies, 1 to 5.
    ack_copies: copies that acknowledge a push; default: all.
    fallback: "auto" uses Spark's own shuffle if Holdfast cannot be reached or refuses at registration.
    tags: use only workers with all these tags.
    jar: its path, or group:artifact:version in a Maven repository (Spark 4); default: the one for the installed Spark,
        compiled at first use.
    ca, token_file: for a secured cluster, paths on the driver's host: the CA (PEM) and a user's token; default:
        HOLDFAST_CA and HOLDFAST_TOKEN_FILE.
    deploy_mode: with "cluster" relative paths of these are in the driver's working directory (`--files`).
    cluster_manager: what runs the executors, where that changes how the jar gets there: "k8s" (in the image), "yarn"
        (with Spark 3.5); "local", "standalone".
    here: False if another process will use the settings.
    Raises ConfigError for wrong values, without a fitting jar, and if Spark runs here that cannot take them.
    """
    masters = masters_of(endpoints)
    if here:
        _check_remote(elsewhere=_ELSEWHERE)
        _check_running(elsewhere=_ELSEWHERE)
    if replication not in range(1, COPIES_MAX + 1):
        raise ConfigError(f"replication is 1 to {COPIES_MAX}, not {replication!r}")
    if ack_copies is not None and ack_copies not in range(1, replication + 1):
        raise ConfigError(f"ack_copies is 1 to {replication}, the copies that there are, not {ack_copies!r}")
    for name, value, known in (
        ("fallback", fallback, ("auto", "never")),
        ("deploy_mode", deploy_mode, ("client", "cluster")),
        ("cluster_manager", cluster_manager, (None, *get_args(ClusterManager))),
    ):
        if value not in known:
            raise ConfigError(f"{name} is {' or '.join(map(str, known))}, not {value!r}")
    return {
        "spark.shuffle.manager": MANAGER,
        "spark.shuffle.sort.io.plugin.class": f"{PACKAGE}.HoldfastShuffleDataIO",
        "spark.holdfast.master.endpoints": ",".join(masters),
        "spark.holdfast.replication": str(replication),
        "spark.holdfast.ack": ack_of(ack).name.lower(),
        **({"spark.holdfast.ack.copies": str(ack_copies)} if ack_copies is not None else {}),
        "spark.holdfast.fallback": fallback,
        **({"spark.holdfast.tags": ",".join(checked_tags(tags))} if tags else {}),
        **_security(ca, token_file, elsewhere=deploy_mode == "cluster"),
        **_where(jar, cluster_manager, elsewhere=deploy_mode == "cluster"),
        **_BESIDE,
    }


def _security(ca: str | Path | None, token_file: str | Path | None, elsewhere: bool) -> dict[str, str]:
    """Where the driver finds what it shows; the files are read by it, and never travel in settings."""
    if ca is None and token_file is None:
        ca, token_file = os.environ.get(CA_VARIABLE) or None, os.environ.get(TOKEN_VARIABLE) or None
    if (ca is None) != (token_file is None):
        missing = f"ca (or {CA_VARIABLE})" if ca is None else f"token_file (or {TOKEN_VARIABLE})"
        raise ConfigError(f"{missing} is missing: a secured cluster takes both, another one neither")
    if ca is None or token_file is None:
        return {}
    check_path(token_file)
    # A driver that spark-submit starts here may have another working directory; one elsewhere has other files.
    paths = (Path(each) if elsewhere else Path(each).absolute() for each in (ca, token_file))
    return dict(zip(("spark.holdfast.security.ca", "spark.holdfast.security.tokenFile"), map(str, paths), strict=True))


def _check_remote(remote: str = "", master: str = "", elsewhere: str = "") -> None:
    """Raise ConfigError if sessions here are clients of a server of Spark Connect that runs elsewhere, which ignores
    such settings without a word: what was asked for or SPARK_REMOTE says so, or there is one. `elsewhere` ends the
    advice."""
    if "SPARK_LOCAL_REMOTE" in os.environ:
        return  # PySpark has started the server for this process
    connect: Any = getattr(sys.modules.get("pyspark.sql.connect.session"), "SparkSession", None)
    # The active session is one thread's, the default session everybody's.
    there = connect is not None and (connect.getActiveSession() or getattr(connect, "_default_session", None))
    named = (remote or os.environ.get("SPARK_REMOTE", ""), master)
    if there or any(each.startswith("sc://") for each in named):
        raise ConfigError(
            "a client of Spark Connect cannot choose how its server shuffles: start the server with these settings"
            " (`holdfast spark-conf > holdfast.conf`, then --properties-file holdfast.conf) and leave them out here"
            f"{elsewhere}"
        )


def _check_running(elsewhere: str = "") -> None:
    """Raise ConfigError if a JVM of Spark's runs in this process that would not take the settings: it was started
    without the plug-in, or its session has another shuffle manager, which `getOrCreate` keeps without a word.
    `elsewhere` ends the advice."""
    context: Any = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if context is not None and submitted:
        context._ensure_initialized()  # by now connected to the JVM that spark-submit has started
    jvm = getattr(context, "_jvm", None)
    if jvm is None:
        return
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(MANAGER)
    except Exception as error:
        if "ClassNotFoundException" not in str(error):
            raise ConfigError(
                f"the JVM of this process does not answer: {error}; start a new Python process"
            ) from error
        if submitted:
            raise ConfigError(
                "spark-submit has started the JVM without Holdfast's jar, and nothing can be added: give it the"
                " settings (`holdfast spark-conf > holdfast.conf`, then --properties-file holdfast.conf), or run the"
                f" script with python{elsewhere}"
            ) from None
        raise ConfigError(
            "a JVM of Spark's runs in this process already, without Holdfast's jar on its class path, where nothing can"
            " be added: start a new Python process (in a notebook: restart the kernel) and give the settings to its"
            f" first session{elsewhere}"
        ) from None
    active = context._active_spark_context
    if active is not None and active.getConf().get("spark.shuffle.manager", "") != MANAGER:
        raise ConfigError(
            "a Spark session runs in this process with another shuffle manager, which cannot be changed: end it with"
            f" spark.stop() before you call this{elsewhere}"
        )


def _where(jar: str | Path | None, manager: ClusterManager | None, elsewhere: bool) -> dict[str, str]:
    """How the jar reaches driver and executors: 3.5 makes the shuffle manager before it fetches `spark.jars`. YARN puts
    files into the directory of each container before; pods have what is in their image."""
    coordinate = COORDINATE.fullmatch(str(jar))
    if manager == "k8s" and coordinate is None:
        return _class_paths(str(jar if jar is not None else _IMAGE_JAR))
    spark = installed_spark()
    if coordinate is not None:
        check_coordinate(coordinate[0], spark)
        return {"spark.jars.packages": coordinate[0]}
    path = str(jar if jar is not None else find_jar(spark))
    if jar is not None:
        check_jar(path, spark)
    if spark.line >= (4, 0):
        return {"spark.jars": path}
    if manager == "yarn" and not path.startswith("local:"):
        name = path.rpartition("/")[2]
        driver = name if elsewhere else path.removeprefix("file:")
        return {"spark.yarn.dist.files": path} | _class_paths(driver, name)
    return _class_paths(path)


def _class_paths(driver: str, executor: str | None = None) -> dict[str, str]:
    paths = (each.removeprefix("file:").removeprefix("local:") for each in (driver, executor or driver))
    return dict(zip(("spark.driver.extraClassPath", "spark.executor.extraClassPath"), paths, strict=True))
