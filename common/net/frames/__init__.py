"""Framed connections: both sides of the data plane, with TLS and without."""
