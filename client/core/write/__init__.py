"""Decisions of writers: where output is sent, and what a refusal means."""
