"""The Java codec and the Python one agree: byte for byte, field for field, and in what they refuse."""

import dataclasses
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from holdfast.client.compress import Compression, Compressor, decompress
from holdfast.client.core.read.row_planes import rows_of
from holdfast.common import limits
from holdfast.common.formats import layouts, reduce_layouts
from holdfast.common.formats.batch import Codec, parse_batches
from holdfast.common.formats.checksum import SEED, crc32c, partition_seed
from holdfast.common.formats.frame import FrameType, decode_header
from holdfast.common.formats.messages import Ack
from holdfast.common.ids import NO_WORKER, ShuffleKey
from holdfast.common.statuses import MEANINGS, Loop, Status
from tests.support.jvm import Jvm
from tests.support.row_planes import planes, row
from tests.unit.common import samples

#: Of the fixed part of a row.
WORDS = 4
GOLDEN = Path(__file__).parents[1] / "golden"
#: Messages that a client of REDUCE partitions neither sends nor gets.
NOT_SPOKEN = {
    *(f"message_map_{name}" for name in ("open", "opened", "push", "seal", "sealed", "abort")),
    *(f"message_stream_{name}" for name in ("open", "opened", "data")),
    *(f"message_seal{name}" for name in ("", "_answer")),
    "message_restore",
    "message_registered",
    "message_replicate",
    "array_map_assignment",
    "array_map_winners_head",
}
MESSAGES = sorted(name for name in samples.MESSAGES if f"message_{name}" not in NOT_SPOKEN)


@pytest.fixture(scope="module")
def read(jvm: Jvm) -> dict[str, Any]:
    """What Java read of every golden file, after it compared what it wrote again."""
    lines = (line.partition(" ") for line in jvm.run("wire.GoldenMain", GOLDEN).splitlines())
    return {name: json.loads(reported) for name, _, reported in lines}


