"""One list of cases of the read order: tests/unit/client and tests/jvm put them to the Python and to the Java code.

Times are whole seconds. Examples are those of the placement reference, 2.7, with its defects B1, B2, B3 and B5.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast.client.core.read.read_order import ClusterView, Interleave, ReadHealth, read_order

S = 10**9
HERE, THERE = "here", "there"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a reader knows, the copies as given, and the order they are asked in."""

    promise: str
    copies: Sequence[int]
    expected: Sequence[int] = ()
    writable: Sequence[int] = ()
    read_only: Sequence[int] = ()
    regions: Mapping[int, str] = field(default_factory=dict)
    region: str = ""
    pending: Mapping[int, int] = field(default_factory=dict)
    threshold: int = 0
    every: bool = False
    #: in this order, at these times
    failed: Mapping[int, int] = field(default_factory=dict)
    slow: Mapping[int, int] = field(default_factory=dict)
    now: int = 1
    failure_expire: int = 60
    slow_expire: int = 60

    def order(self) -> list[int]:
        """What the Python code makes of it."""
        health = ReadHealth(self.failure_expire * S, self.slow_expire * S)
        for worker, at in self.failed.items():
            health.failed(worker, at * S)
        for worker, at in self.slow.items():
            health.slow(worker, at * S)
        view = ClusterView(
            writable=self.writable,
            read_only=self.read_only,
            regions=self.regions,
            region=self.region,
            pending=self.pending,
            pending_threshold=self.threshold,
            interleave=Interleave.EVERY if self.every else Interleave.ONCE,
        )
        return read_order(self.copies, view, health, self.now * S)

    def line(self) -> str:
        """The same for ReadOrderMain."""
        reported = {
            "copies": _list(self.copies),
            "writable": _list(self.writable),
            "readonly": _list(self.read_only),
            "regions": _pairs(self.regions),
            "region": self.region,
            "pending": _pairs(self.pending),
            "threshold": self.threshold,
            "every": str(self.every).lower(),
            "failed": _pairs(self.failed),
            "slow": _pairs(self.slow),
            "now": self.now,
            "failureExpire": self.failure_expire,
            "slowExpire": self.slow_expire,
        }
        return " ".join(f"{name}={value}" for name, value in reported.items())


