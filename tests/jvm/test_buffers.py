"""The writers' buffers in Spark's managed memory, without a cluster."""

from tests.support.jvm import Jvm

#: What Spark opens for itself when it starts a JVM.
OPENED = (
    "java.base/java.nio",
    "java.base/java.lang.invoke",
    "java.base/java.util",
    "java.base/java.lang",
    "java.base/sun.nio.ch",
)


def test_records_pass_the_buffers_whole_with_any_memory(jvm: Jvm) -> None:
    """Rows and records come out in batches that stand alone, whether memory is plenty or none; all is given back. The
    tasks that run at once share the direct memory of the JVM."""
    opened = tuple(f"--add-opens={name}=ALL-UNNAMED" for name in OPENED)
    said = jvm.run("BuffersMain", seconds=180.0, options=("-Xmx1g", *opened))
    lines = [line for line in said.splitlines() if " batches=" in line]
    assert len(lines) == 34, said
    assert "shares are as they should be" in said
