"""Arrow's types and Spark's, as far as both have them: for the headers of shuffles that both may read.

Rules: pure and without Spark; a type that the other side lacks is said to be missing, not guessed. Called by tables.py.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa

_PAIRS: tuple[tuple[Any, str], ...] = (
    (pa.null(), "void"),
    (pa.bool_(), "boolean"),
    (pa.int8(), "byte"),
    (pa.int16(), "short"),
    (pa.int32(), "integer"),
    (pa.int64(), "long"),
    (pa.float32(), "float"),
    (pa.float64(), "double"),
    (pa.string(), "string"),
    (pa.binary(), "binary"),
    (pa.date32(), "date"),
    (pa.timestamp("us", tz="UTC"), "timestamp"),
    (pa.timestamp("us"), "timestamp_ntz"),
    (pa.duration("us"), "interval day to second"),
)
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")


class NotInSparkError(Exception):
    """Spark has no such type."""


def spark_schema(schema: pa.Schema) -> str:
    """The schema as Spark's JSON, "" if a column is of a type that Spark does not have."""
    try:
        return json.dumps({"type": "struct", "fields": [_field(field) for field in schema]})
    except NotInSparkError:
        return ""


def not_in_spark(schema: pa.Schema) -> list[str]:
    """The columns of types that Spark does not have, each with its type."""
    return [f"{field.name} ({field.type})" for field in schema if not spark_schema(pa.schema([field]))]


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _spark(field.type), "nullable": field.nullable, "metadata": {}}


def _spark(kind: Any) -> Any:
    for arrow, name in _PAIRS:
        if kind == arrow or (name == "timestamp" and pa.types.is_timestamp(kind) and kind.tz and kind.unit == "us"):
            return name
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field(kind.field(index)) for index in range(kind.num_fields)]}
    if pa.types.is_map(kind):
        ends = {"keyType": _spark(kind.key_type), "valueType": _spark(kind.item_type)}
        return {"type": "map", **ends, "valueContainsNull": kind.item_field.nullable}
    if pa.types.is_list(kind):
        inner = {"elementType": _spark(kind.value_type), "containsNull": kind.value_field.nullable}
        return {"type": "array", **inner}
    raise NotInSparkError(str(kind))


def column_names(text: str) -> list[str]:
    """Names of the columns of a schema in Spark's JSON."""
    return [str(field["name"]) for field in json.loads(text)["fields"]]


def arrow_schema(text: str) -> pa.Schema:
    """What a schema in Spark's JSON is in Arrow, for a shuffle without a row, which has no other; a type that is not
    known here is null."""
    return pa.schema(
        [pa.field(field["name"], _arrow(field["type"]), field["nullable"]) for field in json.loads(text)["fields"]]
    )


def _arrow(kind: Any) -> Any:
    if isinstance(kind, str):
        if found := _DECIMAL.fullmatch(kind):
            return pa.decimal128(int(found[1]), int(found[2]))
        return next((arrow for arrow, name in _PAIRS if name == kind), pa.null())
    if kind["type"] == "array":
        return pa.list_(pa.field("element", _arrow(kind["elementType"]), kind["containsNull"]))
    if kind["type"] == "map":
        return pa.map_(_arrow(kind["keyType"]), _arrow(kind["valueType"]))
    if kind["type"] == "struct":
        return pa.struct([pa.field(each["name"], _arrow(each["type"]), each["nullable"]) for each in kind["fields"]])
    return pa.null()
