"""Where partitions go: pure policies over a view of the workers."""
