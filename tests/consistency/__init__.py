"""A consistency harness: real processes, faults drawn from a seed, and an oracle that makes every byte again."""
