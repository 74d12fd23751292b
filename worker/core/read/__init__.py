"""Decisions about what is read: streams, their turns, and who may fetch from the DFS."""
