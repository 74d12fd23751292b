"""Hostile compressed payloads against the readers of both languages: sizes that lie, bombs, frames cut and joined.

    python -m tests.fuzz.payloads --count 200000 [--seed 1]

Promise: a payload is undone to exactly what it claims, or refused as corrupt, and Python and Java agree on which and on
the bytes; no memory is taken for what a payload cannot hold. What breaks that is kept in tests/fuzz/corpus/payloads,
one file of hex each (u8 codec, payload), which the default run plays again. Exit status 1 if any did, with the seed.
"""

import argparse
import hashlib
import random
import struct
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow

from holdfast.client.compress import PayloadError, decompress
from holdfast.common.formats.batch import Codec
from holdfast.common.limits import KIB, REGION_BYTES_MAX
from tests.support.jvm import Jvm
from tests.support.row_planes import planes, row

CORPUS = Path(__file__).parent / "corpus" / "payloads"
_NAMES = {Codec.LZ4: "lz4_raw", Codec.ZSTD: "zstd"}
#: Codecs of rows, by what compresses their planes.
_OF_ROWS = {Codec.LZ4: Codec.LZ4_ROWS, Codec.ZSTD: Codec.ZSTD_ROWS}
_LENGTH = struct.Struct("<I")
_PLANES_HEAD_BYTES = 8
#: What Java has at a time; its answers are of fixed size.
_BATCH = 20_000
_ANSWER = struct.Struct(">BII")


class Payload(NamedTuple):
    """What comes with a batch whose checksum is right."""

    codec: Codec
    data: bytes

    @classmethod
    def load(cls, path: Path) -> "Payload":
        """One that was kept."""
        raw = bytes.fromhex(path.read_text())
        return cls(Codec(raw[0]), raw[1:])

    def keep(self) -> Path:
        """Have it played again from now on."""
        raw = bytes([self.codec]) + self.data
        path = CORPUS / f"found-{hashlib.sha256(raw).hexdigest()[:16]}.hex"
        path.write_text(raw.hex() + "\n")
        return path


class Verdict(NamedTuple):
    """What a reader made of a payload: how long the original was, and its CRC-32; zeros where it was refused."""

    taken: bool
    size: int
    crc: int


_REFUSED = Verdict(False, 0, 0)


def of_python(payload: Payload) -> Verdict:
    """What Python's readers make of it; any other error than theirs is raised."""
    try:
        original = decompress(payload.codec, payload.data)
    except PayloadError:
        return _REFUSED
    more = _PLANES_HEAD_BYTES if payload.codec in _OF_ROWS.values() else 0
    assert len(original) + more == _LENGTH.unpack_from(payload.data)[0], "it is not as long as it claimed"
    return Verdict(True, len(original), zlib.crc32(original))


def of_java(jvm: Jvm, payloads: list[Payload], directory: Path) -> list[Verdict]:
    """What Java's readers make of them."""
    there, back = directory / "payloads", directory / "verdicts"
    with there.open("wb") as out:
        out.write(len(payloads).to_bytes(4, "big"))
        for each in payloads:
            out.write(struct.pack(">BI", each.codec, len(each.data)) + each.data)
    assert jvm.run("wire.PayloadsMain", there, back, seconds=600).endswith("ok\n")
    return [Verdict(bool(taken), size, crc) for taken, size, crc in _ANSWER.iter_unpack(back.read_bytes())]


