"""Who may send which frames, once security is on. Pure.

Rules: masters and workers show that they have the cluster's secret; a client shows the token of an application, and
each of its frames that names a shuffle names one of that application. What names none (credit, files and streams by
their handles) belongs to its connection. Called by services/data_server.py.
"""

from __future__ import annotations

from holdfast.common.errors import ForbiddenError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Role
from holdfast.common.ids import INSTANCE_BYTES
from holdfast.common.security.tokens import Identity, TokenKind, must_be

#: Frames whose meta begins with the key of a shuffle, so with an instance.
NAMING = frozenset(
    {
        FrameType.PUSH,
        FrameType.REPLICATE,
        FrameType.SEAL,
        FrameType.MAP_OPEN,
        FrameType.MAP_SEAL,
        FrameType.MAP_ABORT,
        FrameType.STREAM_OPEN,
        FrameType.CHUNKS_OPEN,
        FrameType.REGISTERED,
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


def check_role(identity: Identity, role: Role) -> None:
    """Raise ForbiddenError unless the bearer may open a connection in this role."""
    must_be(identity, TokenKind.APPLICATION if role is Role.CLIENT else TokenKind.SERVER)


def check_frame(identity: Identity, frame_type: FrameType, meta: bytes) -> None:
    """Raise ForbiddenError unless the bearer may send this frame."""
    if identity.kind is TokenKind.SERVER or frame_type not in NAMING:
        return
    if meta[:INSTANCE_BYTES] != identity.subject:
        raise ForbiddenError("this connection's token is of another application")
