"""What is read of sealed files."""
