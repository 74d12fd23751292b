"""Who may send which frames: an application's frames are of its own shuffles."""

import pytest

from holdfast.common.errors import ForbiddenError
from holdfast.common.formats.frame import FrameType
from holdfast.common.formats.messages import Role
from holdfast.common.security.tokens import Bearer, TokenKind
from holdfast.worker.core.access import NAMING, check_frame, check_role

OWN, OTHER = bytes(16), bytes(15) + b"x"
APPLICATION = Bearer(TokenKind.APPLICATION, OWN, 1 << 40)
SERVER = Bearer(TokenKind.SERVER, b"w1", 1 << 40)


@pytest.mark.parametrize("frame_type", sorted(NAMING))
def test_frames_that_name_another_application_are_refused(frame_type: FrameType) -> None:
    """Also those that are cut; a worker forwards for everybody."""
    check_frame(APPLICATION, frame_type, OWN + b"rest")
    check_frame(SERVER, frame_type, OTHER + b"rest")
    for meta in (OTHER + b"rest", OWN[:15], b""):
        with pytest.raises(ForbiddenError):
            check_frame(APPLICATION, frame_type, meta)


def test_roles_go_with_kinds() -> None:
    """Clients are applications; masters and workers have the cluster's secret."""
    check_role(APPLICATION, Role.CLIENT)
    for role in (Role.WORKER, Role.MASTER):
        check_role(SERVER, role)
        for kind in TokenKind:
            if kind is not TokenKind.SERVER:
                with pytest.raises(ForbiddenError):
                    check_role(Bearer(kind, OWN, 1 << 40), role)
    for kind in TokenKind:
        if kind is not TokenKind.APPLICATION:
            with pytest.raises(ForbiddenError):
                check_role(Bearer(kind, OWN, 1 << 40), Role.CLIENT)
