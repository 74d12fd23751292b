"""The push log."""
