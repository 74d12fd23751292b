"""The masters' services: RPCs turned into commands and confirmed reads, and answers into replies."""
