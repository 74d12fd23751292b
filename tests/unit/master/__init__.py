"""Tests of the masters that need no process."""
