"""Which sealed file lies where."""
