"""Power that goes while maps push, in short form, and a worker that skips its syncs, which must be found."""

from pathlib import Path

import pytest

from holdfast.common.errors import HoldfastError
from tests.power.machines import skip_reason
from tests.power.run import LostError, rehearse

pytestmark = [pytest.mark.long, pytest.mark.skipif(bool(skip_reason()), reason=skip_reason())]


def test_power_cuts_lose_nothing_that_is_promised(tmp_path: Path) -> None:
    """A few cuts of real file systems: what is SYNCED, sealed or on two copies is exact, the rest exact or LOST by
    name; they did drop writes, and some data was lost by name, so they were cuts."""
    counts = rehearse(tmp_path, seed=7, cuts=6)
    assert counts["exact"]
    assert counts["lost by name"]
    assert counts["writes dropped"] + counts["writes kept"]


def test_a_worker_that_skips_its_syncs_is_found(tmp_path: Path) -> None:
    """With syncs of files and folders turned off in the workers, the same finds lost data."""
    with pytest.raises((LostError, HoldfastError)):
        rehearse(tmp_path, seed=2, cuts=30, mistake="nothing_is_synced")
