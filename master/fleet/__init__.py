"""The workers as placement sees them: which ones may get data, and their places."""
