"""Readers of both languages and payloads that lie: the short form of `python -m tests.fuzz.payloads`."""

from pathlib import Path

import pyarrow
import pytest

from holdfast.client.compress import PayloadError, decompress
from holdfast.common.formats.batch import Codec
from holdfast.common.limits import KIB, REGION_BYTES_MAX
from tests.fuzz.payloads import CORPUS, Payload, Payloads, judge
from tests.support.jvm import Jvm


def test_a25_what_the_fuzzer_found_stays_found(jvm: Jvm, tmp_path: Path) -> None:
    """Every payload that was kept is undone exactly or refused, by Python and by Java alike."""
    kept = sorted(CORPUS.glob("*.hex"))
    assert len(kept) >= 8
    wrong, counts = judge(jvm, map(Payload.load, kept), tmp_path)
    assert wrong == []
    assert counts["refused"] >= 8


def test_a25_hostile_payloads_are_undone_exactly_or_refused(jvm: Jvm, tmp_path: Path) -> None:
    """Of five thousand payloads with sizes that lie, cut, joined and mutated, Python and Java take the same ones, with
    the same bytes, and of both sorts there are many."""
    made = Payloads(5)
    wrong, counts = judge(jvm, (made.next() for _ in range(5_000)), tmp_path)
    assert [each.keep() for each in wrong[:20]] == []
    assert counts["taken"] > 500
    assert counts["taken of rows"] > 300
    assert counts["refused of rows"] > 300
    assert counts["refused"] > 500


@pytest.mark.parametrize(
    ("codec", "small"),
    [
        (Codec.LZ4, bytes(20)),
        (Codec.ZSTD, bytes.fromhex("28b52ffda0") + REGION_BYTES_MAX.to_bytes(4, "little") + b"\x01\x00\x00"),
        (Codec.ZSTD, b"\x50\x2a\x4d\x18\x04\x00\x00\x00" + bytes(4)),
    ],
)
def test_a25_no_memory_is_taken_for_what_cannot_be(codec: Codec, small: bytes) -> None:
    """Twenty bytes that claim 64 MiB are refused before the memory for them is asked for."""
    usual = pyarrow.default_memory_pool()
    counted = pyarrow.proxy_memory_pool(usual)
    pyarrow.set_memory_pool(counted)
    try:
        with pytest.raises(PayloadError, match="cannot be"):
            decompress(codec, REGION_BYTES_MAX.to_bytes(4, "little") + small)
    finally:
        pyarrow.set_memory_pool(usual)
    assert (counted.max_memory() or 0) < 64 * KIB
