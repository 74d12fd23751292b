"""The drill of a Spark job: the session, what it asks, and what Spark logged."""
