"""Every type that Arrow has, nested in every other: what `write_table` takes is read as it was, or refused."""

import os
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.client import Session, local_cluster
from holdfast.client.arrow.tables import shuffle_table, write_table
from holdfast.common.errors import ConfigError, HoldfastError
from holdfast.common.limits import MIB

#: Deep enough for a dictionary in a list in a struct in a map.
DEPTH = 4
ROWS = 24
EMPTY = pa.py_buffer(b"")
NUMBERS = [0, 1, 5, None]
DECIMALS = [Decimal("-0.01"), Decimal("12.00"), None]
LEAVES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.null(), [None]),
    (pa.bool_(), [True, False, None]),
    *((kind(), NUMBERS) for kind in (pa.int8, pa.int16, pa.int32, pa.int64)),
    *((kind(), NUMBERS) for kind in (pa.uint8, pa.uint16, pa.uint32, pa.uint64)),
    (pa.float16(), [np.float16(0.5), None]),
    (pa.float32(), [0.5, None]),
    (pa.float64(), [-0.25, None]),
    *((kind(), ["", "naïve ☂", "long " * 9, None]) for kind in (pa.string, pa.large_string, pa.string_view)),
    *((kind(), [b"", b"\x00\xff", b"long " * 9, None]) for kind in (pa.binary, pa.large_binary, pa.binary_view)),
    (pa.binary(3), [b"abc", None]),
    *(
        (kind(9, 2), [Decimal("-0.01"), Decimal(12), None])
        for kind in (pa.decimal32, pa.decimal64, pa.decimal128, pa.decimal256)
    ),
    (pa.date32(), [0, 20_000, None]),
    (pa.date64(), [0, 86_400_000, None]),
    (pa.time32("s"), [0, 86_399, None]),
    (pa.time64("us"), [0, 1, None]),
    (pa.timestamp("s"), [0, 1, None]),
    (pa.timestamp("us", "UTC"), [0, 1, None]),
    (pa.duration("ms"), [0, 1, None]),
    (pa.month_day_nano_interval(), [(1, 2, 3), None]),
    (pa.uuid(), [b"0123456789abcdef", None]),
    (pa.json_(), ["{}", None]),
]


#: An array and the values in it, which pyarrow alone cannot always tell: some nestings end the process.
Made = tuple[pa.Array, list[Any]]


def leaf(draw: random.Random, count: int, of: tuple[pa.DataType, list[Any]]) -> Made:
    """An array of a type without children."""
    kind, values = of
    drawn = [draw.choice(values) for _ in range(count)]
    if isinstance(kind, pa.BaseExtensionType):
        found = pa.ExtensionArray.from_storage(kind, pa.array(drawn, kind.storage_type))
    else:
        found = pa.array(drawn, kind)
    return found, found.to_pylist()


def bounds_of(draw: random.Random, count: int, kind: pa.DataType) -> tuple[pa.Array, pa.Array, list[slice | None]]:
    """Offsets of lists, which of them are null, whether they have entries or not, and where the entries of each are."""
    bounds = [0]
    for _ in range(count):
        bounds.append(bounds[-1] + draw.choice([0, 0, 1, 2]))
    nulls = [draw.random() < 0.2 for _ in range(count)]
    parts = [None if null else slice(*bounds[at : at + 2]) for at, null in enumerate(nulls)]
    return pa.array(bounds, kind), pa.array(nulls, pa.bool_()), parts


def of_parts(values: list[Any], parts: list[slice | None]) -> list[Any]:
    return [None if part is None else values[part] for part in parts]


def listed(draw: random.Random, count: int, depth: int) -> Made:
    large = draw.random() < 0.5
    offsets, nulls, parts = bounds_of(draw, count, pa.int64() if large else pa.int32())
    entries, values = array(draw, offsets[-1].as_py(), depth)
    form = pa.LargeListArray if large else pa.ListArray
    return form.from_arrays(offsets, entries, mask=nulls), of_parts(values, parts)


def viewed(draw: random.Random, count: int, depth: int) -> Made:
    large = draw.random() < 0.5
    form, number = (pa.LargeListViewArray, pa.int64()) if large else (pa.ListViewArray, pa.int32())
    begins = [draw.choice([0, 1, 2]) for _ in range(count)]  # in no order, and over one another
    sizes = [draw.choice([0, 1, 2]) for _ in range(count)]
    nulls = [draw.random() < 0.2 for _ in range(count)]
    entries, values = array(draw, 4, depth)
    found = form.from_arrays(
        pa.array(begins, number), pa.array(sizes, number), entries, mask=pa.array(nulls, pa.bool_())
    )
    parts = [None if null else slice(at, at + size) for at, size, null in zip(begins, sizes, nulls, strict=True)]
    return found, of_parts(values, parts)


def fixed(draw: random.Random, count: int, depth: int) -> Made:
    size = draw.choice([1, 2])
    entries, values = array(draw, size * count, depth)
    parts: list[slice | None] = [slice(at * size, (at + 1) * size) for at in range(count)]
    return pa.FixedSizeListArray.from_arrays(entries, size), of_parts(values, parts)


