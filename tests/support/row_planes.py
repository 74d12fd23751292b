"""Rows of Spark SQL, and their planes as docs/internals/protocol.md has them; what writers make is compared with it."""

import random
import struct


def row(words: int, variable: bytes = b"", chance: random.Random | None = None) -> bytes:
    """A row behind its length, of bytes that change slowly."""
    chance = chance or random.Random(words)
    fixed = b"".join(struct.pack("<Q", chance.randrange(300)) for _ in range(words))
    return struct.pack("<I", len(fixed) + len(variable)) + fixed + variable


def planes(rows: list[bytes], words: int) -> bytes:
    """What rows are turned into."""
    step = 4 + 8 * words
    fixed = b"".join(each[:step] for each in rows)
    turned = b"".join(_column(fixed[at::step]) for at in range(step))
    return struct.pack("<II", len(rows), words) + turned + b"".join(each[step:] for each in rows)


def _column(column: bytes) -> bytes:
    """One byte of each row: of whole groups of 64 rows the bits, then the others."""
    whole = len(column) // 64 * 64
    bits = [sum((byte >> bit & 1) << row for row, byte in enumerate(column[:whole])) for bit in range(8)]
    return b"".join(plane.to_bytes(whole // 8, "little") for plane in bits) + column[whole:]
