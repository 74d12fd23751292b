"""The configurations in docs/operate/deployment.md: servers take them as they stand, and they fit together."""

import re

import pytest

from holdfast.common.config import config
from holdfast.common.config.config import Config
from tests.support.tree import ROOT


@pytest.fixture
def written() -> tuple[Config, Config]:
    """The master's and the worker's, as text in the page."""
    text = (ROOT / "docs" / "operate" / "deployment.md").read_text("utf-8")
    master, worker = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    return config.parse(master, source="master.toml"), config.parse(worker, source="worker.toml")


def test_servers_take_what_the_docs_show(written: tuple[Config, Config]) -> None:
    """Neither has a key that is unknown or lacks one that is needed."""
    master, worker = written
    assert config.require_master(master).name == "m1"
    assert len(master.master.peers) == 3
    config.require_worker(worker)


def test_what_the_docs_show_fits_together(written: tuple[Config, Config]) -> None:
    """One cluster, one DFS, and workers that know all masters; tiers, DFS and quotas are in it."""
    master, worker = written
    assert master.cluster.id == worker.cluster.id
    assert master.dfs == worker.dfs
    assert worker.dfs.url
    assert worker.worker.masters == tuple(peer.http for peer in master.master.peers)
    assert [each.tier for each in worker.worker.directories] == ["MEMORY", "SSD", "SSD", "HDD"]
    assert master.quota.application_bytes
    assert master.quota.users
