"""Decisions of writers: where output goes, and what a refusal means."""
