"""Decides whether a connection may talk to this worker. Called by services/data_server.py for each HELLO."""

from __future__ import annotations

from holdfast.common.errors import ProtocolError
from holdfast.common.formats.messages import PROTOCOL_VERSION, Hello
from holdfast.common.statuses import Status


def check_hello(hello: Hello, cluster_id: str) -> None:
    """Raise ProtocolError with what to do if the sender is of another version or cluster."""
    if hello.version != PROTOCOL_VERSION:
        raise ProtocolError(
            f"this worker speaks version {PROTOCOL_VERSION} of the data protocol, not {hello.version}: run clients and "
            "workers of releases that go together (docs/upgrade.md; `holdfast doctor` names the odd ones)",
            status=Status.BAD_VERSION,
        )
    if hello.cluster_id != cluster_id:
        raise ProtocolError(
            f"this worker belongs to cluster {cluster_id!r}, not to {hello.cluster_id!r}; check the endpoints",
            status=Status.WRONG_CLUSTER,
        )
