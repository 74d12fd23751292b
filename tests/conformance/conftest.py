"""Framed connections behave the same as they are and under TLS: every test of this folder runs both ways."""

import pytest

from tests.support import frame_world


@pytest.fixture(autouse=True, params=["plain", "tls"])
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Worlds of this test are plain, or under TLS."""
    monkeypatch.setattr(frame_world, "secured", request.param == "tls")
