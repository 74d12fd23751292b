"""Writes the output of map attempts."""
