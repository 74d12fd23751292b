"""Holdfast, a remote shuffle service for Spark: the names that most programs need.

    with holdfast.connect() as session:                                             # the masters of HOLDFAST_MASTERS
        by_key = df.transform(holdfast.shuffle, 64, "key", session=session)

holdfast.client, holdfast.client.spark and holdfast.client.arrow.tables have these and all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.common.system.lazy import lazily
from holdfast.common.version import VERSION

if TYPE_CHECKING:
    from holdfast.client.cluster.local import local_cluster
    from holdfast.client.session import Session, connect
    from holdfast.client.spark.api import shuffle
    from holdfast.client.spark.settings import enable
    from holdfast.common.errors import HoldfastError

__all__ = ["HoldfastError", "Session", "__version__", "connect", "enable", "local_cluster", "shuffle"]

__version__ = VERSION

_HOMES = {
    "HoldfastError": "holdfast.common.errors",
    "Session": "holdfast.client.session",
    "connect": "holdfast.client.session",
    "enable": "holdfast.client.spark.settings",
    "local_cluster": "holdfast.client.cluster.local",
    "shuffle": "holdfast.client.spark.api",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(__name__, _HOMES)
