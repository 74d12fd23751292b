"""`holdfast spark-jar` and `holdfast spark-conf`: the settings for spark-submit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click

from holdfast.common.limits import COPIES_MAX
from holdfast.tools.cli.output import json_option, masters_option, show

_home_option = click.option(
    "--spark-home",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Directory of the Spark meant. Default: SPARK_HOME, else the Spark of the installed PySpark.",
)


@click.command("spark-jar")
@_home_option
@json_option
def spark_jar(spark_home: Path | None, as_json: bool) -> int:
    """Print the path of the plug-in's jar, compiled for the installed Spark when it is first asked for."""
    from holdfast.client.spark.jar import installed_spark, jar

    spark = installed_spark(spark_home)
    path = str(jar(spark))
    document = {"jar": path, "spark": spark.version, "scala": spark.scala}
    show(document, as_json, lambda screen: screen.print(path, markup=False, highlight=False, soft_wrap=True))
    return 0


@click.command("spark-conf")
@masters_option
@click.option("--replication", type=click.IntRange(1, COPIES_MAX), default=1, help="Copies of the data. Default: 1.")
@click.option("--ack", type=click.Choice(["memory", "written", "synced"]), default="written", help="Default: written.")
@click.option("--ack-copies", type=click.IntRange(1, COPIES_MAX), help="Of the copies. Default: all.")
@click.option("--fallback", type=click.Choice(["auto", "never"]), default="auto", help="Default: auto.")
@click.option("--tags", default="", metavar="TAG,…", help="Only workers that have all of these. Default: any.")
@click.option(
    "--deploy-mode",
    type=click.Choice(["client", "cluster"]),
    default="client",
    help="Of spark-submit. With cluster relative HOLDFAST_CA and HOLDFAST_TOKEN_FILE stay relative. Default: client.",
)
@click.option(
    "--for",
    "cluster_manager",
    type=click.Choice(["local", "standalone", "yarn", "k8s"]),
    help="What runs the executors: k8s has the jar in its image, yarn ships it with Spark 3.5. Default: standalone.",
)
@click.option(
    "--jar", type=str, help="Its path for driver and executors, or its Maven coordinate. Default: spark-jar's."
)
@json_option
def spark_conf(
    masters: str,
    replication: int,
    ack: str,
    ack_copies: int | None,
    fallback: str,
    tags: str,
    deploy_mode: str,
    cluster_manager: str | None,
    jar: Path | None,
    as_json: bool,
) -> int:
    """Print the settings that send shuffles through Holdfast, as lines of spark-defaults.conf.

    For spark-submit: `holdfast spark-conf > holdfast.conf` and `--properties-file holdfast.conf`.
    """
    from holdfast.client.spark.settings import conf

    wanted = [each.strip() for each in tags.split(",") if each.strip()]
    settings = conf(
        masters,
        replication=replication,
        ack=cast(Any, ack),
        ack_copies=ack_copies,
        fallback=cast(Any, fallback),
        tags=wanted,
        deploy_mode=cast(Any, deploy_mode),
        cluster_manager=cast(Any, cluster_manager),
        jar=jar,
    )
    show(settings, as_json, lambda _: click.echo("\n".join(f"{key} {value}" for key, value in settings.items())))
    return 0
