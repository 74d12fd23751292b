"""PySpark on Holdfast: without a jar, and the settings of the plug-in for Spark's ShuffleManager.

    from holdfast.client.spark import attach, conf, enable, share, shuffle, shuffle_id

The names are imported when they are first used: a task needs only its own half.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.client.spark.api import attach, shuffle, shuffle_id
    from holdfast.client.spark.settings import conf, enable
    from holdfast.client.spark.sharing import share

__all__ = ["attach", "conf", "enable", "share", "shuffle", "shuffle_id"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = {"conf": "settings", "enable": "settings", "share": "sharing"}.get(name, "api")
    return getattr(import_module(f"holdfast.client.spark.{home}"), name)
