"""Faults of clocks and networks: off unless they are enabled, told where they are on."""

import pytest

from holdfast.common.config.config import parse
from holdfast.common.errors import ConfigError
from holdfast.common.net import detour


def faults(lines: str):
    """The section with these lines."""
    return parse(f"[faults]\nenabled = true\n{lines}").faults


def test_a_clock_jumps_to_and_fro():
    """In every other interval the clock of the day is off by the jump, beginning with the second."""
    section = faults('clock_jump = "-1h"\nclock_jump_every = "2s"')
    assert [section.jumped_ns(second * 10**9) // 10**9 for second in (0, 1, 2, 3, 4, 6)] == [
        0,
        0,
        -3600,
        -3600,
        0,
        -3600,
    ]
    assert parse("").faults.jumped_ns(10**12) == 0


def test_faults_are_reported():
    """Clock and network stand in the status beside those of disks."""
    section = faults('clock_offset = "-5s"\nclock_jump = "1h"\nclock_jump_every = "2s"\ndetour = "127.0.0.11"')
    assert section.others() == ["clock_offset=-5s", "clock_jump=1h every 2s", "detour=127.0.0.11"]
    assert parse("").faults.others() == []


@pytest.mark.parametrize(
    ("lines", "reported"),
    [
        ('detour = "10.0.0.1"', "loopback"),
        ('detour = "proxy"', "loopback"),
        ('clock_jump = "1h"', "go together"),
        ('clock_jump_every = "1s"', "go together"),
    ],
)
def test_faults_that_cannot_be_are_refused(lines: str, reported: str):
    """A detour stays on this machine; a jump needs its interval."""
    with pytest.raises(ConfigError, match=reported):
        faults(lines)


def test_a_detour_leads_there_and_ends():
    """Only the ports that are meant are led elsewhere, and nothing afterwards."""
    with detour.take("127.0.0.11", [1]):
        assert detour.through("127.0.0.1", 1) == "127.0.0.11"
        assert detour.through("127.0.0.1", 2) == "127.0.0.1"
    assert detour.through("127.0.0.1", 1) == "127.0.0.1"


def test_a_configured_detour_is_for_all_ports_and_only_if_enabled():
    """A server takes the one of its configuration."""
    detour.take_configured(parse("").faults)
    assert detour.through("127.0.0.1", 1) == "127.0.0.1"
    try:
        detour.take_configured(faults('detour = "127.0.0.12"'))
        assert detour.through("127.0.0.1", 9) == "127.0.0.12"
    finally:
        detour.take_none()
