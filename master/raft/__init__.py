"""Raft as the masters need it: journal, transport and codec around pysyncobj."""
