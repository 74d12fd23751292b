"""Decisions of the masters: pure, without clock, socket, file, thread or randomness."""
