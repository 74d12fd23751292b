"""Jobs on a standalone Spark cluster while its hosts, its executors, its master and Holdfast's servers die."""

from functools import partial
from pathlib import Path

import pytest

from holdfast.client.cluster.local import LocalCluster
from tests.spark.test_plugin import pushed
from tests.support.spark_conf import conf
from tests.support.standalone import HOSTS, Standalone
from tests.support.submitted import drill_on, own_answers, submitted

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_hosts_and_masters_of_spark_die(cluster: LocalCluster, standalone: Standalone, tmp_path: Path) -> None:
    """Rows are Spark's own through the death of a host with its executor and of Spark's master, which starts again."""
    own, before = own_answers(tmp_path / "own"), pushed(cluster)
    settings = conf(cluster.endpoints, fallback="never") | {"spark.executor.memory": "700m"}
    with submitted(tmp_path / "job", settings, "--master", standalone.address) as running:
        assert running.wait_for(0)["answers"] == own
        for kill, start in (
            (partial(standalone.kill_worker, HOSTS[1]), partial(standalone.start_worker, HOSTS[1])),
            (standalone.kill_master, standalone.start_master),
            (partial(standalone.kill_worker, HOSTS[0]), partial(standalone.start_worker, HOSTS[0])),
        ):
            assert running.after(kill)["answers"] == own
            start()
        running.end()
        assert "FetchFailed" not in running.said()
    assert pushed(cluster) > before


@pytest.mark.parametrize("killed", ["leader", "worker", "executors"])
def test_the_drill_on_a_standalone_cluster(standalone: Standalone, tmp_path: Path, killed: str) -> None:
    """`holdfast drill spark --spark-master spark://…`: equal answers, no map again, no fetch that fails."""
    drill_on(standalone.address, tmp_path, killed, {"spark.executor.memory": "1g"})
