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
from typing import TYPE_CHECKING, Any, Literal

from holdfast.client.checks import checked_tags
from holdfast.client.spark.jar import check_jar, installed_spark
from holdfast.client.spark.jar import jar as find_jar
from holdfast.common.errors import ConfigError
from holdfast.common.limits import COPIES_MAX
from holdfast.common.net.control import parse_endpoints
from holdfast.common.security.credentials import CA_VARIABLE, TOKEN_VARIABLE, check_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTERS_VARIABLE = "HOLDFAST_MASTERS"
PACKAGE = "org.apache.spark.shuffle.holdfast"
MANAGER = f"{PACKAGE}.HoldfastShuffleManager"

#: What the plug-in warns of otherwise: each costs time or applies to Spark's own shuffle alone.
_BESIDE = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.sql.adaptive.localShuffleReader.enabled": "false",
    "spark.dynamicAllocation.shuffleTracking.enabled": "false",
}


def enable(builder: SparkSession.Builder, endpoints: str | None = None, **options: Any) -> SparkSession.Builder:
    """Have the session that this builder makes send every shuffle through Holdfast, and return the builder.

    `endpoints` are the masters ("host:port,host:port"), by default what HOLDFAST_MASTERS names; `options` are those of
    conf(). Raises ConfigError as conf() does, without masters, and for a builder of a client of Spark Connect, whose
    server has its shuffle manager already.
    """
    asked: dict[str, Any] = getattr(builder, "_options", {})
    _check_remote(str(asked.get("spark.remote", "")), str(asked.get("spark.master", "")), elsewhere="")
    masters = endpoints if endpoints is not None else os.environ.get(MASTERS_VARIABLE, "")
    if not masters:
        raise ConfigError(
            f'no masters are named: pass endpoints="host:port,host:port,host:port" or set {MASTERS_VARIABLE}; '
            "`holdfast local` starts some to try, and prints them"
        )
    return builder.config(map={**conf(masters, **options)})


def conf(
    endpoints: str,
    *,
    replication: int = 1,
    ack: Literal["memory", "written", "synced"] = "written",
    ack_copies: int | None = None,
    fallback: Literal["auto", "never"] = "auto",
    tags: Sequence[str] = (),
    jar: str | Path | None = None,
    ca: str | Path | None = None,
    token_file: str | Path | None = None,
    deploy_mode: Literal["client", "cluster"] = "client",
    here: bool = True,
) -> dict[str, str]:
    """Return the settings for an application that shuffles through the masters at `endpoints` ("host:port,host:port").

    `replication` is the number of copies, 1 to 5; `ack` what a copy is before it counts, `ack_copies` how many copies
    hold a push before it is acknowledged, by default all; `fallback` whether Spark's own shuffle serves where Holdfast
    cannot be reached at registration. `tags`: shuffles go to workers that have all of these. `jar` defaults to the one
    for the installed Spark, which is compiled when it is first asked for. For a secured cluster `ca` and `token_file`
    are the paths, on the driver's host, of the CA's certificate in PEM and of a user's token, by default what
    HOLDFAST_CA and HOLDFAST_TOKEN_FILE name. `deploy_mode`: of spark-submit; with "cluster" the driver runs elsewhere,
    and relative paths of these two are below its working directory, into which `--files` puts files. `here`: a session
    of this process will use them; False if they are for another one. Raises ConfigError for wrong values, if no jar can
    be made or `jar` is not Holdfast's for this Spark, and if a Spark runs in this process that cannot take them any
    more.
    """
    masters = parse_endpoints(endpoints)
    if here:
        _check_remote()
        _check_running()
    if replication not in range(1, COPIES_MAX + 1):
        raise ConfigError(f"replication is 1 to {COPIES_MAX}, not {replication!r}")
    if ack_copies is not None and ack_copies not in range(1, replication + 1):
        raise ConfigError(f"ack_copies is 1 to {replication}, the copies that there are, not {ack_copies!r}")
    for name, value, known in (
        ("ack", ack, ("memory", "written", "synced")),
        ("fallback", fallback, ("auto", "never")),
        ("deploy_mode", deploy_mode, ("client", "cluster")),
    ):
        if value not in known:
            raise ConfigError(f"{name} is {' or '.join(map(str, known))}, not {value!r}")
    return {
        "spark.shuffle.manager": MANAGER,
        "spark.shuffle.sort.io.plugin.class": f"{PACKAGE}.HoldfastShuffleDataIO",
        "spark.holdfast.master.endpoints": ",".join(masters),
        "spark.holdfast.replication": str(replication),
        "spark.holdfast.ack": ack,
        **({"spark.holdfast.ack.copies": str(ack_copies)} if ack_copies is not None else {}),
        "spark.holdfast.fallback": fallback,
        **({"spark.holdfast.tags": ",".join(checked_tags(tags))} if tags else {}),
        **_security(ca, token_file, elsewhere=deploy_mode == "cluster"),
        **_where(jar),
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


def _check_remote(
    remote: str = "", master: str = "", elsewhere: str = "; or pass here=False if they are for another process"
) -> None:
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


def _check_running() -> None:
    """Raise ConfigError if a JVM of Spark's runs in this process that would not take the settings: it was started
    without the plug-in, or its session has another shuffle manager, which `getOrCreate` keeps without a word."""
    context: Any = getattr(sys.modules.get("pyspark"), "SparkContext", None)
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
        raise ConfigError(
            "a JVM of Spark's runs in this process already, without Holdfast's jar on its class path, where nothing can"
            " be added: start a new Python process (in a notebook: restart the kernel) and give the settings to its"
            " first session; or pass here=False if they are for another process"
        ) from None
    active = context._active_spark_context
    if active is not None and active.getConf().get("spark.shuffle.manager", "") != MANAGER:
        raise ConfigError(
            "a Spark session runs in this process with another shuffle manager, which cannot be changed: end it with"
            " spark.stop() before conf() is called; or pass here=False if the settings are for another process"
        )


def _where(jar: str | Path | None) -> dict[str, str]:
    """How the jar reaches driver and executors: 3.5 makes the shuffle manager before it fetches `spark.jars`."""
    spark = installed_spark()
    path = str(jar if jar is not None else find_jar(spark))
    if jar is not None:
        check_jar(path, spark)
    if spark.line < (4, 0):
        path = path.removeprefix("file:").removeprefix("local:")
        return {"spark.driver.extraClassPath": path, "spark.executor.extraClassPath": path}
    return {"spark.jars": path}
