"""Pure policies of storage tiers: which directory a file goes to, what moves away, and in which order."""
