"""`holdfast top`: the order in which workers are shown."""

from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.tools.cli.commands.top import document_of


def worker(name: str, host: str, rate: int) -> pb.WorkerInfo:
    return pb.WorkerInfo(name=name, host=host, state="alive", push_rate=rate)


def names(workers: list[pb.WorkerInfo], rows: int = 20) -> list[str]:
    return [each["name"] for each in document_of(workers, (), 0, rows)["workers"]]


def test_workers_of_a_host_stand_together() -> None:
    """The busiest host first, in it the busiest worker; with one worker a host it is the busiest worker. What is cut
    off is of the idlest host."""
    several = [worker("a1", "a", 50), worker("b1", "b", 40), worker("a2", "a", 1), worker("b2", "b", 30)]
    assert names(several) == ["b1", "b2", "a1", "a2"]
    assert names(several, 2) == ["b1", "b2"]
    assert names([worker("a1", "a", 1), worker("b1", "b", 2), worker("c1", "c", 3)]) == ["c1", "b1", "a1"]
