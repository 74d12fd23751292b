"""Where master, worker and client meet: words, limits, errors, configuration and formats."""