def mapped(draw: random.Random, count: int, depth: int) -> Made:
    offsets, nulls, parts = bounds_of(draw, count, pa.int32())
    names = [f"k{at}" for at in range(offsets[-1].as_py())]
    keys = pa.array(names, draw.choice([pa.string(), pa.string_view()]))
    if draw.random() < 0.5:
        keys = keys.cast(pa.string()).dictionary_encode()
    items, values = array(draw, len(names), depth)
    found = pa.MapArray.from_arrays(offsets, keys, items, mask=nulls)
    return found, of_parts(list(zip(names, values, strict=True)), parts)


def struct(draw: random.Random, count: int, depth: int) -> Made:
    nulls = [draw.random() < 0.2 for _ in range(count)]
    made = {f"f{at}": array(draw, count, depth) for at in range(draw.choice([1, 2]))}
    found = pa.StructArray.from_arrays(
        [child for child, _ in made.values()], list(made), mask=pa.array(nulls, pa.bool_())
    )
    values = [{name: of[at] for name, (_, of) in made.items()} for at in range(count)]
    return found, [None if null else value for null, value in zip(nulls, values, strict=True)]


def dictionary(draw: random.Random, count: int, depth: int) -> Made:
    entries, values = array(draw, draw.choice([1, 3]), depth)
    indices = [draw.choice([*range(len(values)), None]) for _ in range(count)]
    number = draw.choice([pa.int8(), pa.int32(), pa.uint16()])
    found = pa.DictionaryArray.from_arrays(pa.array(indices, number), entries)
    return found, [None if at is None else values[at] for at in indices]


def run_ends(draw: random.Random, count: int, depth: int) -> Made:
    ends = sorted({*(draw.randrange(1, count + 1) for _ in range(count // 2)), count}) if count else []
    runs, values = array(draw, len(ends), depth)
    found = pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int32()), runs)
    return found, [values[sum(end <= at for end in ends)] for at in range(count)]


def union(draw: random.Random, count: int, depth: int) -> Made:
    codes = [draw.choice([0, 1]) for _ in range(count)]
    made = [array(draw, max(count, 1), depth) for _ in range(2)]
    numbers = pa.array(codes, pa.int8())
    if draw.random() < 0.5:
        found = pa.UnionArray.from_sparse(numbers, [child.slice(0, count) for child, _ in made])
        places = list(range(count))
    else:
        places = sorted(draw.randrange(count) for _ in range(count))
        found = pa.UnionArray.from_dense(numbers, pa.array(places, pa.int32()), [child for child, _ in made])
    return found, [made[code][1][at] for code, at in zip(codes, places, strict=True)]


NESTED: list[Callable[[random.Random, int, int], Made]]
NESTED = [listed, viewed, fixed, mapped, struct, dictionary, run_ends, union]


def array(draw: random.Random, count: int, depth: int) -> Made:
    """An array of any type, nested at most so deep; sometimes a part of a longer one."""
    make = draw.choice(NESTED) if depth and draw.random() < 0.8 else None
    before, behind = (draw.choice([0, 0, 1, 3]) for _ in range(2))
    size = before + count + behind
    whole, values = make(draw, size, depth - 1) if make else leaf(draw, size, draw.choice(LEAVES))
    return whole.slice(before, count), values[before : before + count]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """A session of a cluster with a master and a worker."""
    with (
        local_cluster(masters=1, workers=1, dir=tmp_path_factory.mktemp("types")) as cluster,
        Session(cluster.endpoints, app="types") as opened,
    ):
        yield opened


def there_and_back(session: Session, values: pa.Array) -> list[Any]:
    """Write the values in three partitions, and read them in the order that they had."""
    rows = pa.RecordBatch.from_arrays(
        [pa.array(range(len(values)), pa.int64()), pa.array([at % 3 for at in range(len(values))]), values],
        names=["at", "part", "v"],
    )
    table = shuffle_table(session, write_table(session, rows, 3, by="part"))
    table.validate(full=True)
    assert pa.types.is_int64(table.schema.field("at").type)
    found = dict(zip(table.column("at").to_pylist(), table.column("v").to_pylist(), strict=True))
    return [found[at] for at in range(len(values))]


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 32))
def test_a43_every_type_is_read_as_it_was_written(session: Session, seed: int) -> None:
    """Whatever type a column has, however its values are nested, encoded and sliced: they are read as they were."""
    column, values = array(random.Random(seed), ROWS, DEPTH)
    assert there_and_back(session, column) == values, column.type


