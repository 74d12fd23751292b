"""Records of the index and of footers."""
