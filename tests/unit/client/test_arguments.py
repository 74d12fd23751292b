"""What a session is given is checked before anything is sent."""

from typing import Any

import pytest

from holdfast.client import session
from holdfast.client.session import Session
from holdfast.common.errors import ConfigError


@pytest.mark.parametrize("name", ["app", "user"])
def test_half_a_character_is_refused_by_name(name: str) -> None:
    """A text that UTF-8 cannot write is told with its argument and place; no master is asked."""
    arguments: dict[str, Any] = {"endpoints": "127.0.0.1:1", "app": "a", "user": "u", name: "ab\ud800"}
    with pytest.raises(
        ConfigError, match=f"`{name}` has half a character at position 2, .* in 'ab.ud800': take it out"
    ):
        Session(**arguments)


def test_an_endpoint_that_is_none_is_shown_so_that_it_can_be_printed() -> None:
    """The message has it escaped; no master is asked."""
    with pytest.raises(ConfigError, match=r"'ab.ud800' is no endpoint") as refused:
        Session("ab\ud800", app="a")
    assert str(refused.value).encode()


def test_a_user_name_of_any_bytes_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs this process is taken from the environment, which may hold bytes that are no UTF-8."""
    monkeypatch.setenv("LOGNAME", "ab\udcff")
    assert session._user() == "ab?"
