"""Which copy is read first: every rule and example of the placement reference, 2.7 and 3.2."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.client.core.read.read_order import (
    REMEMBERED_MAX,
    Category,
    ClusterView,
    Interleave,
    ReadHealth,
    category,
    read_order,
)
from tests.support.read_orders import CASES, HERE, THERE, Case, S


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.promise)
def test_the_order_of_every_case(case: Case) -> None:
    """The list that the Java code has to pass as well."""
    assert case.order() == list(case.expected)


def test_categories() -> None:
    """Each has its place, also where the interleaving hides it."""
    health = ReadHealth()
    for worker in (2, 4):
        health.failed(worker, S)
    health.slow(6, S)
    regions = {1: HERE, 2: HERE, 3: THERE, 4: THERE, 6: HERE}
    view = ClusterView(writable={1, 2, 3, 4, 6}, read_only={5}, regions=regions, region=HERE)
    assert [category(worker, view, health) for worker in range(1, 8)] == list(Category)


def test_what_is_remembered_is_bounded() -> None:
    """However many workers fail, the newest ones are remembered; one that fails again is a new one."""
    health = ReadHealth()
    health.failed(0, 1)
    for worker in range(1, REMEMBERED_MAX):
        health.failed(worker, 2)
    health.failed(0, 3)
    health.failed(REMEMBERED_MAX, 4)
    assert health.failure_ns(0) == 3
    assert health.failure_ns(1) == 0, "the oldest is forgotten"
    assert health.failure_ns(2) == 2


@given(st.data())
def test_nothing_is_dropped_or_doubled(data: st.DataObject) -> None:
    """Any copies, any view, any history: a permutation."""
    copies = data.draw(st.lists(st.integers(0, 9), unique=True))
    some = st.sets(st.integers(0, 9))
    health = ReadHealth()
    for worker in data.draw(some):
        health.failed(worker, data.draw(st.integers(1, 100)))
    for worker in data.draw(some):
        health.slow(worker, 1)
    view = ClusterView(
        writable=data.draw(some),
        read_only=data.draw(some),
        regions=data.draw(st.dictionaries(st.integers(0, 9), st.sampled_from([HERE, THERE]))),
        region=data.draw(st.sampled_from(["", HERE])),
        pending=data.draw(st.dictionaries(st.integers(0, 9), st.integers(0, 9))),
        pending_threshold=data.draw(st.integers(0, 3)),
        interleave=data.draw(st.sampled_from(Interleave)),
    )
    assert sorted(read_order(copies, view, health, 100)) == sorted(copies)