def _list(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _pairs(numbers: Mapping[int, object]) -> str:
    return ",".join(f"{number}:{value}" for number, value in numbers.items())


_SEVEN = Case(
    promise="clean and local, failed and local, clean and remote, failed and remote, read-only, slow, gone",
    copies=[7, 6, 5, 4, 3, 2, 1],
    expected=[1, 2, 3, 4, 5, 6, 7],
    writable=[1, 2, 3, 4, 6],
    read_only=[5],
    regions={1: HERE, 2: HERE, 3: THERE, 4: THERE, 6: HERE},
    region=HERE,
    every=True,
    failed={2: 1, 4: 1},
    slow={6: 1},
)
_NINE = Case(
    promise="one remote copy stands behind two local ones: L L R L R R R R R",
    copies=[9, 1, 8, 2, 7, 3, 6, 5, 4],
    expected=[1, 2, 9, 3, 8, 7, 6, 5, 4],
    writable=range(1, 10),
    regions={worker: HERE if worker <= 3 else THERE for worker in range(1, 10)},
    region=HERE,
)
_FAILED = Case(
    promise="B1: of two that failed the one whose failure is longest ago",
    copies=[1, 2, 3],
    expected=[3, 2, 1],
    writable=[1, 2, 3],
    failed={1: 20, 2: 10},
    now=30,
)
_LOADED = Case(
    promise="a loaded first copy gives way to the least loaded one",
    copies=[1, 2, 3],
    expected=[3, 1, 2],
    writable=[1, 2, 3],
    pending={1: 10, 2: 6, 3: 5},
    threshold=5,
)

CASES = [
    _SEVEN,
    replace(
        _SEVEN,
        promise="the same with one remote copy behind two local ones, where the second has failed",
        expected=[1, 2, 3, 4, 5, 6, 7],
        every=False,
    ),
    _NINE,
    replace(
        _NINE,
        promise="every: one behind every two local ones",
        copies=range(1, 9),
        expected=[1, 2, 6, 3, 4, 7, 5, 8],
        regions={worker: HERE if worker <= 5 else THERE for worker in range(1, 10)},
        every=True,
    ),
    replace(
        _NINE,
        promise="text and code agree with up to four local copies",
        copies=[5, 6, 1, 2, 3, 4],
        expected=[1, 2, 5, 3, 4, 6],
        regions={worker: HERE if worker <= 4 else THERE for worker in range(1, 10)},
    ),
    replace(_NINE, promise="one local copy and one remote", copies=[9, 1], expected=[1, 9]),
    replace(_NINE, promise="no local copy", copies=[9, 8], expected=[9, 8]),
    replace(
        _NINE,
        promise="a worker of no known region is in another one",
        copies=[1, 2, 3],
        expected=[2, 1, 3],
        regions={2: HERE},
    ),
    replace(_NINE, promise="no region at all is known of any", regions={}, expected=_NINE.copies),
    replace(
        _NINE,
        promise="without an own region none is another one, known or not",
        copies=[5, 1],
        expected=[5, 1],
        regions={5: THERE},
        region="",
    ),
    Case(
        promise="B3: a first copy that only serves does not stay first",
        copies=[4, 3, 1],
        expected=[3, 1, 4],
        writable=[1, 2, 3],
        read_only=[4],
    ),
    Case(promise="a copy that only serves before one that is gone", copies=[2, 1], expected=[1, 2], read_only=[1]),
    Case(
        promise="B3: nor does one that failed",
        copies=[1, 2],
        expected=[2, 1],
        writable=[1, 2],
        failed={1: 1},
    ),
    Case(
        promise="a copy that failed before one that only serves",
        copies=[1, 2],
        expected=[2, 1],
        writable=[2],
        read_only=[1],
        failed={2: 1},
    ),
    _FAILED,
    replace(_FAILED, promise="the failure of 20 counts still", expected=[2, 3, 1], now=70),
    replace(_FAILED, promise="after a minute neither has failed", expected=[1, 2, 3], now=80),
    replace(_FAILED, promise="where failures expire sooner", expected=[2, 3, 1], failure_expire=20),
    replace(_FAILED, promise="a later failure of the same", copies=[2, 1], expected=[1, 2], failed={2: 25, 1: 20}),
    replace(_FAILED, promise="both excluded: the one excluded earlier", copies=[1, 2], expected=[2, 1]),
    Case(
        promise="B1: of slow ones the least loaded, whatever order they were given in",
        copies=[1, 2, 3],
        expected=[2, 3, 1],
        writable=[1, 2, 3],
        slow={1: 1, 2: 1, 3: 1},
        pending={1: 7, 2: 3, 3: 5},
    ),
    Case(promise="slow behind clean", copies=[1, 2], expected=[2, 1], writable=[1, 2], slow={1: 1}),
    Case(promise="slowness is forgotten", copies=[1, 2], expected=[1, 2], writable=[1, 2], slow={1: 1}, now=61),
    Case(
        promise="sooner if so asked, failures on their own",
        copies=[1, 2],
        expected=[1, 2],
        writable=[1, 2],
        slow={1: 1},
        failed={2: 1},
        now=11,
        slow_expire=10,
    ),
    Case(
        promise="who failed counts as failed, not as slow",
        copies=[2, 1],
        expected=[1, 2],
        writable=[1, 2],
        failed={1: 1},
        slow={1: 1, 2: 1},
    ),
    _LOADED,
    replace(_LOADED, promise="off without a threshold", threshold=0, expected=[1, 2, 3]),
    replace(_LOADED, promise="one short of the threshold", pending={1: 9, 2: 6, 3: 5}, expected=[1, 2, 3]),
    replace(_LOADED, promise="categories go before load", failed={3: 1}, expected=[1, 2, 3]),
    replace(
        _LOADED,
        promise="with a threshold none is slow: load tells that",
        pending={},
        slow={1: 1},
        expected=[1, 2, 3],
    ),
    Case(
        promise="B2: however late a failure, every copy comes once",
        copies=[0, 1, 2],
        expected=[0, 1, 2],
        writable=[0, 1, 2],
        failed={0: 349_525, 1: 349_526, 2: 349_527},
        now=349_528,
    ),
    Case(promise="no copies", copies=[]),
    Case(promise="one copy that is gone", copies=[5], expected=[5]),
]


def random_cases(count: int, seed: int = 7) -> list[Case]:
    """Any copies, any view, any history; what is expected is the Python code's."""
    rng = random.Random(seed)

    def some() -> list[int]:
        return rng.sample(range(10), rng.randrange(11))

    def times() -> dict[int, int]:
        return {worker: rng.randrange(1, 100) for worker in some()}

    return [
        Case(
            promise=f"case {number} of seed {seed}",
            copies=some(),
            writable=some() if rng.random() < 0.5 else range(10),
            read_only=some(),
            regions={worker: rng.choice([HERE, THERE]) for worker in some()},
            region=rng.choice(["", HERE]),
            pending={worker: rng.randrange(10) for worker in some()},
            threshold=rng.choice([0, 0, 3]),
            every=rng.random() < 0.5,
            failed=times(),
            slow=times(),
            now=rng.randrange(100, 160),
        )
        for number in range(count)
    ]
