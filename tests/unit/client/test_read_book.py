"""What a process knows of reading: the view it makes of the masters' words, load, and when a stream is late."""

from collections.abc import Sequence

import pytest

from holdfast.client.core.read.read_book import (
    DELAY_NS,
    DELAY_NS_MIN,
    LATENCIES_MAX,
    LATENCIES_MIN,
    SEEN_MAX,
    Latencies,
    OrderBy,
    ReadBook,
    Sight,
    region_of,
)
from holdfast.client.core.read.read_order import EXPIRE_NS
from holdfast.client.read.fetch_options import FetchOptions
from holdfast.client.read.shared_read_state import SharedReadState
from holdfast.common.ids import WorkerId

MS = 10**6


def order(book: ReadBook, *copies: int, now_ns: int = 1) -> Sequence[int]:
    return book.ordered([WorkerId(each) for each in copies], now_ns)


def learn(book: ReadBook, now_ns: int = 1, **sights: Sight) -> None:
    book.learn({WorkerId(int(name[1:])): sight for name, sight in sights.items()}, now_ns)


def test_nothing_known_is_the_given_order() -> None:
    """Workers that were never heard of take data, as far as anybody knows."""
    assert order(ReadBook(), 3, 1, 2) == (3, 1, 2)
    assert order(ReadBook(), 3) == (3,)
    assert order(ReadBook()) == ()


def test_what_the_masters_say_counts() -> None:
    """Who is drained comes behind who is not, and who is lost behind both."""
    book = ReadBook()
    learn(book, w1=Sight(alive=False), w2=Sight(draining=True), w3=Sight())
    assert order(book, 1, 2, 3) == (3, 2, 1)


def test_the_newest_word_counts_and_only_for_a_while() -> None:
    """A worker that came back is one of all again; a word that nobody renews is forgotten, its region is not."""
    book = ReadBook(by=OrderBy.REGION, region="here")
    learn(book, 5, w1=Sight(alive=False, region="here"), w2=Sight(region="there"))
    assert order(book, 1, 2, now_ns=5) == (2, 1)
    assert order(book, 1, 2, now_ns=5 + EXPIRE_NS) == (1, 2)
    assert order(book, 2, 1, now_ns=5 + EXPIRE_NS) == (1, 2), "its region"
    learn(book, 6, w1=Sight(region="there"))
    assert order(book, 1, 2, now_ns=7) == (1, 2)


@pytest.mark.parametrize("by", OrderBy)
def test_each_kind_of_order(by: OrderBy) -> None:
    """As given: nothing counts. By health: regions do not. By region: both do."""
    book = ReadBook(by=by, region="here")
    learn(book, w1=Sight(region="there"), w2=Sight(region="here"), w3=Sight(region="here"))
    book.health.failed(WorkerId(2), 1)
    expected = {OrderBy.GIVEN: (1, 2, 3), OrderBy.HEALTH: (1, 3, 2), OrderBy.REGION: (3, 2, 1)}
    assert order(book, 1, 2, 3) == expected[by]


def test_load_is_counted_by_open_streams() -> None:
    """Streams that are over count no more; a worker without streams takes no room."""
    book = ReadBook(pending_threshold=2)
    for _ in range(2):
        book.opened(WorkerId(1))
    assert order(book, 1, 2) == (2, 1)
    book.closed(WorkerId(1))
    assert order(book, 1, 2) == (1, 2)
    book.closed(WorkerId(1))
    assert not book._pending


def test_what_the_masters_said_is_bounded() -> None:
    """The oldest word goes first."""
    book = ReadBook()
    learn(book, w1=Sight(alive=False))
    book.learn({WorkerId(2 + number): Sight() for number in range(SEEN_MAX)}, 1)
    assert order(book, 1, 2) == (1, 2)
    assert len(book._seen) == SEEN_MAX


def test_when_a_stream_is_late() -> None:
    """2 s before enough is known; then twice the 95th percentile of the newest ones, and never under the floor."""
    latencies = Latencies()
    for _ in range(LATENCIES_MIN - 1):
        latencies.took(MS)
        assert latencies.delay_ns() == DELAY_NS
    latencies.took(MS)
    assert latencies.delay_ns() == DELAY_NS_MIN
    for number in range(LATENCIES_MAX):
        latencies.took(number * MS)
    assert latencies.delay_ns() == 2 * 121 * MS, "the 122nd of 0 to 127 ms"
    for _ in range(LATENCIES_MAX):
        latencies.took(60 * MS)
    assert latencies.delay_ns() == 120 * MS


def test_a_few_slow_streams_do_not_make_all_wait() -> None:
    """Of 128 streams six may take for ever."""
    latencies = Latencies()
    for number in range(LATENCIES_MAX):
        latencies.took(1_000 * MS if number < 6 else 70 * MS)
    assert latencies.delay_ns() == 140 * MS
    latencies = Latencies()
    for number in range(LATENCIES_MAX):
        latencies.took(1_000 * MS if number < 8 else 70 * MS)
    assert latencies.delay_ns() == 2_000 * MS, "seven or more are the usual thing"


def test_a_fixed_delay_is_that() -> None:
    """Whatever was observed."""
    book = ReadBook(delay_fixed_ns=7)
    assert book.delay_ns() == 7
    assert ReadBook().delay_ns() == DELAY_NS


def test_the_region_of_a_place() -> None:
    """The first part of a path; nothing of nothing."""
    assert [region_of(place) for place in ("/eu/rack-1", "/eu", "", "eu/r")] == ["eu", "eu", "", "eu"]


def test_what_a_worker_sent_wrong_is_logged_once_for_all_readers() -> None:
    """Readers of many ranges that meet the same damaged worker write one line, and one for another worker."""
    state = SharedReadState(FetchOptions())
    assert [state.may_log_corrupt(WorkerId(worker)) for worker in (1, 1, 2, 1, 2)] == [True, False, True, False, False]
