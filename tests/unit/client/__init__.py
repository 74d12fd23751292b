"""Tests of the client that start no process."""
