"""The writers' buffers in Spark's managed memory, without a cluster."""

import re

from tests.support.jvm import Jvm

#: What Spark opens for itself when it starts a JVM.
OPENED = (
    "java.base/java.nio",
    "java.base/java.lang.invoke",
    "java.base/java.util",
    "java.base/java.lang",
    "java.base/sun.nio.ch",
)


#: One after another, since each fails at every call in turn.
SEEDS = 2


def opened() -> tuple[str, ...]:
    return tuple(f"--add-opens={name}=ALL-UNNAMED" for name in OPENED)


def test_records_pass_the_buffers_whole_with_any_memory(jvm: Jvm) -> None:
    """Rows and records come out in batches that stand alone, whether memory is plenty or none; all is given back. The
    tasks that run at once share the direct memory of the JVM."""
    said = jvm.run("BuffersMain", seconds=180.0, options=("-Xmx1g", *opened()))
    lines = [line for line in said.splitlines() if " batches=" in line]
    assert len(lines) == 34, said
    assert "shares are as they should be" in said


def test_a13_direct_memory_is_within_a_share_of_the_overhead(jvm: Jvm) -> None:
    """Whatever memory and cores an executor has, its tasks together, with what lies idle, take no more direct memory
    than the share of its overhead that the setting says."""
    said = jvm.run("BuffersMain", "shares", options=("-Xmx1g", *opened()))
    assert "shares are as they should be" in said


def test_a01_a_failure_at_any_call_is_final(jvm: Jvm) -> None:
    """Random runs of the buffers in which the sink fails at each of its calls in turn, and operators that want memory
    swallow it: nothing is taken or sent from then on, every later call says so, the end too, and nothing looks to Spark
    like a refusal of memory."""
    said = jvm.run("LostRowsMain", 1, SEEDS, seconds=240.0, options=opened())
    found = re.search(r"^ok (\d+) runs", said, re.MULTILINE)
    assert found is not None, said
    assert int(found[1]) > 100, said


def test_a01_a_batch_that_could_not_be_made_ends_its_attempt(jvm: Jvm) -> None:
    """Who swallows an error of a push writer and goes on writing gets the error again, and no sizes for a status."""
    assert jvm.run("push.LostBatchMain", options=opened()).startswith("ok")


def test_a02_no_direct_memory_is_no_fatal_error(jvm: Jvm) -> None:
    """Without direct memory neither frames nor calls of the masters throw what Spark ends an executor for."""
    options = ("-XX:MaxDirectMemorySize=8m", *opened())
    assert jvm.run("data.NoMemoryMain", options=options).startswith("ok")
