"""The workers: the bytes, and next to them the index of every directory."""
