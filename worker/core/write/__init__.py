"""Decisions about what is written: files, epochs, credits and room."""
