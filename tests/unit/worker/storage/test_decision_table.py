"""The decision table of docs/operate/storage.md, each of its 32 situations played on real directories."""

import itertools
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.common.config.config import from_tables
from holdfast.common.dfs.store import DfsStore
from holdfast.common.limits import KIB, MIB
from holdfast.common.statuses import Status
from holdfast.worker.core.write.space import Space
from holdfast.worker.storage.dfs.away import Away
from holdfast.worker.storage.settings import StoreSettings
from tests.support.reduce_data import Writer, names
from tests.unit.worker.storage.reduce_world import SHUFFLE, World

DOCS = Path(__file__).parents[4] / "docs" / "operate" / "storage.md"
HEADER = "|In cache|Cache room|Disk room|DFS room|Over|Rule|A batch is sent to|Files of MEMORY move|"
CAPACITY = 100 * MIB
SITUATIONS = list(itertools.product([True, False], repeat=5))
#: Partitions: one that is open in memory, a new one, and one that is sealed in memory.
OPEN, NEW, SEALED = 0, 1, 2


class Row(NamedTuple):
    """A row: what it is about, None for any, and what happens."""

    facts: tuple[bool | None, ...]
    batch: str
    moves: str


def rows() -> list[Row]:
    """The table as it is written."""
    lines = DOCS.read_text(encoding="utf-8").split(HEADER)[1].splitlines()[2:]
    found = []
    for line in itertools.takewhile(lambda line: line.startswith("|"), lines):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        facts = tuple({"yes": True, "no": False, "–": None}[cell] for cell in cells[:5])
        found.append(Row(facts, cells[6], cells[7]))
    return found


def row_for(situation: tuple[bool, ...]) -> Row:
    """The one row that speaks of a situation."""
    found = [
        row for row in rows() if all(fact in (None, here) for fact, here in zip(row.facts, situation, strict=True))
    ]
    assert len(found) == 1, (situation, found)
    return found[0]


def space(share_used: float) -> Space:
    """A directory that is used to this share of what it may hold, a tenth of it beside."""
    used = int((CAPACITY - CAPACITY // 10) * share_used)
    return Space(CAPACITY, 1 << 40, 1 << 40, used, 0, 1 << 40, 0.1)


#: Used shares of what a directory may hold; the mark is put below or above.
ROOM, FULL = 0.9, 1.0
BELOW, ABOVE = 0.85, 0.99


class Tiered(World):
    """Memory and a disk, with or without a DFS; what is past its mark is decided by `high`."""

    def __init__(self, root: Path, dfs: bool, high: float) -> None:
        self.dfs, self.high = dfs, high
        super().__init__(root, tiers=["MEMORY", "SSD"])

    def start(self) -> None:
        folder = self.root / "dfs"
        folder.mkdir(exist_ok=True)
        sections = from_tables(
            {"dfs": {"url": str(folder)}, "tiers": {"high_watermark": self.high, "low_watermark": 0.7}}
        )
        store = partial(DfsStore, sections.dfs, "c")
        self.settings = StoreSettings(
            cluster_id="c",
            worker_name="w",
            directories=self.settings.directories,
            tiers=sections.tiers,
            open_away=(lambda uid, env: Away(env, store, "c", uid)) if self.dfs else None,
        )
        super().start()
        self.core.choose = self.store.tiering.choose


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda facts: "".join("ny"[fact] for fact in facts))
def test_every_situation_is_as_the_table_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, situation: tuple[bool, ...]
) -> None:
    """One row speaks of each; a batch goes where it says, files move where it says, and all is read back."""
    in_cache, cache_room, disk_room, dfs_room, over = situation
    row = row_for(situation)
    monkeypatch.setattr("random.random", lambda: 0.0)  # the reviewer accepts wherever it may
    spaces = [space(ROOM if cache_room else FULL), space(0.0 if disk_room else FULL)]
    if not (cache_room or over):
        assert not spaces[0].room_bytes
        assert row.batch.startswith("cannot be")
        return
    world = Tiered(tmp_path, dfs_room, BELOW if over else ABOVE)
    writer = Writer(SHUFFLE)
    world.store.tiering.look([space(0.0), space(0.0)])
    world.push(writer, [writer.batch(SEALED, bytes(100 * KIB))])
    world.seal([(SEALED, 0)], final=False)
    if in_cache:
        world.push(writer, [writer.batch(OPEN, bytes(100))])
    world.store.tiering.look(spaces)
    world.core.set_has_room([one.room_bytes > 0 for one in spaces])

    partition = OPEN if in_cache else NEW
    told = world.push(writer, [writer.batch(partition, bytes(100))])
    if in_cache and not cache_room:
        assert told == {0: Status.HARD_SPLIT}
        told = world.push(writer, [writer.batch(partition, bytes(100), epoch=1)])
    assert where_went(world, partition, told) == row.batch
    world.store.tiering.step(1.0)
    while world.store.mover.busy:
        pass
    world.store.tiering.look(spaces)
    assert where_is(world, tmp_path) == row.moves
    if row.moves != "to the DFS":
        assert len(names(world.read(SEALED))) == 1
    world.store.close()


def where_went(world: World, partition: int, told: dict[int, int]) -> str:
    """Where a batch of this partition went, in the words of the table."""
    if told:
        assert told == {0: Status.NO_ROOM}
        return "nowhere: it waits"
    states = [state for state in world.core.shuffles[SHUFFLE].epochs.values() if state.partition == partition]
    name = "MEMORY" if states[-1].directory == 0 else "disk"
    if partition == OPEN and len(states) == 1:
        return f"to its epoch in {name}"
    return f"to a new epoch {'in' if name == 'MEMORY' else 'on'} {name}"


def where_is(world: World, root: Path) -> str:
    """Where the sealed file is, in the words of the table; it is in one place only."""
    found = {
        word
        for word, folder in (("nowhere", "0"), ("to disk", "1"), ("to the DFS", "dfs"))
        if [path for path in (root / folder).rglob("p-*.part*") if path.is_file()]
    }
    assert len(found) == 1, found
    return found.pop()
