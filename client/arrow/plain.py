"""Columns in the form in which they are stored: arrays that one message holds by itself, whatever they are nested in.

Rules: dictionaries and run-end-encoded arrays become their values; views and the large forms of strings, bytes and
lists become the ordinary ones, which Spark has, too. What cannot is refused by the name of its column, before anything
is written. Nested arrays are put together anew, of parts that are complete, and measured here: Arrow allows an empty
array to have no offsets, the JVM leaves them out, and pyarrow's `nbytes` reads them all the same, as it does those of
members of a union that are not used, which ends the process. Nothing is copied that need not be. Called by tables.py,
rows.py and the map side of the Spark API.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.common.errors import ConfigError

#: Kinds of lists whose entries are contiguous, and those with an offset for each.
_LISTS = ("is_list", "is_large_list")
_LIST_VIEWS = ("is_list_view", "is_large_list_view")
_STRINGS = ("is_large_string", "is_string_view")
_BINARIES = ("is_large_binary", "is_binary_view")


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema under which rows of this one are stored. Raises ConfigError for what cannot be stored."""
    fields = []
    for field in schema:
        try:
            kind = plain_type(field.type)
            _try_on(kind)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise ConfigError(
                f"column {field.name!r} is {field.type}, which cannot be written ({error}); cast it to another type"
            ) from error
        fields.append(field.with_type(kind))
    return pa.schema(fields)


