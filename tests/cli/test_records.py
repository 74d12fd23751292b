"""One shape for one thing: what --json prints of workers, shuffles and applications in all commands."""

import json

from holdfast.common.proto import holdfast_pb2 as pb
from holdfast.tools.cli.commands.top import document_of
from holdfast.tools.cli.records import (
    ApplicationRecord,
    ShuffleDescriptionRecord,
    ShuffleRecord,
    WorkerRecord,
    application_record,
    shuffle_description,
    shuffle_record,
    worker_record,
)

DISKS = [pb.Directory(path="/d1", used_bytes=3, free_bytes=5), pb.Directory(path="/d2", problem="gone", used_bytes=4)]


def test_records_have_the_documented_keys():
    """All of them, also of a message that says nothing, and they are JSON."""
    for record, of in (
        (worker_record(pb.WorkerInfo()), WorkerRecord),
        (shuffle_record(pb.ShuffleInfo(key=pb.ShuffleKey(instance=b"i" * 16))), ShuffleRecord),
        (
            shuffle_description(pb.DescribeShuffleReply(shuffle=pb.ShuffleInfo(key=pb.ShuffleKey(instance=b"i" * 16)))),
            ShuffleDescriptionRecord,
        ),
        (application_record(pb.ApplicationInfo()), ApplicationRecord),
    ):
        assert list(json.loads(json.dumps(record))) == list(of.__dataclass_fields__)


def test_lists_and_the_live_screen_have_the_same_records():
    """`top` tells what `workers` and `shuffles` tell."""
    worker = pb.WorkerInfo(name="w1", state="alive", directories=DISKS)
    shuffle = pb.ShuffleInfo(key=pb.ShuffleKey(instance=b"i" * 16), state="committed", lost=1)
    document = document_of([worker], [shuffle], 1, 20)
    assert document["workers"] == [worker_record(worker)]
    assert document["shuffles"] == [shuffle_record(shuffle)]


def test_sums_are_of_workers_that_are_there():
    """Room and problems of a worker that is away are those of before: they count for nothing."""
    alive = worker_record(pb.WorkerInfo(state="alive", directories=DISKS, push_rate=7))
    assert (alive["used_bytes"], alive["free_bytes"], alive["push_rate"]) == (7, 5, 7)
    assert alive["problems"] == ["/d2: gone"]
    lost = worker_record(pb.WorkerInfo(state="lost", directories=DISKS, push_rate=7))
    assert (lost["used_bytes"], lost["push_rate"], lost["problems"]) == (0, 0, [])
    assert len(lost["directories"]) == 2
