"""What is installed: the wheel and the tree, and the client alone."""
