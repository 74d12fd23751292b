"""Directories that no worker uses, looked at."""
