"""The configuration: every key, and how it is read. Pure."""
