"""PySpark on Holdfast: without a jar, and the settings of the plug-in for Spark's ShuffleManager.

from holdfast.client.spark import attach, conf, enable, share, shuffle, shuffle_id
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.common.system.lazy import lazily

if TYPE_CHECKING:
    from holdfast.client.spark.api import attach, shuffle, shuffle_id
    from holdfast.client.spark.jar import NoCompilerError
    from holdfast.client.spark.settings import conf, enable
    from holdfast.client.spark.sharing import share

__all__ = ["NoCompilerError", "attach", "conf", "enable", "share", "shuffle", "shuffle_id"]

_HOMES = {
    "NoCompilerError": "holdfast.client.spark.jar",
    "attach": "holdfast.client.spark.api",
    "conf": "holdfast.client.spark.settings",
    "enable": "holdfast.client.spark.settings",
    "share": "holdfast.client.spark.sharing",
    "shuffle": "holdfast.client.spark.api",
    "shuffle_id": "holdfast.client.spark.api",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(__name__, _HOMES)
