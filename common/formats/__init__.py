"""Formats of the data plane: frames, batches, messages and arrays. Pure."""
