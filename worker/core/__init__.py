"""Decisions of a worker: pure, without clock, socket, file, thread or randomness."""
