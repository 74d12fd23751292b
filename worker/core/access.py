"""Who may talk to this worker, and who may send which frames once security is on. Pure.

Rules: whoever greets speaks our version and belongs to our cluster. With security, masters and workers show that they
have the cluster's secret; a client shows the token of an application, and each of its frames that names a shuffle names
one of that application. What names none (credit, files and streams by their handles) belongs to its connection. Called
by services/data_server.py.
"""

from __future__ import annotations

from holdfast.common.errors import ForbiddenError, ProtocolError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import PROTOCOL_VERSION, Hello, Role
from holdfast.common.ids import INSTANCE_BYTES
from holdfast.common.security.tokens import Bearer, TokenKind, must_be
from holdfast.common.statuses import Status

#: Frames whose meta begins with the key of a shuffle, so with an instance.
NAMING = frozenset(
    {
        FrameType.PUSH,
        FrameType.REPLICATE,
        FrameType.PUSH_SETTLE,
        FrameType.SEAL,
        FrameType.MAP_OPEN,
        FrameType.MAP_SEAL,
        FrameType.MAP_ABORT,
        FrameType.STREAM_OPEN,
        FrameType.CHUNKS_OPEN,
        FrameType.REGISTERED,
        FrameType.RESTORE,
    }
)
#: Frames that belong to their connection, by handle or stream, or to nobody.
NAMELESS = frozenset(
    {
        FrameType.HELLO,
        FrameType.CLOSING,
        FrameType.PING,
        FrameType.MAP_PUSH,
        FrameType.PUSH_CREDIT,
        FrameType.STREAM_CREDIT,
        FrameType.STREAM_CLOSE,
        FrameType.STREAM_DATA,
        FrameType.CHUNKS_DATA,
    }
)

assert frozenset(FrameType) == NAMING | NAMELESS, "nobody adds a frame without saying whose it is"
assert not NAMING & NAMELESS


def check_hello(hello: Hello, cluster_id: str) -> None:
    """Raise ProtocolError with what to do if the sender is of another version or cluster."""
    if hello.version != PROTOCOL_VERSION:
        raise ProtocolError(
            f"this worker has version {PROTOCOL_VERSION} of the data protocol, not {hello.version}: run clients and "
            "workers of releases that go together (docs/operate/upgrade.md; `holdfast doctor` names the odd ones)",
            status=Status.BAD_VERSION,
        )
    if hello.cluster_id != cluster_id:
        raise ProtocolError(
            f"this worker belongs to cluster {cluster_id!r}, not to {hello.cluster_id!r}; check the endpoints",
            status=Status.WRONG_CLUSTER,
        )


def check_role(identity: Bearer, role: Role) -> None:
    """Raise ForbiddenError unless the bearer may open a connection in this role."""
    must_be(identity, TokenKind.APPLICATION if role is Role.CLIENT else TokenKind.SERVER)


def check_frame(identity: Bearer, frame_type: FrameType, meta: bytes) -> None:
    """Raise ForbiddenError unless the bearer may send this frame."""
    if identity.kind is TokenKind.SERVER or frame_type not in NAMING:
        return
    if meta[:INSTANCE_BYTES] != identity.subject:
        raise ForbiddenError("this connection's token is of another application")
