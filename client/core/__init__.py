"""Decisions of the client: pure, without clock, socket, file, thread or randomness."""
