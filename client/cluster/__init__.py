"""A whole cluster of real processes on this machine."""