def plain(value: Any) -> Any:
    """A Python value as GoldenMain prints the same one in Java."""
    if isinstance(value, ShuffleKey):
        return str(value)
    if dataclasses.is_dataclass(value):
        return [plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.hex() if isinstance(value, bytes) else value


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def fields_of(message: Any) -> dict[str, Any]:
    """The fields of a Python dataclass under their Java names."""
    return {camel(field.name): plain(getattr(message, field.name)) for field in dataclasses.fields(message)}


def test_all_sources_compile(jvm: Jvm) -> None:
    """Main sources, the shims of this Spark and test programs compile together without a warning."""
    assert not jvm.complaints


def test_every_golden_file_is_read(read: dict[str, Any]) -> None:
    """A golden file of the data plane or of REDUCE arrays is compared byte for byte, or named above as not spoken."""
    names = {path.stem for path in GOLDEN.glob("*.hex")}
    ours = {name for name in names if name.split("_")[0] in ("batches", "rows", "frame", "message", "array")}
    done = {f"{name}_{part}" if name.startswith("array") else name for name in read for part in ("head", "rows")}
    assert ours - NOT_SPOKEN == {name for name in done if not name.startswith(("constants", "statuses"))}


def test_one_byte_of_a_golden_file_matters(jvm: Jvm, tmp_path: Path) -> None:
    """The comparison is a real one: a golden file with another value in it is noticed."""
    for path in GOLDEN.glob("*.hex"):
        (tmp_path / path.name).write_text(path.read_text())
    wrong = (tmp_path / "message_hello.hex").read_text().strip()
    (tmp_path / "message_hello.hex").write_text(wrong + "00")
    with pytest.raises(pytest.fail.Exception, match="HELLO: 1 bytes too many"):
        jvm.run("wire.GoldenMain", tmp_path)


@pytest.mark.parametrize("name", MESSAGES)
def test_messages_have_the_same_fields(read: dict[str, Any], name: str) -> None:
    """Every field that Java decodes has the value that Python encoded, under the same name."""
    expected = fields_of(samples.MESSAGES[name])
    expected.pop("ofUser", None)  # what workers tell one another
    if name == "push_answer":
        expected["indices"], expected["statuses"] = map(list, zip(*expected["statuses"], strict=True))
    assert read[f"message_{name}"] == expected


def test_frames_have_the_same_fields(read: dict[str, Any]) -> None:
    """So has the header of every frame."""
    for name in ("frame_push", "frame_map_push", "frame_refusal"):
        header = decode_header(samples.golden()[name])
        assert read[name] == fields_of(header)


def test_batches_have_the_same_fields(read: dict[str, Any]) -> None:
    """So have batches."""
    found = parse_batches(memoryview(samples.batches()), partition_seed(samples.SHUFFLE, samples.PARTITION))
    assert read["batches"] == [
        [each.flags, each.map, each.attempt, each.number, each.crc, bytes(each.payload).hex(), *(each.totals or (0, 0))]
        for each in found
    ]


def test_planes_are_the_same(read: dict[str, Any]) -> None:
    """So are the planes of rows, which Java made of the rows and turned back."""
    rows = samples.golden()["rows"]
    assert read["rows"] == rows.hex() == rows_of(memoryview(samples.golden()["rows_planes"])).hex()
    assert read["rows_planes"] == samples.golden()["rows_planes"].hex()


def test_arrays_have_the_same_fields(read: dict[str, Any]) -> None:
    """So have locations, winners and the manifest."""
    assert read["array_reduce_locations"] == plain(samples.LOCATIONS.partitions)
    assert read["array_reduce_winners"] == fields_of(samples.REDUCE_WINNERS)
    assert read["array_reduce_manifest"] == plain(samples.MANIFEST.epochs)


def test_a28_statuses_mean_the_same(read: dict[str, Any]) -> None:
    """What is final, what ends a lease, and what each means for a push and a fetch is as the one table has it."""
    wanted = []
    for status, meaning in MEANINGS.items():
        words = [each.name.lower() for each in (meaning.next, meaning.push, meaning.fetch)]
        words += ["lease"] if Loop.LEASE in meaning.ends else []
        wanted.append(" ".join([str(int(status)), status.name, *words]))
    assert read["statuses"] == wanted


def test_numbers_are_the_same(read: dict[str, Any]) -> None:
    """Statuses, frame types, levels and bounds have the same numbers in both languages."""
    assert read["constants_Status"] == {each.name: each.value for each in Status}
    assert read["constants_FrameType"] == {each.name: each.value for each in FrameType}
    assert read["constants_Ack"] == {each.name: each.value for each in Ack}
    bounds = read["constants_Limits"]
    elsewhere = {
        "NO_WORKER": NO_WORKER,
        "NO_ATTEMPT": reduce_layouts.NO_ATTEMPT,
        "ALL_MAPS": limits.U32_MAX,
        "ORIGINAL_BYTES_MAX": limits.REGION_BYTES_MAX,
        "INFLATED_BYTES_MAX": layouts.INFLATED_BYTES_MAX,
    }
    assert bounds == {name: elsewhere.get(name, getattr(limits, name, None)) for name in bounds}


def test_bad_bytes_are_typed_errors(jvm: Jvm) -> None:
    """Flipped bits, cuts, garbage, bombs and misdirected batches are refused; batches cost no heap."""
    shuffle = samples.SHUFFLE
    seed = SEED.pack(shuffle.instance, shuffle.shuffle, shuffle.generation, shuffle.state, samples.PARTITION)
    reported = jvm.run("wire.WireChecks", samples.batches().hex(), crc32c(seed + b"data"))
    assert reported.splitlines()[-1] == "checked"


def test_compressed_payloads_go_both_ways(jvm: Jvm, tmp_path: Path) -> None:
    """What Python compressed Java undoes, and what Java compressed of that Python undoes: the same bytes."""
    rng = random.Random(11)
    originals, there = [], []
    rows = [row(WORDS, bytes(8 * (each % 3)), rng) for each in range(2_000)]
    for of_planes, codec in ((Codec.LZ4_ROWS, Codec.LZ4), (Codec.ZSTD_ROWS, Codec.ZSTD)):
        small = bytes(Compressor(Compression(codec)).compress(0, planes(rows, WORDS))[1])
        originals.append((of_planes, b"".join(rows)))
        there.append(struct.pack(">BI", of_planes, len(small)) + small)
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD):
        for size in (0, 1, 300, 4_097, 70_000, 3_000_000):
            original = bytes(rng.choice(b"abc") for _ in range(size)) if size < 100_000 else b"holdfast" * (size // 8)
            used, payload = Compressor(Compression(codec)).compress(0, original)
            assert used is codec or size < 300
            originals.append((used, original))
            there.append(struct.pack(">BI", used, len(payload)) + bytes(payload))
    (tmp_path / "python").write_bytes(b"".join(there))
    jvm.run("wire.CodecMain", WORDS, tmp_path / "python", tmp_path / "java")
    back, at = (tmp_path / "java").read_bytes(), 0
    for used, original in originals:
        codec, size = struct.unpack_from(">BI", back, at)
        at += 5 + size
        assert codec == used
        assert bytes(decompress(Codec(codec), back[at - size : at])) == original
    assert at == len(back)
