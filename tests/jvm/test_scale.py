"""What an executor holds of a very large shuffle, whatever its tasks do."""

from holdfast.common.limits import MIB
from tests.jvm.test_buffers import opened
from tests.support.jvm import Jvm


def test_an_executor_holds_little_of_a_shuffle_of_50_000_partitions(jvm: Jvm) -> None:
    """Places of 50,000 partitions, each on a pair of workers of its own, and the manifest of their 100,000 epochs, both
    of which an executor has once, and what each of its writers keeps of every partition: performance.md has them.
    """
    said = jvm.run("push.ScaleMain", 50_000, 1_500, options=("-XX:+UseSerialGC", *opened()))
    held = {name: int(size) for name, size in map(str.split, said.splitlines())}
    assert 4 * MIB < held["locations"] < 16 * MIB, said
    assert MIB // 2 < held["writer"] < 2 * MIB, said
    assert 2 * MIB < held["manifest"] < 5 * MIB, said