@pytest.mark.parametrize("kind", LEAVES, ids=lambda kind: str(kind[0]))
def test_a43_every_type_is_read_inside_every_other(session: Session, kind: tuple[pa.DataType, list[Any]]) -> None:
    """Each type alone, in a dictionary and in runs, and all of these in lists, structs and maps."""
    plain, values = leaf(random.Random(0), ROWS, kind)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array(range(1, ROWS + 1), pa.int32()), plain)
    entries = pa.DictionaryArray.from_arrays(pa.array([at % ROWS for at in range(ROWS)], pa.int32()), plain)
    bounds = pa.array(range(ROWS + 1), pa.int32())
    names = [str(at) for at in range(ROWS)]
    lists, maps = [[value] for value in values], [[pair] for pair in zip(names, values, strict=True)]
    for form in (plain, runs, entries):
        listed_form = pa.ListArray.from_arrays(bounds, form)
        assert there_and_back(session, form) == values, form.type
        assert there_and_back(session, listed_form) == lists, form.type
        assert there_and_back(session, pa.StructArray.from_arrays([form], ["a"])) == [{"a": value} for value in values]
        assert there_and_back(session, pa.MapArray.from_arrays(bounds, pa.array(names), form)) == maps, form.type
        nested = pa.MapArray.from_arrays(bounds, pa.array(names), listed_form)
        assert there_and_back(session, nested) == [[(name, [value])] for [(name, value)] in maps], form.type


def test_a43_what_cannot_be_kept_is_refused_at_the_write(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """An extension type over a dictionary, and a row that is longer than a record may be: an error of ours that names
    column or size, and no shuffle is there."""

    class Shades(pa.ExtensionType):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(pa.dictionary(pa.int8(), pa.string()), "shades")

        def __arrow_ext_serialize__(self) -> bytes:
            return b""

        @classmethod
        def __arrow_ext_deserialize__(cls, storage: pa.DataType, serialized: bytes) -> "Shades":
            return cls()

    names = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array(["light", "dark"]))
    shades = pa.ExtensionArray.from_storage(Shades(), names)
    with pytest.raises(ConfigError, match=r"column 'v' is .*extension type over dictionary"):
        there_and_back(session, shades)
    monkeypatch.setattr("holdfast.client.arrow.rows.RECORD_BYTES_MAX", 9 * MIB)
    number = write_table(session, pa.table({"v": ["a"]}), 1)
    with pytest.raises(ConfigError, match=r"a row of .* bytes is too long: 9437184 are possible"):
        write_table(session, pa.table({"v": ["a", "b" * (10 * MIB)]}), 1)
    with pytest.raises(HoldfastError):
        shuffle_table(session, number + 1)


def test_a43_long_cells_are_kept(session: Session) -> None:
    """A cell that is longer than a region of a map file, and one in a dictionary, among short ones."""
    long = os.urandom(70 * MIB)
    kinds = pa.array([b"a", b"b" * (70 * MIB)]).dictionary_encode()
    values = pa.StructArray.from_arrays(
        [pa.array([b"", long, b"c"]), pa.DictionaryArray.from_arrays(pa.array([1, 0, 0], pa.int8()), kinds.dictionary)],
        ["cell", "kind"],
    )
    assert there_and_back(session, values) == values.to_pylist()


def test_a43_a_dictionary_of_long_values_is_written_in_pieces(session: Session) -> None:
    """Rows that are small as they are given and 600 MiB as they are stored never are in memory together."""
    entries = pa.array([os.urandom(MIB) for _ in range(2)])
    values = pa.DictionaryArray.from_arrays(pa.array([at % 2 for at in range(600)], pa.int8()), entries)
    before = pa.default_memory_pool().max_memory()
    number = write_table(session, pa.table({"v": values}), 2)
    assert pa.default_memory_pool().max_memory() <= max(before, 300 * MIB)
    assert shuffle_table(session, number, [1]).num_rows == 300


def jvms() -> pa.RecordBatch:
    """A null list of structs with a map of lists, as the JVM writes it: nothing in it has offsets."""
    numbers, keys = pa.array([], pa.int64()), pa.array([], pa.string())
    inner = pa.Array.from_buffers(pa.list_(pa.int64()), 0, [None, EMPTY], children=[numbers])
    kind = pa.map_(pa.string(), pa.list_(pa.int64()))
    entries = pa.StructArray.from_arrays([keys, inner], fields=[kind.key_field, kind.item_field])
    maps = pa.Array.from_buffers(kind, 0, [None, EMPTY], children=[entries])
    structs = pa.StructArray.from_arrays([numbers, maps], ["a", "b"])
    bounds = pa.py_buffer(np.zeros(2, np.int32))
    column = pa.Array.from_buffers(pa.list_(structs.type), 1, [pa.py_buffer(bytes(8)), bounds], children=[structs])
    batch = pa.record_batch([column], names=["v"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return pa.ipc.open_stream(sink.getvalue()).read_next_batch()


def test_a45_arrays_without_offsets_are_written(session: Session) -> None:
    """An empty array need not have offsets; pyarrow read them to measure it, wherever they would be."""
    assert shuffle_table(session, write_table(session, jvms(), 1)).column("v").to_pylist() == [None]
