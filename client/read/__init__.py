"""Reads committed shuffles."""
