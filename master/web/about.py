"""What the page about one thing shows of it: the events that name it, and the sums of a shuffle. Pure; in a thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple
from urllib.parse import quote

from holdfast.common.ids import INSTANCE_BYTES
from holdfast.common.sizes import shuffle_failures, skew
from holdfast.master.core.events import Event
from holdfast.master.core.history import Trend
from holdfast.master.core.readers import HostReader
from holdfast.master.core.shuffle_sums import ShuffleSums, hosts_of
from holdfast.master.core.state.incomplete import incomplete_count
from holdfast.master.core.state.records import KIND_REDUCE, Worker
from holdfast.master.web.drawings import Curve, curve_of, histogram_of
from holdfast.master.web.picture import ShuffleDetail, ShuffleRow

#: Hosts of a shuffle that are shown, and hosts that read it.
_HOSTS_MAX, _READERS_MAX = 100, 50


class EventNames(NamedTuple):
    """How events call a thing: one of these words, or what begins like this."""

    words: frozenset[str] = frozenset()
    beginning: str = ""


def naming(events: Iterable[Event], names: EventNames, limit: int) -> tuple[Event, ...]:
    """The first of these events that name a thing in one of their facts."""

    def names_it(event: Event) -> bool:
        facts = map(str, event.happened.facts.values())
        return any(each in names.words or (names.beginning and each.startswith(names.beginning)) for each in facts)

    return tuple(islice(filter(names_it, events), limit))


def detail_of(
    row: ShuffleRow, sums: ShuffleSums, workers: Sequence[Worker], readers: Sequence[HostReader] = ()
) -> ShuffleDetail:
    """What is in one shuffle."""
    shuffle, sizes, epochs = row.shuffle, sums.sizes, sums.epochs
    by_number = {each.id: each for each in workers}
    hosts = hosts_of(sums.shares, by_number)
    shown = tuple(hosts[:_HOSTS_MAX])
    of = "partitions" if shuffle.kind == KIND_REDUCE else "maps"
    lost = shuffle.lost, epochs.lost, epochs.partitions_lost
    failures = shuffle_failures(*lost, shuffle.under_replicated, shuffle.awaited, incomplete_count(shuffle.incomplete))
    return ShuffleDetail(
        sums=sums,
        hosts=shown,
        hosts_total=len(hosts),
        workers={one.worker: by_number[one.worker] for host in shown for one in host.shares if one.worker in by_number},
        histogram=histogram_of(of, sizes.histogram) if sizes is not None else None,
        skew=skew(sizes.largest_bytes, sizes.median_bytes) if sizes is not None else None,
        failures=tuple(failures),
        readers=tuple(readers[:_READERS_MAX]),
        readers_total=len(readers),
    )


def curves_of(trend: Trend, every_seconds: int) -> tuple[tuple[str, Curve | None], ...]:
    """What workers did, by its name on the page."""
    drawn = (("Pushed", trend.push, "/s"), ("Fetched", trend.fetch, "/s"), ("Stored", trend.stored, ""))
    return tuple((name, curve_of(samples, every_seconds, unit)) for name, samples, unit in drawn)


def history_of(address: str, spark_id: str) -> str:
    """Where an ended application of Spark is shown: `address` is `[master] spark_history_url`. "" without either."""
    if not address or not spark_id:
        return ""
    whole = address if "{app_id}" in address else f"{address.rstrip('/')}/history/{{app_id}}/"
    return whole.replace("{app_id}", quote(spark_id, safe=""))


def instance_of(text: str) -> bytes:
    """The instance that this is in hex, or b""."""
    well = len(text) == 2 * INSTANCE_BYTES and all(each in "0123456789abcdef" for each in text)
    return bytes.fromhex(text) if well else b""
