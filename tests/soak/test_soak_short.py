"""The short form of `tox -e soak`, and that its judge can fail."""

import pytest

from tests.soak.records import RECORD_BYTES, BadRecordError, Shape, Totals, expected, payloads, totals
from tests.soak.run import Report, shapes, soak
from tests.soak.tasks import Outcome

SMALL = Shape(seed=1, first=1_000, maps=3, per_map=2_000, partitions=4)


def test_count_and_sums_are_exact_whatever_is_killed_or_lost(tmp_path):
    """A million records with workers killed and answers lost or late: every partition holds exactly its own."""
    report = soak(1_000_000, 33, tmp_path, kill_every=5.0, fault_rate=0.01, late_seconds=0.5, swallow=False)
    print(report)
    assert report.good, str(report)
    assert report.found.records == 1_000_000
    assert report.counts["kills"] >= 1
    assert all(report.counts[f"attempts: {outcome.value}"] for outcome in Outcome)
    assert sum(report.faults.values()) > report.faults["passed"] > 0


def test_every_loss_and_duplicate_shows():
    """Made again, the records of each partition have the totals expected; without a payload, or with one twice, not."""
    held: dict[int, list[bytes]] = {partition: [] for partition in range(SMALL.partitions)}
    for map_id in range(SMALL.maps):
        for partition, payload in payloads(SMALL, map_id):
            held[partition].append(payload)
    wanted = expected(SMALL)
    assert {partition: totals(data) for partition, data in held.items()} == wanted
    assert sum(each.records for each in wanted.values()) == SMALL.maps * SMALL.per_map
    for partition, data in held.items():
        for index in range(0, len(data), 50):
            assert totals(data[:index] + data[index + 1 :]) != wanted[partition]
            assert totals([*data, data[index]]) != wanted[partition]
            other = data[(index + 1) % len(data)]
            assert totals([*data[:index], other, *data[index + 1 :]]) != wanted[partition]


def test_a_run_on_its_way_is_not_called_bad():
    """What is printed after each shuffle is good so far, and bad as soon as something is missing."""
    report, half, all_of_it = Report(10, seed=1), Totals(records=5), Totals(records=10)
    for made, read, verdict in ((half, half, "good so far"), (half, Totals(), "BAD"), (all_of_it, all_of_it, "good")):
        report.expected, report.found = made, read
        assert f"seed 1: {verdict}\n" in f"{report}\n"
        assert report.good == (verdict == "good")


def test_a_changed_record_shows():
    """A record of which any byte changed is refused."""
    ((_, payload), *_) = payloads(SMALL, 0)
    for place in range(RECORD_BYTES):
        changed = bytearray(payload)
        changed[place] ^= 0x10
        with pytest.raises(BadRecordError):
            totals([bytes(changed)])


@pytest.mark.parametrize("records", [1_000, 1_000_000, 45_000_000, 100_000_000])
def test_shuffles_share_all_records_among_them(records: int):
    """Every record is of one map of one shuffle."""
    ends = [0]
    for shape in shapes(records, seed=1):
        assert shape.first == ends[-1]
        ends.append(shape.first + shape.maps * shape.per_map)
    assert ends[-1] == records
