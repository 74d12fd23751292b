"""What master, worker and client share: words, limits, errors, configuration, formats; the only place where they meet."""
