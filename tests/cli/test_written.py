"""Commands that write files tell what cannot be written before the work where they can, and lose nothing they found."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.tools.cli.commands.drill import Asked, _tell
from holdfast.tools.cli.commands.export import _whole
from holdfast.tools.cli.main import run
from holdfast.tools.drills.support.report import Report


@pytest.mark.parametrize("where", ["none/page.html", "."])
def test_a_page_that_cannot_be_is_reported_before_the_drill(
    tmp_path: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """--html in a directory that is not there, or that is one, ends with status 2 and no server is started."""
    state = tmp_path / "state"
    assert run(["drill", "leader", "--html", str(tmp_path / where), "--dir", str(state)]) == 2
    assert "--html" in capsys.readouterr().err
    assert not state.exists()


def test_what_a_drill_found_is_reported_before_its_page_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page that cannot be written any more costs the page alone; it is bad news, and no wrong usage."""
    page = tmp_path / "gone" / "page.html"
    asked = Asked(count=1, seed=7, directory=None, html=page, as_json=True, inventory=None, yes=False)
    with pytest.raises(HoldfastError) as reported:
        _tell(asked, [Report("leader", 7, 1)])
    assert not isinstance(reported.value, ConfigError)
    assert '"drill": "leader"' in capsys.readouterr().out


def test_an_export_that_finds_no_room_is_bad_news(tmp_path: Path) -> None:
    """A full disk is no wrong usage; the sentence says what to do, and nothing half is left."""

    def export_half() -> None:
        with _whole(tmp_path / "part") as unfinished:
            unfinished.write_bytes(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(HoldfastError, match="export again") as reported:
        export_half()
    assert not isinstance(reported.value, ConfigError)
    assert list(tmp_path.iterdir()) == []