class Payloads:
    """Payloads that may be anything, by a seed: most are valid ones with something wrong in them."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def next(self) -> Payload:
        """The next one."""
        chance = self._chance
        codec = chance.choice([Codec.LZ4, Codec.ZSTD])
        of_rows = chance.random() < 0.3
        original = self._planes() if of_rows else self._original()
        if chance.random() < 0.1 and codec is Codec.ZSTD:
            small = self._made()
        else:
            small = bytes(pyarrow.Codec(_NAMES[codec]).compress(original))
        size = len(original)
        for _ in range(chance.choice([0, 0, 1] if of_rows else [0, 1, 1, 1, 2, 3])):
            small, size = self._spoiled(codec, small, size)
        return Payload(_OF_ROWS[codec] if of_rows else codec, _LENGTH.pack(size & 0xFFFF_FFFF) + small)

    def _original(self) -> bytes:
        chance = self._chance
        size = chance.choice([0, 1, 5, 12, 13, 200, 255, 256, 257, 1_000, 65_535, 65_536, 65_537, 200_000])
        kind = chance.randrange(4)
        if kind == 0:
            return bytes(size)
        if kind == 1:
            return chance.randbytes(size)
        return (chance.randbytes(chance.randrange(1, 40)) * (size + 1))[:size]

    def _planes(self) -> bytes:
        """Rows, turned, with something wrong in half of them: head, lengths, content, or too few bytes or too many."""
        chance = self._chance
        words, count = chance.choice([0, 1, 2, 9]), chance.choice([0, 7, 8, 9, 64, 500])
        most = chance.choice([0, 1, 4])
        rows = [row(words, chance.randbytes(8 * chance.randint(0, most)), chance) for _ in range(count)]
        made = bytearray(planes(rows, words))
        match chance.randrange(8):
            case 0:
                at = chance.choice([0, 4])
                made[at : at + 4] = chance.choice([0, 7, words + 1, count + 1, 1 << 29, 0xFFFF_FFFF]).to_bytes(
                    4, "little"
                )
            case 1:
                at = chance.randrange(len(made))
                made[at] ^= 1 << chance.randrange(8)
            case 2 if count:  # two lengths that are wrong together
                one, other = (_PLANES_HEAD_BYTES + chance.randrange(count) for _ in range(2))
                made[one], made[other] = made[one] + 8 & 0xFF, made[other] - 8 & 0xFF
            case 3:
                return bytes(made[: chance.randrange(len(made))]) + chance.randbytes(chance.randrange(3))
        return bytes(made)

    def _made(self) -> bytes:
        """A frame of zstd put together by hand, of blocks that stand for much."""
        chance = self._chance
        descriptor = chance.choice([0x00, 0x20, 0x24, 0x60, 0xA0, 0xE0, 0x80, 0xC4, chance.randrange(256)])
        head = b"\x28\xb5\x2f\xfd" + bytes([descriptor])
        head += chance.randbytes(chance.randrange(10))
        blocks = b""
        count = chance.choice([1, 2, 600])
        for each in range(count):
            kind, length = chance.choice([(1, 128 * KIB), (0, 3), (2, 5), (1, 0x1F_FFFF), (3, 1)])
            body = chance.randbytes(1 if kind == 1 else min(length, 100))
            blocks += ((length << 3) | (kind << 1) | (each == count - 1)).to_bytes(3, "little") + body
        return head + blocks

    def _spoiled(self, codec: Codec, small: bytes, size: int) -> tuple[bytes, int]:
        chance = self._chance
        at = chance.randrange(len(small)) if small else 0
        match chance.randrange(9):
            case 0:
                sizes = [0, size - 1, size + 1, 2 * size, 255 * len(small), 255 * len(small) + 1]
                return small, chance.choice([*sizes, REGION_BYTES_MAX, REGION_BYTES_MAX + 1, 0xFFFF_FFFF])
            case 1:
                return small[:at], size
            case 2:
                return small + chance.randbytes(chance.randrange(1, 30)), size
            case 3:
                return small + small, chance.choice([size, 2 * size])
            case 4:
                other = bytes(pyarrow.Codec(_NAMES[codec]).compress(self._original()))
                return chance.choice([small + other, other + small]), size
            case 5:  # a frame that readers of streams pass by
                length = chance.choice([0, 4, 0xFFFF_FFFF])
                passed = (0x184D2A50 + chance.randrange(16)).to_bytes(4, "little") + length.to_bytes(4, "little")
                return chance.choice([passed + bytes(4) + small, small + passed + bytes(4)]), size
            case 6:
                spoiled = bytearray(small)
                if spoiled:
                    spoiled[at] ^= 1 << chance.randrange(8)
                return bytes(spoiled), size
            case 7:
                spoiled = bytearray(small)
                for each in range(min(14, len(spoiled))):
                    if chance.random() < 0.2:
                        spoiled[each] = chance.randrange(256)
                return bytes(spoiled), size
            case _:
                return small[:at] + chance.randbytes(chance.randrange(20)) + small[at:], size


def judge(jvm: Jvm, payloads: Iterable[Payload], directory: Path) -> tuple[list[Payload], Counter[str]]:
    """Return those that Python and Java do not agree on, or where one of them fails, and counts."""
    wrong: list[Payload] = []
    counts: Counter[str] = Counter()
    asked: list[Payload] = []
    ours: list[Verdict] = []
    for payload in payloads:
        counts["payloads"] += 1
        try:
            verdict = of_python(payload)
        except Exception as error:  # noqa: BLE001 - whatever is raised is found, and reported
            counts[f"python: {type(error).__name__}"] += 1
            wrong.append(payload)
            continue
        judged = "taken" if verdict.taken else "refused"
        counts[judged] += 1
        counts[f"{judged} of rows"] += payload.codec in _OF_ROWS.values()
        asked.append(payload)
        ours.append(verdict)
    for payload, one, other in zip(asked, ours, of_java(jvm, asked, directory), strict=True):
        if one != other:
            counts["python and java differ"] += 1
            wrong.append(payload)
    return wrong, counts


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    made = Payloads(arguments.seed)
    counts: Counter[str] = Counter()
    found: list[Payload] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as directory:
        jvm = Jvm(Path(directory) / "classes")
        for begin in range(0, arguments.count, _BATCH):
            some = (made.next() for _ in range(min(_BATCH, arguments.count - begin)))
            wrong, counted = judge(jvm, some, Path(directory))
            counts += counted
            found += wrong
    print(dict(counts))
    for payload in found[:20]:
        print(f"seed {arguments.seed}: kept as {payload.keep()}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
