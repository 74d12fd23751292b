"""What is written, from its first byte to its sealed name."""
