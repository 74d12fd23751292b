"""What a worker tells of who holds how much: sums over shuffles, generations and directories, the largest first."""

from holdfast.common.ids import Generation, Instance, ShuffleId, ShuffleKey
from holdfast.common.sizes import UsageTotals
from holdfast.worker.core.usage import ApplicationUsage, by_application

ONE, TWO, THREE = (Instance(bytes([number]) * 16) for number in (1, 2, 3))


def key(instance: Instance, shuffle: int, generation: int = 0) -> ShuffleKey:
    return ShuffleKey(instance, ShuffleId(shuffle), Generation(generation))


def test_everything_of_an_application_is_added_up() -> None:
    """A shuffle that is in several directories, sealed and open, in two generations is told once."""
    found = [
        (key(ONE, 7), UsageTotals(100, 1)),
        (key(ONE, 7, 1), UsageTotals(50, 2)),
        (key(ONE, 8), UsageTotals(10, 5)),
        (key(ONE, 7), UsageTotals(1, 0)),
        (key(TWO, 7), UsageTotals(1_000, 1)),
    ]
    assert by_application(found) == [
        ApplicationUsage(TWO, UsageTotals(1_000, 1), [(7, UsageTotals(1_000, 1))]),
        ApplicationUsage(ONE, UsageTotals(161, 8), [(7, UsageTotals(151, 3)), (8, UsageTotals(10, 5))]),
    ]
    assert by_application([]) == []


def test_what_is_reported_is_bounded() -> None:
    """The largest applications and their largest shuffles; what an application holds is told whole all the same."""
    found = [
        (key(instance, shuffle), UsageTotals(10 * at + shuffle, 1))
        for at, instance in enumerate((ONE, TWO, THREE))
        for shuffle in range(5)
    ]
    usages = by_application(found, applications_max=2, shuffles_max=1)
    assert usages == [
        ApplicationUsage(THREE, UsageTotals(110, 5), [(4, UsageTotals(24, 1))]),
        ApplicationUsage(TWO, UsageTotals(60, 5), [(4, UsageTotals(14, 1))]),
    ]
