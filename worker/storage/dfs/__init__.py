"""Sealed files on the DFS."""
