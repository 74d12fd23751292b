"""Whether a directory works, and the room in it."""
