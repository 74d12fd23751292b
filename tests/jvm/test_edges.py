"""What Spark and its users may do to the plug-in, without a cluster."""

from tests.support.jvm import Jvm


def test_slips_are_refused_and_odd_ends_are_harmless(jvm: Jvm) -> None:
    """A wrong or misspelt setting is refused by a sentence that begins with its key; names too long for the masters are
    cut between characters; what a read costs is in Spark's counters, by the millisecond; a task that ends while another
    thread reads gives nothing back that is still written to; a payload that cannot be undone ends the read for whoever
    asks again, too."""
    assert "ok" in jvm.run("EdgesMain", options=("-Xmx256m",))


def test_a47_the_end_of_a_task_waits_for_no_reader(jvm: Jvm) -> None:
    """A task that ends while another thread of it waits for a worker ends at once. The reader is told to stop, keeps
    what it is looking at, and gives everything back itself, once."""
    assert "ok" in jvm.run("EdgesMain", "closed", options=("-Xmx256m",))
