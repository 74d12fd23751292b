"""Decisions of readers: which copy to ask, and whether what came is all of it."""