def _try_on(kind: pa.DataType) -> None:
    """Do with no rows what is done with rows, so that what this pyarrow cannot do is known before the first one."""
    schema = pa.schema([pa.field("x", kind)])
    batch = pa.RecordBatch.from_arrays([_empty(kind)], schema=schema)
    both = pa.concat_batches([batch, batch])
    taken = pa.RecordBatch.from_arrays([both.column(0).take(pa.array([], pa.int64()))], schema=schema)
    pa.ipc.read_record_batch(taken.serialize(), schema).validate(full=True)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type under which values of this one are stored. Raises pa.ArrowTypeError for unsupported types."""
    if isinstance(kind, pa.BaseExtensionType):
        if plain_type(kind.storage_type) != kind.storage_type:
            raise pa.ArrowTypeError(f"an extension type over {kind.storage_type}")
        return kind
    if pa.types.is_dictionary(kind) or _is(kind, "is_run_end_encoded"):
        return plain_type(kind.value_type)
    if _is(kind, *_STRINGS):
        return pa.string()
    if _is(kind, *_BINARIES):
        return pa.binary()
    if not pa.types.is_nested(kind):
        return kind
    return _plain_nested(kind)


def _plain_nested(kind: pa.DataType) -> pa.DataType:
    if _is(kind, *_LISTS, *_LIST_VIEWS):
        return pa.list_(_plain_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_plain_field(kind.key_field), _plain_field(kind.item_field), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    fields = [_plain_field(kind.field(index)) for index in range(kind.num_fields)]
    return pa.union(fields, kind.mode, kind.type_codes) if pa.types.is_union(kind) else pa.struct(fields)


def _plain_field(field: pa.Field) -> pa.Field:
    return field.with_type(plain_type(field.type))


def stored(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows with the types of `schema`: those of the rows, or plain_schema of them.

    Raises pa.ArrowInvalid where a type that is stored cannot hold so much in one array.
    """
    columns = [plain(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def plain(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the same values as `kind`, in an array whose parts are all complete."""
    given = array.type
    if not len(array):
        return _empty(kind)
    if isinstance(given, pa.BaseExtensionType):
        storage = array.storage
        same = plain(storage, given.storage_type)
        return array if same is storage else pa.ExtensionArray.from_storage(given, same)
    if pa.types.is_dictionary(given):
        return plain(array.dictionary, kind).take(array.indices)
    if _is(given, "is_run_end_encoded"):
        return plain(array.values, kind).take(_runs(array))
    if pa.types.is_nested(given):
        return _put_together(array, kind)
    return array if given == kind else array.cast(kind)


def _empty(kind: pa.DataType) -> pa.Array:
    """No value of a type that is stored; nested ones have offsets all the same."""
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _empty(kind.storage_type))
    if not pa.types.is_nested(kind):
        return pa.array([], kind)
    nothing = pa.py_buffer(bytes(8))
    if pa.types.is_map(kind) or _is(kind, *_LISTS):
        return pa.Array.from_buffers(kind, 0, [None, nothing], children=[_empty(_entry(kind))])
    if pa.types.is_fixed_size_list(kind):
        return pa.Array.from_buffers(kind, 0, [None], children=[_empty(kind.value_type)])
    children = [_empty(kind.field(index).type) for index in range(kind.num_fields)]
    if not pa.types.is_union(kind):
        return pa.Array.from_buffers(kind, 0, [None], children=children)
    buffers = [None, nothing] if kind.mode == "sparse" else [None, nothing, nothing]
    return pa.Array.from_buffers(kind, 0, buffers, children=children)


def _entry(kind: pa.DataType) -> pa.DataType:
    """What the entries of a list or map are."""
    return pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type


def _put_together(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Make a nested array anew, of its children as they are stored."""
    given, count = array.type, len(array)
    if pa.types.is_union(given):
        return _union(array, kind)
    buffers = [_validity(array)]
    if pa.types.is_struct(given):
        children = [plain(array.field(index), kind.field(index).type) for index in range(given.num_fields)]
    elif pa.types.is_fixed_size_list(given):
        values = array.values.slice(array.offset * given.list_size, count * given.list_size)
        children = [plain(values, kind.value_type)]
    else:
        offsets, entries = _listed(array, kind)
        buffers.append(offsets)
        children = [entries]
    return pa.Array.from_buffers(kind, count, buffers, children=children)


def _listed(array: pa.Array, kind: pa.DataType) -> tuple[pa.Buffer, pa.Array]:
    """Return the offsets of a list or map as `kind` has them, beginning with 0, and the entries that they lead to."""
    number = np.dtype(np.int64 if pa.types.is_large_list(kind) else np.int32)
    if _is(array.type, *_LIST_VIEWS):
        offsets, entries = _gathered(array, _entry(kind))
    else:
        own = np.dtype(np.int64 if pa.types.is_large_list(array.type) else np.int32)
        data = array.buffers()[1]
        offsets = np.frombuffer(data, own, len(array) + 1, array.offset * own.itemsize)
        first, past = int(offsets[0]), int(offsets[-1])
        entries = plain(array.values.slice(first, past - first), _entry(kind))
        if not first and own == number:
            return data.slice(array.offset * own.itemsize, offsets.nbytes), entries
        offsets = offsets - first
    if offsets[-1] >= 1 << 8 * number.itemsize - 1:
        raise pa.ArrowInvalid(f"lists with {offsets[-1]} entries in one array")
    return pa.py_buffer(offsets.astype(number)), entries


def _gathered(array: pa.Array, kind: pa.DataType) -> tuple[Any, pa.Array]:
    """Return the same of a view of lists, whose entries are in any order, and may be those of several lists."""
    there = array.is_valid().to_numpy(zero_copy_only=False)
    begins, sizes = array.offsets.to_numpy().astype(np.int64), array.sizes.to_numpy() * there
    offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    if not offsets[-1]:
        return offsets, _empty(kind)
    used = sizes > 0
    first, past = int(begins[used].min()), int((begins + sizes)[used].max())
    positions = np.repeat(begins - first - offsets[:-1], sizes) + np.arange(offsets[-1])
    return offsets, plain(array.values.slice(first, past - first), kind).take(pa.array(positions))


def _union(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """What a union is made of does not begin where the union does, if that is a slice."""
    given, count = array.type, len(array)
    codes = np.frombuffer(array.buffers()[1], np.int8, count, array.offset)
    children = [array.field(index) for index in range(given.num_fields)]
    buffers = [None, pa.py_buffer(codes)]
    if given.mode == "dense":
        positions = np.frombuffer(array.buffers()[2], np.int32, count, array.offset * 4).copy()
        for index, code in enumerate(given.type_codes):
            mine = codes == code
            first, past = (positions[mine].min(), positions[mine].max() + 1) if mine.any() else (0, 0)
            children[index] = children[index].slice(first, past - first)
            positions[mine] -= first
        buffers.append(pa.py_buffer(positions))
    children = [plain(child, kind.field(index).type) for index, child in enumerate(children)]
    return pa.Array.from_buffers(kind, count, buffers, children=children)


def _runs(array: pa.Array) -> pa.Array:
    """Return for each value of a run-end-encoded array which of its runs it is in."""
    positions = np.arange(array.offset, array.offset + len(array))
    return pa.array(np.searchsorted(array.run_ends.to_numpy(), positions, side="right"))


def _validity(array: pa.Array) -> pa.Buffer | None:
    """Return the bits that say which values are there, the first one of the first value."""
    if not array.null_count:
        return None
    if not array.offset:
        return array.buffers()[0]
    return pa.py_buffer(np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little"))


def size_of(batch: pa.RecordBatch) -> int:
    """Return the bytes of what is in the rows, about."""
    return sum(map(_size, batch.columns))


def _size(array: pa.Array) -> int:
    kind, count = array.type, len(array)
    if not count:
        return 0
    if isinstance(kind, pa.BaseExtensionType):
        return _size(array.storage)
    if not pa.types.is_nested(kind):
        return int(array.nbytes)
    if pa.types.is_fixed_size_list(kind):
        return count // 8 + _size(array.values.slice(array.offset * kind.list_size, count * kind.list_size))
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        return count + sum(_size(array.field(index)) for index in range(kind.num_fields))
    number = np.dtype(np.int64 if pa.types.is_large_list(kind) else np.int32)
    offsets = np.frombuffer(array.buffers()[1], number, count + 1, array.offset * number.itemsize)
    first, past = int(offsets[0]), int(offsets[-1])
    return offsets.nbytes + _size(array.values.slice(first, past - first))


def _is(kind: pa.DataType, *tests: str) -> bool:
    """Whether the type passes one of these tests of pyarrow, of which older ones have fewer."""
    return any(getattr(pa.types, test, bool)(kind) for test in tests if hasattr(pa.types, test))
