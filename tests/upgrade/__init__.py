"""Releases side by side: masters, workers and clients of two builds in one cluster."""
