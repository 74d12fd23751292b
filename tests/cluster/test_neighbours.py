"""Workers of one host, in real processes: one sends the heartbeats of all, and may die."""

from collections import Counter
from functools import partial
from pathlib import Path

from holdfast.client.cluster.local import LocalCluster, local_cluster
from holdfast.client.connection.direct import DirectConnection, ask
from holdfast.common.proto import holdfast_pb2 as pb
from tests.support.waiting import wait_until

QUICK = {"lease": {"worker": "4s", "heartbeat": "400ms", "tick": "100ms"}}


def listed(cluster: LocalCluster) -> dict[str, pb.WorkerInfo]:
    """The workers as the master has them, by name."""
    reply = ask(cluster.masters[0].address, "Admin/ListWorkers", pb.ListWorkersRequest(), pb.ListWorkersReply)
    return {each.name: each for each in reply.workers}


def calls(cluster: LocalCluster) -> float:
    """How many heartbeats the master was sent."""
    connection = DirectConnection(cluster.masters[0].address)
    lines = connection.get("/metrics").splitlines()
    connection.close()
    return sum(float(line.split()[1]) for line in lines if 'calls_total{method="Registry/Heartbeat"' in line)


def states_with(cluster: LocalCluster, lost: int) -> Counter[str] | None:
    """How many workers are in each state, once so many are lost."""
    states = Counter(each.state for each in listed(cluster).values())
    return states if states["lost"] >= lost else None


def test_a_host_is_heard_in_fewer_calls_than_it_has_workers(tmp_path: Path) -> None:
    """The master hears of three workers of one host more often than it is called. When workers are killed, whoever
    speaks among them, those that are left are never lost."""
    with local_cluster(1, dir=tmp_path, settings=QUICK, hosts=1, workers_per_host=3) as cluster:
        heard: Counter[str] = Counter()
        seen = {name: worker.last_seen_ms for name, worker in listed(cluster).items()}

        def look() -> bool:
            for name, worker in listed(cluster).items():
                heard[name] += worker.last_seen_ms < seen[name]
                seen[name] = worker.last_seen_ms
            return len(heard) == 3 and min(heard.values()) >= 6

        before = calls(cluster)
        wait_until(look, "heartbeats of all three", 60)
        assert calls(cluster) - before < heard.total()
        *killed, left = cluster.workers
        for number, worker in enumerate(killed, 1):
            worker.kill()
            states = wait_until(partial(states_with, cluster, number), f"{worker.name} to be lost", 60)
            assert states == {"lost": number, "alive": 3 - number}
        wait_until(lambda: listed(cluster)[left.name].last_seen_ms < 400, "a heartbeat of the one that is left")
        events = ask(cluster.masters[0].address, "Admin/ListEvents", pb.ListEventsRequest(), pb.ListEventsReply).events
        assert sum(each.times for each in events if each.event == "worker.lost") == len(killed)
